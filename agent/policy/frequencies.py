"""The frequency rule: a code that occurs too often has a higher level until it is gone long enough.

Pure functions of one chip. The beginning of an episode and a one-off event are occurrences; for a
code with a duration rule, its upgrade by that rule is. So two reports of the same event count once.
Source: ``docs/spec/device-plugin.md#3.4``, without its defects K13 and K14.
"""

from __future__ import annotations

from itertools import dropwhile
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from agent.policy import upgrades
from agent.policy.state import ChipState, Counter, Fault, Upgrade
from agent.policy.transaction import without
from contract.codes.policies import FAULT_FREQUENCY
from contract.counted import counted

if TYPE_CHECKING:
    from agent.policy.transaction import RuleContext
    from contract.codes.levels import Severity
    from contract.codes.policies import FrequencyPolicy

_NEVER = Counter()


class OccurrenceOrigin(NamedTuple):
    """The code that occurred, and the episode it belongs to, where no fault has them any more."""

    code: str
    episode: str
    severity: Severity | None


def occurred(
    known: ChipState, origin: Fault | Upgrade, at_ms: int, context: RuleContext
) -> ChipState:
    """Return ``known`` after the code of ``origin`` occurred at ``at_ms``.

    While the code is upgraded, an occurrence only renews the time of the upgrade.
    """
    code = origin.code
    policy = context.draft.tables.frequencies.get(code)
    if policy is None:
        return known
    upgrade = known.upgrade_of(code, FAULT_FREQUENCY)
    if upgrade is not None:
        known = _with(known, code, Counter((), at_ms))
        newest_ms = max(at_ms, upgrade.upgraded_at_ms)
        return upgrades.with_upgrade(known, replace(upgrade, upgraded_at_ms=newest_ms))
    counter = known.counters.get(code, _NEVER)
    counter = Counter((*counter.occurred_ms, at_ms), at_ms)
    return _counted(known, origin, counter, policy, context)


def recovered(known: ChipState, code: str, at_ms: int) -> ChipState:
    """Return ``known`` with the code gone since ``at_ms``; 0: its recovery proved wrong."""
    counter = known.counters.get(code)
    if counter is None:
        return known
    return _with(known, code, replace(counter, recovered_ms=at_ms))


def release_ms(known: ChipState, upgrade: Upgrade, policy: FrequencyPolicy) -> int | None:
    """Return when the code of ``upgrade`` is gone long enough (epoch ms); strictly greater.

    ``None`` while it holds, and if only an operator may release it.
    """
    if policy.release_ms is None:
        return None
    counter = known.counters.get(upgrade.code)
    if counter is None or not counter.recovered_ms:
        return None
    return counter.recovered_ms + policy.release_ms + 1


def release(
    known: ChipState, upgrade: Upgrade, policy: FrequencyPolicy, context: RuleContext
) -> ChipState:
    """Return ``known`` after the code of ``upgrade`` was gone long enough."""
    assert policy.release_ms is not None
    known = upgrades.expire(known, upgrade, policy.release_ms, context)
    return replace(known, counters=without(known.counters, upgrade.code))


def counters_emptied(known: ChipState) -> ChipState:
    """Return ``known`` without counters, but for codes that are still upgraded."""
    upgraded = {upgrade.code for upgrade in known.upgrades if upgrade.kind == FAULT_FREQUENCY}
    left = {code: counter for code, counter in known.counters.items() if code in upgraded}
    return known if len(left) == len(known.counters) else replace(known, counters=left)


def configured(known: ChipState, context: RuleContext) -> ChipState:
    """Return ``known`` under new rules (device-plugin#3.4).

    Codes without a rule lose their counters, and the occurrences so far may be enough now.
    """
    policies = context.draft.tables.frequencies
    left = {code: counter for code, counter in known.counters.items() if code in policies}
    if len(left) != len(known.counters):
        known = replace(known, counters=left)
    for code, counter in left.items():
        if counter.occurred_ms and known.upgrade_of(code, FAULT_FREQUENCY) is None:
            # The episodes of occurrences that are over are not kept.
            origin = known.faults.get(code) or OccurrenceOrigin(
                code, context.episode(code), context.draft.tables.severity_of(code)
            )
            known = _counted(known, origin, counter, policies[code], context)
    return known


def adopted(known: ChipState, upgrade: Upgrade, at_ms: int) -> ChipState:
    """Return ``known`` with an ``upgrade`` of earlier: its code is gone since ``at_ms``, unless it
    holds.
    """
    fault = known.faults.get(upgrade.code)
    holds = fault is not None and not fault.once
    return _with(known, upgrade.code, Counter((), upgrade.upgraded_at_ms, 0 if holds else at_ms))


def _counted(
    known: ChipState,
    origin: Fault | Upgrade | OccurrenceOrigin,
    counter: Counter,
    policy: FrequencyPolicy,
    context: RuleContext,
) -> ChipState:
    """Return ``known`` with the occurrences of ``counter`` in the window, or with an upgrade.

    The upgrade is made if they are enough. The window is in whole seconds, its edge included.
    """
    start_ms = (context.at_ms // 1000 - policy.window_seconds) * 1000
    recent = tuple(dropwhile(lambda at_ms: at_ms < start_ms, counter.occurred_ms))
    if not recent:
        return replace(known, counters=without(known.counters, origin.code))
    if len(recent) < policy.times:
        return _with(known, origin.code, replace(counter, occurred_ms=recent))
    known = _with(known, origin.code, replace(counter, occurred_ms=()))
    because = (
        f"{origin.code} occurred {counted(len(recent), 'time')} within {policy.window_seconds} s "
        f"({FAULT_FREQUENCY})"
    )
    upgrade = Upgrade(
        origin.code,
        FAULT_FREQUENCY,
        policy.level,
        counter.last_ms,
        because,
        origin.episode,
        origin.severity,
    )
    return upgrades.add(known, upgrade, context)


def _with(known: ChipState, code: str, counter: Counter) -> ChipState:
    if known.counters.get(code) == counter:
        return known
    return replace(known, counters=known.counters | {code: counter})
