"""What time alone changes: when, and what then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from agent import durations, frequencies, upgrades
from agent.draft import Draft, without
from agent.ending import end
from agent.event_order import RETURN_WINDOW_MS
from agent.state import ChipState, Ended, Fault, SubjectState
from contract.policies import (
    AUTOFILL_CODE,
    FAULT_AUTOFILL,
    FAULT_DURATION,
    FAULT_FREQUENCY,
    longest_release_ms,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from contract.catalogue import Catalogue
    from contract.observation import Subject

ONCE_VISIBLE_MS = 5_000
"""How long a one-off fault stays after a store acknowledged it, so that no reader can miss it."""


DOUBT_MS = 6_000
"""How long an audit has to confirm a fault whose recovery looked older than its occurrence, and the
tool one that the driver does not list. Both are asked 2 s after the last event and answer within
2 s."""


def _end_ms(fault: Fault | None) -> int | None:
    """When time alone ends ``fault``."""
    if fault is None:
        return None
    if fault.once:
        at_ms, wait_ms = fault.acknowledged_at_ms, ONCE_VISIBLE_MS
    else:
        at_ms, wait_ms = fault.doubted_at_ms, DOUBT_MS
    return None if at_ms is None else at_ms + wait_ms


def due_ms_of(known: SubjectState, code: str, tables: Catalogue, settled_ms: int) -> int | None:
    """When time alone changes what is known of ``code``; rules wait until ``settled_ms``.

    What is no chip is forgotten when its recovery cannot matter any more: there are hundreds of
    switch ports, and each would be looked at with every event for ever.
    """
    end_ms = _end_ms(known.faults.get(code))
    if not isinstance(known, ChipState):
        ended = known.ended.get(code)
        if ended is None:
            return end_ms
        forget_ms = ended.at_ms + RETURN_WINDOW_MS
        return forget_ms if end_ms is None else min(end_ms, forget_ms)
    rule = _rule_due(known, code, tables)
    if rule is None:
        return end_ms
    rule_ms = max(rule[0], settled_ms)
    return rule_ms if end_ms is None else min(end_ms, rule_ms)


def _rule_due(known: ChipState, code: str, tables: Catalogue) -> tuple[int, str] | None:
    """When time alone makes a rule for ``code`` act next, and of which kind that rule is."""
    policy = tables.durations.get(code)
    if policy is None and not known.upgrades:
        return None
    dues = []
    if policy is not None:
        dues.append((durations.due_ms(known, code, policy), FAULT_DURATION))
    frequency = tables.frequencies.get(code)
    upgrade = known.upgrade_of(code, FAULT_FREQUENCY)
    if frequency is not None and upgrade is not None:
        dues.append((frequencies.due_ms(known, upgrade, frequency), FAULT_FREQUENCY))
    if code == AUTOFILL_CODE:
        dues.append((_autofill_due_ms(known, tables), FAULT_AUTOFILL))
    return min(((due, kind) for due, kind in dues if due is not None), default=None)


def _autofill_due_ms(known: ChipState, tables: Catalogue) -> int | None:
    """An isolation without a known reason ends with the last one that any rule could give (3.6)."""
    upgrade, release_ms = (
        known.upgrade_of(AUTOFILL_CODE, FAULT_AUTOFILL),
        longest_release_ms(tables.frequencies.values()),
    )
    if upgrade is None or release_ms is None:
        return None
    return upgrade.upgraded_at_ms + release_ms + 1


def _next_due(known: SubjectState, tables: Catalogue, settled_ms: int) -> tuple[int, str] | None:
    """What time alone changes next of one subject: when, and which code."""
    codes = set(known.faults)
    if isinstance(known, ChipState):
        codes.update(upgrade.code for upgrade in known.upgrades)
    else:
        codes.update(known.ended)
    dues = ((due_ms_of(known, code, tables, settled_ms), code) for code in codes)
    return min(((due, code) for due, code in dues if due is not None), default=None)


def deadline_ms_of(
    subjects: Iterable[SubjectState], tables: Catalogue, settled_ms: int
) -> int | None:
    """When time alone changes anything; ``None`` for never."""
    dues = (_next_due(known, tables, settled_ms) for known in subjects)
    return min((due[0] for due in dues if due is not None), default=None)


def expire(
    subjects: Mapping[Subject, SubjectState], now_ms: int, draft: Draft, since_ms: int = 0
) -> dict[Subject, SubjectState]:
    """Let all that time alone changes happen, up to ``now_ms``, and nothing before ``since_ms``."""
    left = dict(subjects)
    for subject, known in subjects.items():
        while (
            due := _next_due(known, draft.tables, draft.state.settled_at_ms)
        ) is not None and due[0] <= now_ms:
            due_ms, code = due
            fault = known.faults.get(code)
            if fault is not None and _end_ms(fault) == due_ms:
                known = _end_by_time(known, subject, fault, due_ms, draft)
            elif not isinstance(known, ChipState):
                known = replace(known, ended=without(known.ended, code))
            else:
                known = _apply_rule(known, subject, code, max(due_ms, since_ms), draft)
        left[subject] = known
    return left


def _end_by_time(
    known: SubjectState, subject: Subject, fault: Fault, at_ms: int, draft: Draft
) -> SubjectState:
    """End a one-off fault that every reader had time to see, or a doubt that nothing cleared."""
    if fault.once:
        because = "a one-off event, published long enough to be seen"
        return end(known, subject, fault, at_ms, because, draft)
    because = "its recovery looked older than it, but no audit found it since"
    if not fault.said_by:
        because = "the driver does not list it, and nobody else found it since"
    gone_ms = fault.doubted_at_ms
    known = end(known, subject, fault, at_ms, because, draft, gone_ms)
    if not fault.said_by:
        return known
    ended = Ended(at_ms, replace(fault, doubted_at_ms=None))
    return replace(known, ended=known.ended | {fault.code: ended})


def _apply_rule(
    known: ChipState, subject: Subject, code: str, at_ms: int, draft: Draft
) -> ChipState:
    """The rule for ``code`` that is due upgrades or releases it."""
    due = _rule_due(known, code, draft.tables)
    assert due is not None
    kind = due[1]
    if kind == FAULT_DURATION:
        return durations.apply(known, subject, code, draft.tables.durations[code], at_ms, draft)
    upgrade = known.upgrade_of(code, kind)
    assert upgrade is not None
    if kind == FAULT_FREQUENCY:
        policy = draft.tables.frequencies[code]
        return frequencies.release(known, subject, upgrade, policy, at_ms, draft)
    because = "an isolation without a known reason ends as the last one that any rule could give"
    return upgrades.take(known, subject, upgrade, at_ms, because, draft)
