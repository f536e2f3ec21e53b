"""The rules that raise the level of a code of a chip: by duration, by frequency, by documents.

An upgrade is a reason why a code is at a level, whether it holds or not. Each rule is a pure
function of one chip: it adds an upgrade or removes one, and a fault of the code follows at once.

*Duration* (``docs/spec/device-plugin.md#3.5``, without its defects K15 and K43): a code that holds
too long has a higher level until it was gone long enough. There are no counters: the fault has the
time since which a code holds, the upgrade the time since which it is gone. So a new rule finds a
fault at its true age, and a restart changes nothing. Both comparisons are strictly greater, hence
each deadline is one millisecond behind its timeout.

*Frequency* (3.4, without its defects K13 and K14): a code that occurs too often has a higher level
until it is gone long enough. The beginning of an episode and a one-off event are occurrences; for a
code with a duration rule, its upgrade by that rule is. So two reports of the same event count once.

*Documents* (3.6, 3.7): upgrades that only a stored document has are adopted, an operator releases
them, and a new fault configuration judges all of them again (without the defects K33 and K51).
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
    Upgrade,
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
from contract.counted import counted

if TYPE_CHECKING:
    from agent.policy.transaction import RuleContext
    from contract.codes.catalogue import Catalogue
    from contract.codes.levels import Severity
    from contract.codes.policies import DurationPolicy, FrequencyPolicy

_LEVELS = frozenset(ChipLevel)
_NEVER = Counter()


def with_upgrade(known: ChipState, upgrade: Upgrade) -> ChipState:
    """Return ``known`` with ``upgrade`` in the place of the one of the same code and kind."""
    kept = [one for one in known.upgrades if (one.code, one.kind) != (upgrade.code, upgrade.kind)]
    upgrades = sorted([*kept, upgrade], key=lambda one: (one.code, one.kind))
    return replace(known, upgrades=tuple(upgrades))


def add_upgrade(
    known: ChipState, upgrade: Upgrade, context: RuleContext, because: str | None = None
) -> ChipState:
    """Return ``known`` with ``upgrade``, new or at another level, and record the change."""
    old = level_of(known, upgrade.code)
    known = judged_again(with_upgrade(known, upgrade), upgrade.code, context)
    new = level_of(known, upgrade.code)
    context.note(ChangeKind.UPGRADED, upgrade, because or upgrade.because, old, new)
    return known


def remove_upgrade(
    known: ChipState, upgrade: Upgrade, because: str, context: RuleContext
) -> ChipState:
    """Return ``known`` without ``upgrade``, and record the change."""
    old = level_of(known, upgrade.code)
    left = tuple(one for one in known.upgrades if one is not upgrade)
    known = judged_again(replace(known, upgrades=left), upgrade.code, context)
    context.note(ChangeKind.RELEASED, upgrade, because, old, level_of(known, upgrade.code))
    return known


def _expire_upgrade(
    known: ChipState, upgrade: Upgrade, timeout_ms: int, context: RuleContext
) -> ChipState:
    """Return ``known`` without ``upgrade``, whose code was gone for longer than ``timeout_ms``."""
    seconds = timeout_ms / 1000
    because = f"{upgrade.code} was gone for longer than {seconds:g} s ({upgrade.kind})"
    return remove_upgrade(known, upgrade, because, context)


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
    known: ChipState, fault: Fault, policy: DurationPolicy, context: RuleContext
) -> ChipState:
    """Return ``known`` after ``fault`` held too long, which a frequency rule counts as an
    occurrence.
    """
    seconds, since_ms = policy.fault_timeout_ms / 1000, fault.first_seen_ms
    upgrade = Upgrade(
        fault.code,
        FAULT_DURATION,
        policy.level,
        since_ms + policy.fault_timeout_ms,
        f"{fault.code} held for longer than {seconds:g} s ({FAULT_DURATION})",
        fault.episode,
        fault.severity,
    )
    known = add_upgrade(known, upgrade, context)
    return count_occurrence(known, upgrade, upgrade.upgraded_at_ms, context)


def release_by_duration(
    known: ChipState, upgrade: Upgrade, policy: DurationPolicy, context: RuleContext
) -> ChipState:
    """Return ``known`` after the code of ``upgrade`` was gone long enough.

    For a frequency rule that is the recovery of the code.
    """
    assert upgrade.gone_since_ms is not None
    known = _expire_upgrade(known, upgrade, policy.recover_timeout_ms, context)
    recovered_ms = upgrade.gone_since_ms + policy.recover_timeout_ms
    return with_recovery(known, upgrade.code, recovered_ms)


def with_gone_since(known: ChipState, code: str, at_ms: int | None) -> ChipState:
    """Return ``known`` with ``code`` gone since ``at_ms``; ``None``: it holds again."""
    if not known.upgrades:
        return known
    upgrade = known.upgrade_of(code, FAULT_DURATION)
    if upgrade is None or upgrade.gone_since_ms == at_ms:
        return known
    return with_upgrade(known, replace(upgrade, gone_since_ms=at_ms))


# The frequency rule.


class OccurrenceOrigin(NamedTuple):
    """The code that occurred, and the episode it belongs to, where no fault has them any more."""

    code: str
    episode: str
    severity: Severity | None


def count_occurrence(
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
        known = _with_counter(known, code, Counter((), at_ms))
        newest_ms = max(at_ms, upgrade.upgraded_at_ms)
        return with_upgrade(known, replace(upgrade, upgraded_at_ms=newest_ms))
    counter = known.counters.get(code, _NEVER)
    counter = Counter((*counter.occurred_ms, at_ms), at_ms)
    return _counted(known, origin, counter, policy, context)


def with_recovery(known: ChipState, code: str, at_ms: int) -> ChipState:
    """Return ``known`` with the code gone since ``at_ms``; 0: its recovery proved wrong."""
    counter = known.counters.get(code)
    if counter is None:
        return known
    return _with_counter(known, code, replace(counter, recovered_ms=at_ms))


def frequency_release_ms(known: ChipState, upgrade: Upgrade, policy: FrequencyPolicy) -> int | None:
    """Return when the code of ``upgrade`` is gone long enough (epoch ms); strictly greater.

    ``None`` while it holds, and if only an operator may release it.
    """
    if policy.release_ms is None:
        return None
    counter = known.counters.get(upgrade.code)
    if counter is None or not counter.recovered_ms:
        return None
    return counter.recovered_ms + policy.release_ms + 1


def release_by_frequency(
    known: ChipState, upgrade: Upgrade, policy: FrequencyPolicy, context: RuleContext
) -> ChipState:
    """Return ``known`` after the code of ``upgrade`` was gone long enough."""
    assert policy.release_ms is not None
    known = _expire_upgrade(known, upgrade, policy.release_ms, context)
    return replace(known, counters=without(known.counters, upgrade.code))


def counters_emptied(known: ChipState) -> ChipState:
    """Return ``known`` without counters, but for codes that are still upgraded."""
    upgraded = {upgrade.code for upgrade in known.upgrades if upgrade.kind == FAULT_FREQUENCY}
    left = {code: counter for code, counter in known.counters.items() if code in upgraded}
    return known if len(left) == len(known.counters) else replace(known, counters=left)


def _counters_configured(known: ChipState, context: RuleContext) -> ChipState:
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


def _counter_adopted(known: ChipState, upgrade: Upgrade, at_ms: int) -> ChipState:
    """Return ``known`` with an ``upgrade`` of earlier: its code is gone since ``at_ms``, unless it
    holds.
    """
    fault = known.faults.get(upgrade.code)
    holds = fault is not None and not fault.once
    return _with_counter(
        known, upgrade.code, Counter((), upgrade.upgraded_at_ms, 0 if holds else at_ms)
    )


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
        return _with_counter(known, origin.code, replace(counter, occurred_ms=recent))
    known = _with_counter(known, origin.code, replace(counter, occurred_ms=()))
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
    return add_upgrade(known, upgrade, context)


def _with_counter(known: ChipState, code: str, counter: Counter) -> ChipState:
    if known.counters.get(code) == counter:
        return known
    return replace(known, counters=known.counters | {code: counter})


# Upgrades of documents and new rules.


def _rule_of(tables: Catalogue, kind: str, code: str) -> DurationPolicy | FrequencyPolicy | None:
    """Return the rule of ``kind`` that names ``code``."""
    if kind == FAULT_DURATION:
        return tables.durations.get(code)
    return tables.frequencies.get(code) if kind == FAULT_FREQUENCY else None


def adopt_upgrade(known: SubjectState, item: Adopted, context: RuleContext) -> SubjectState:
    """Return ``known`` with an upgrade that no journal of ours has: its time stays, its rule ends
    it.

    An upgrade whose rule is not known stays as it is until the next configuration judges it, which
    may not have been read yet.
    """
    if not isinstance(known, ChipState) or known.upgrade_of(item.code, item.kind) is not None:
        return known
    rule = _rule_of(context.draft.tables, item.kind, item.code)
    level = item.level if rule is None else rule.level
    if level not in _LEVELS or item.kind not in UPGRADE_TYPES:
        return known
    fault = known.faults.get(item.code)
    because = f"{item.code} was upgraded before ({item.kind})"
    if item.code == AUTOFILL_CODE:
        because = f"the stored document isolates it without a reason ({item.kind})"
        if item.request is not None:
            because = f"{item.request.by} (as stated) isolated it: {item.request.reason}"
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
    known = add_upgrade(known, upgrade, context)
    if item.kind == FAULT_FREQUENCY:
        known = _counter_adopted(known, upgrade, item.at_ms)
    return known


def release_by_operator(known: SubjectState, context: RuleContext) -> SubjectState:
    """Return ``known`` without the upgrades that separate the chip, and with new counters.

    Source: docs/spec/device-plugin.md#3.6.
    """
    if not isinstance(known, ChipState) or not known.isolated:
        return known
    for upgrade in known.upgrades:
        if upgrade.level is ChipLevel.MANUALLY_SEPARATE_NPU:
            because = "an operator took its name out of ManuallySeparateNPU"
            known = remove_upgrade(known, upgrade, because, context)
    return counters_emptied(known)


def judged_by_tables(known: SubjectState, context: RuleContext) -> SubjectState:
    """Return ``known`` under the tables of ``context``, which are in force since its time."""
    if isinstance(known, ChipState):
        for upgrade in known.upgrades:
            known = _upgrade_judged(known, upgrade, context)
        known = _counters_configured(known, context)
    return all_judged_again(known, "the fault configuration changed", context)


def _upgrade_judged(known: ChipState, upgrade: Upgrade, context: RuleContext) -> ChipState:
    """Return ``known`` after the rule of ``upgrade`` changed or was removed.

    The upgrade's time stays.
    """
    if upgrade.kind == FAULT_AUTOFILL:
        return known
    rule = _rule_of(context.draft.tables, upgrade.kind, upgrade.code)
    if rule is None:
        because = f"no {upgrade.kind} rule names {upgrade.code} any more"
        known = remove_upgrade(known, upgrade, because, context)
        fault = known.faults.get(upgrade.code)
        if upgrade.kind == FAULT_DURATION and (fault is None or fault.once):
            known = with_recovery(known, upgrade.code, context.at_ms)
        return known
    if rule.level is upgrade.level:
        return known
    because = f"the {upgrade.kind} rule has another level now"
    return add_upgrade(known, replace(upgrade, level=rule.level), context, because)
