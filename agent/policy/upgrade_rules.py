"""The rules that raise the level of a code of a chip: by duration, by frequency, by documents.

An upgrade is a reason why a code is at a level, whether it holds or not. Each rule is a pure
function of one chip: it adds an upgrade or removes one, and a fault of the code follows at once.

*Duration* (``docs/spec/device-plugin.md#3.5``, without its defects K15 and K43): a code that holds
too long has a higher level until it was gone long enough. There are no counters: the fault has the
time since which a code holds, the upgrade the time since which it is gone. So a new rule finds a
fault at its true age, and a restart changes nothing. Both comparisons are strictly greater, hence
each deadline is one millisecond behind its timeout.

*Frequency* (``docs/spec/device-plugin.md#3.4``, without its defects K13, K14): a code that occurs
too often has a higher level until it is gone long enough. The beginning of an episode and a one-off
event are occurrences; for a code with a duration rule, its upgrade by that rule is. So two reports
of the same event count once.

*Documents* (``docs/spec/device-plugin.md#3.6``): upgrades that only a stored document has are
adopted, and an operator releases them. A new fault configuration judges all of them again
(``docs/spec/device-plugin.md#3.7``, without its defects K33 and K51).
"""

from __future__ import annotations

from itertools import dropwhile
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from agent.policy.state import (
    Adopted,
    ChangeKind,
    ChipState,
    Counter,
    Fault,
    SubjectState,
)
from agent.policy.transaction import all_judged_again, judged_again, level_of, without
from contract.codes.levels import ChipLevel
from contract.codes.policies import (
    AUTOFILL_CODE,
    FAULT_AUTOFILL,
    FAULT_DURATION,
    FAULT_FREQUENCY,
    UPGRADE_TYPES,
)
from contract.pages.agent_status import Upgrade
from contract.plural import plural

if TYPE_CHECKING:
    from agent.policy.transaction import RuleContext
    from contract.codes.catalogue import Catalogue
    from contract.codes.levels import Severity
    from contract.codes.policies import DurationPolicy, FrequencyPolicy

_LEVELS = frozenset(ChipLevel)
_NEVER = Counter()


def with_upgrade(state: ChipState, upgrade: Upgrade) -> ChipState:
    """Return ``state`` with ``upgrade`` in the place of the one of the same code and kind."""
    others = [
        other
        for other in state.upgrades
        if (other.code, other.kind) != (upgrade.code, upgrade.kind)
    ]
    # Equal states must make equal documents; upstream's order is random, which makes needless
    # writes (EX-51).
    upgrades = sorted([*others, upgrade], key=lambda other: (other.code, other.kind))
    return replace(state, upgrades=tuple(upgrades))


def add_upgrade(
    state: ChipState, upgrade: Upgrade, context: RuleContext, because: str | None = None
) -> ChipState:
    """Return ``state`` with ``upgrade``, new or at another level, and record the change."""
    old = level_of(state, upgrade.code)
    state = judged_again(with_upgrade(state, upgrade), upgrade.code, context)
    new = level_of(state, upgrade.code)
    context.note(ChangeKind.UPGRADED, upgrade, because or upgrade.because, old, new)
    return state


def remove_upgrade(
    state: ChipState, upgrade: Upgrade, because: str, context: RuleContext
) -> ChipState:
    """Return ``state`` without ``upgrade``, and record the change."""
    old = level_of(state, upgrade.code)
    others = tuple(other for other in state.upgrades if other is not upgrade)
    state = judged_again(replace(state, upgrades=others), upgrade.code, context)
    context.note(ChangeKind.RELEASED, upgrade, because, old, level_of(state, upgrade.code))
    return state


def _expire_upgrade(
    state: ChipState, upgrade: Upgrade, timeout_ms: int, context: RuleContext
) -> ChipState:
    """Return ``state`` without ``upgrade``, whose code was gone for longer than ``timeout_ms``."""
    seconds = timeout_ms / 1000
    because = f"{upgrade.code} was gone for longer than {seconds:g} s ({upgrade.kind})"
    return remove_upgrade(state, upgrade, because, context)


# The duration rule.


def duration_upgrade_ms(fault: Fault, policy: DurationPolicy) -> int:
    """Return when ``fault`` holds too long (epoch ms).

    Not for a one-off event, nor for an unconfirmed fault, which may be over.
    """
    return fault.first_seen_ms + policy.fault_timeout_ms + 1


def duration_release_ms(upgrade: Upgrade, policy: DurationPolicy) -> int | None:
    """Return when the code of ``upgrade`` is gone long enough (epoch ms).

    ``None`` while it holds.
    """
    if upgrade.gone_since_ms is None:
        return None
    return upgrade.gone_since_ms + policy.recover_timeout_ms + 1


def upgrade_by_duration(
    state: ChipState, fault: Fault, policy: DurationPolicy, context: RuleContext
) -> ChipState:
    """Return ``state`` after ``fault`` held too long, which a frequency rule counts as an
    occurrence.
    """
    seconds, since_ms = policy.fault_timeout_ms / 1000, fault.first_seen_ms
    upgrade = Upgrade(
        fault.code,
        FAULT_DURATION,
        policy.level,
        # The time of the deadline, as upstream's ``FaultAlarmTime``, however late this call comes.
        since_ms + policy.fault_timeout_ms,
        f"{fault.code} held for longer than {seconds:g} s ({FAULT_DURATION})",
        fault.episode,
        fault.severity,
    )
    state = add_upgrade(state, upgrade, context)
    return count_occurrence(state, upgrade, upgrade.upgraded_at_ms, context)


def release_by_duration(
    state: ChipState, upgrade: Upgrade, policy: DurationPolicy, context: RuleContext
) -> ChipState:
    """Return ``state`` after the code of ``upgrade`` was gone long enough.

    For a frequency rule that is the recovery of the code.
    """
    assert upgrade.gone_since_ms is not None
    state = _expire_upgrade(state, upgrade, policy.recover_timeout_ms, context)
    # Not the end of the fault: upstream sets ``lastRecover`` to this time, too (device-plugin#3.5).
    recovered_ms = upgrade.gone_since_ms + policy.recover_timeout_ms
    return with_recovery(state, upgrade.code, recovered_ms)


def with_gone_since(state: ChipState, code: str, at_ms: int | None) -> ChipState:
    """Return ``state`` with ``code`` gone since ``at_ms``; ``None``: it holds again."""
    if not state.upgrades:
        return state
    upgrade = state.upgrade_of(code, FAULT_DURATION)
    if upgrade is None or upgrade.gone_since_ms == at_ms:
        return state
    return with_upgrade(state, replace(upgrade, gone_since_ms=at_ms))


# The frequency rule.


class OccurrenceOrigin(NamedTuple):
    """The code that occurred, and the episode it belongs to, where no fault has them any more."""

    code: str
    episode: str
    severity: Severity | None


def count_occurrence(
    state: ChipState, origin: Fault | Upgrade, at_ms: int, context: RuleContext
) -> ChipState:
    """Return ``state`` after the code of ``origin`` occurred at ``at_ms``.

    While the code is upgraded, an occurrence only renews the time of the upgrade.
    """
    code = origin.code
    policy = context.draft.tables.frequencies.get(code)
    if policy is None:
        return state
    upgrade = state.upgrade_of(code, FAULT_FREQUENCY)
    if upgrade is not None:
        state = _with_counter(state, code, Counter((), at_ms))
        # An occurrence that was held back begins late, with its own older time.
        newest_ms = max(at_ms, upgrade.upgraded_at_ms)
        return with_upgrade(state, replace(upgrade, upgraded_at_ms=newest_ms))
    counter = state.counters.get(code, _NEVER)
    counter = Counter((*counter.occurred_ms, at_ms), at_ms)
    return _counted(state, origin, counter, policy, context)


def with_recovery(state: ChipState, code: str, at_ms: int) -> ChipState:
    """Return ``state`` with the code gone since ``at_ms``; 0: its recovery proved wrong."""
    counter = state.counters.get(code)
    if counter is None:
        return state
    return _with_counter(state, code, replace(counter, recovered_ms=at_ms))


def frequency_release_ms(state: ChipState, upgrade: Upgrade, policy: FrequencyPolicy) -> int | None:
    """Return when the code of ``upgrade`` is gone long enough (epoch ms); strictly greater.

    ``None`` while it holds, and if only an operator may release it.
    """
    if policy.release_ms is None:
        return None
    counter = state.counters.get(upgrade.code)
    if counter is None or not counter.recovered_ms:
        return None
    return counter.recovered_ms + policy.release_ms + 1


def release_by_frequency(
    state: ChipState, upgrade: Upgrade, policy: FrequencyPolicy, context: RuleContext
) -> ChipState:
    """Return ``state`` after the code of ``upgrade`` was gone long enough."""
    assert policy.release_ms is not None
    state = _expire_upgrade(state, upgrade, policy.release_ms, context)
    return replace(state, counters=without(state.counters, upgrade.code))


def counters_emptied(state: ChipState) -> ChipState:
    """Return ``state`` without counters, but for codes that are still upgraded."""
    upgraded = {upgrade.code for upgrade in state.upgrades if upgrade.kind == FAULT_FREQUENCY}
    # The counter of an upgraded code has the recovery by which its rule releases it.
    counters = {code: counter for code, counter in state.counters.items() if code in upgraded}
    return state if len(counters) == len(state.counters) else replace(state, counters=counters)


def _counters_configured(state: ChipState, context: RuleContext) -> ChipState:
    """Return ``state`` under new rules (device-plugin#3.4).

    Codes without a rule lose their counters, and the occurrences so far may be enough now.
    """
    policies = context.draft.tables.frequencies
    counters = {code: counter for code, counter in state.counters.items() if code in policies}
    if len(counters) != len(state.counters):
        state = replace(state, counters=counters)
    for code, counter in counters.items():
        if counter.occurred_ms and state.upgrade_of(code, FAULT_FREQUENCY) is None:
            # The episodes of occurrences that are over are not kept.
            origin = state.faults.get(code) or OccurrenceOrigin(
                code, context.episode(code), context.draft.tables.severity_of(code)
            )
            state = _counted(state, origin, counter, policies[code], context)
    return state


def _counter_adopted(state: ChipState, upgrade: Upgrade, at_ms: int) -> ChipState:
    """Return ``state`` with an ``upgrade`` of earlier: its code is gone since ``at_ms``, unless it
    holds.
    """
    fault = state.faults.get(upgrade.code)
    holds = fault is not None and not fault.once
    return _with_counter(
        state, upgrade.code, Counter((), upgrade.upgraded_at_ms, 0 if holds else at_ms)
    )


def _counted(
    state: ChipState,
    origin: Fault | Upgrade | OccurrenceOrigin,
    counter: Counter,
    policy: FrequencyPolicy,
    context: RuleContext,
) -> ChipState:
    """Return ``state`` with the occurrences of ``counter`` in the window, or with an upgrade.

    The upgrade is made if they are enough. The window is in whole seconds, its edge included.
    """
    # Upstream compares whole seconds; with milliseconds an occurrence at the edge would be lost.
    start_ms = (context.at_ms // 1000 - policy.window_seconds) * 1000
    recent = tuple(dropwhile(lambda at_ms: at_ms < start_ms, counter.occurred_ms))
    if not recent:
        return replace(state, counters=without(state.counters, origin.code))
    if len(recent) < policy.times:
        return _with_counter(state, origin.code, replace(counter, occurred_ms=recent))
    # Emptied, so that the same occurrences do not upgrade the code again after its release.
    state = _with_counter(state, origin.code, replace(counter, occurred_ms=()))
    because = (
        f"{origin.code} occurred {plural(len(recent), 'time')} within {policy.window_seconds} s "
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
    return add_upgrade(state, upgrade, context)


def _with_counter(state: ChipState, code: str, counter: Counter) -> ChipState:
    if state.counters.get(code) == counter:
        return state
    return replace(state, counters=state.counters | {code: counter})


# Upgrades of documents and new rules.


def _rule_of(tables: Catalogue, kind: str, code: str) -> DurationPolicy | FrequencyPolicy | None:
    """Return the rule of ``kind`` that names ``code``."""
    if kind == FAULT_DURATION:
        return tables.durations.get(code)
    return tables.frequencies.get(code) if kind == FAULT_FREQUENCY else None


def adopt_upgrade(state: SubjectState, item: Adopted, context: RuleContext) -> SubjectState:
    """Return ``state`` with an upgrade that no journal of ours has: its time stays, its rule ends
    it.

    An upgrade whose rule is not known stays as it is until the next configuration judges it, which
    may not have been read yet.
    """
    if not isinstance(state, ChipState) or state.upgrade_of(item.code, item.kind) is not None:
        return state
    rule = _rule_of(context.draft.tables, item.kind, item.code)
    level = item.level if rule is None else rule.level
    # It comes from a stored document, which an operator or another release may have written.
    if level not in _LEVELS or item.kind not in UPGRADE_TYPES:
        return state
    fault = state.faults.get(item.code)
    because = f"{item.code} was upgraded before ({item.kind})"
    if item.code == AUTOFILL_CODE:
        because = f"the stored document isolates it without a reason ({item.kind})"
        if item.request is not None:
            because = f"{item.request.by} (as stated) isolated it: {item.request.reason}"
    # ``gone_since_ms`` is set exactly while no lasting fault has the code (``StateMachine``).
    gone = item.kind == FAULT_DURATION and (fault is None or fault.once)
    upgrade = Upgrade(
        item.code,
        item.kind,
        ChipLevel(level),
        item.upgraded_at_ms,
        because,
        context.episode(item.code) if fault is None else fault.episode,
        context.draft.tables.severity_of(item.code) if fault is None else fault.severity,
        item.at_ms if gone else None,
        item.request,
    )
    state = add_upgrade(state, upgrade, context)
    # Only a counter has the recovery from which the release is counted.
    if item.kind == FAULT_FREQUENCY:
        state = _counter_adopted(state, upgrade, item.at_ms)
    return state


def release_by_operator(state: SubjectState, context: RuleContext) -> SubjectState:
    """Return ``state`` without the upgrades that separate the chip, and with new counters.

    Source: docs/spec/device-plugin.md#3.6.
    """
    if not isinstance(state, ChipState) or not state.isolated:
        return state
    for upgrade in state.upgrades:
        if upgrade.level is ChipLevel.MANUALLY_SEPARATE_NPU:
            because = "an operator took its name out of ManuallySeparateNPU"
            state = remove_upgrade(state, upgrade, because, context)
    return counters_emptied(state)


def judged_by_tables(state: SubjectState, context: RuleContext) -> SubjectState:
    """Return ``state`` under the tables of ``context``, which are in force since its time."""
    if isinstance(state, ChipState):
        for upgrade in state.upgrades:
            state = _upgrade_judged(state, upgrade, context)
        state = _counters_configured(state, context)
    return all_judged_again(state, "the fault configuration changed", context)


def _upgrade_judged(state: ChipState, upgrade: Upgrade, context: RuleContext) -> ChipState:
    """Return ``state`` after the rule of ``upgrade`` changed or was removed.

    The upgrade's time stays.
    """
    # No rule made it, so no new rule can change or remove it (device-plugin#3.7).
    if upgrade.kind == FAULT_AUTOFILL:
        return state
    rule = _rule_of(context.draft.tables, upgrade.kind, upgrade.code)
    if rule is None:
        because = f"no {upgrade.kind} rule names {upgrade.code} any more"
        state = remove_upgrade(state, upgrade, because, context)
        fault = state.faults.get(upgrade.code)
        if upgrade.kind == FAULT_DURATION and (fault is None or fault.once):
            # No rule will release it any more, so its recovery is counted now.
            state = with_recovery(state, upgrade.code, context.at_ms)
        return state
    if rule.level is upgrade.level:
        return state
    because = f"the {upgrade.kind} rule has another level now"
    return add_upgrade(state, replace(upgrade, level=rule.level), context, because)
