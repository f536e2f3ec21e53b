"""What happens when time alone changes something."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from agent.policy import durations, frequencies, upgrades
from agent.policy.due_times import ENDS, FORGOTTEN, LET_GO, Due, next_due
from agent.policy.ending import end
from agent.policy.episodes import let_go
from agent.policy.state import ChipState, Ended, Fault, SubjectState
from agent.policy.transaction import Transaction, without
from contract.codes.policies import FAULT_DURATION, FAULT_FREQUENCY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from contract.observation import Subject


def expire(
    subjects: Mapping[Subject, SubjectState], now_ms: int, draft: Transaction, since_ms: int = 0
) -> dict[Subject, SubjectState]:
    """Return ``subjects`` after all changes by time up to ``now_ms``, none dated before
    ``since_ms``.
    """
    left = dict(subjects)
    for subject, known in subjects.items():
        while True:
            due = next_due(known, draft.tables, draft.state.settled_at_ms)
            if due is None or due.at_ms > now_ms:
                break
            if due.what == ENDS:
                known = _end_by_time(known, subject, known.faults[due.code], due.at_ms, draft)
            elif due.what == FORGOTTEN:
                known = replace(known, ended=without(known.ended, due.code))
            elif due.what == LET_GO:
                assert isinstance(known, ChipState)
                known = let_go(known, due.code, draft)
                draft.revision += 1  # as its report would have done
            else:
                assert isinstance(known, ChipState)
                known = _apply_rule(known, subject, due, max(due.at_ms, since_ms), draft)
        left[subject] = known
    return left


def _end_by_time(
    known: SubjectState, subject: Subject, fault: Fault, at_ms: int, draft: Transaction
) -> SubjectState:
    """End a one-off fault that every reader could see, or an unconfirmed one that stayed so."""
    if fault.once:
        because = "a one-off event, published long enough to be seen"
        return end(known, subject, fault, at_ms, because, draft)
    because = "its recovery looked older than it, but no audit has found it since"
    if not fault.reported_by:
        because = "the driver does not list it, and no other source has found it since"
    gone_ms = fault.unconfirmed_at_ms
    known = end(known, subject, fault, at_ms, because, draft, gone_ms)
    if not fault.reported_by:
        return known
    ended = Ended(at_ms, replace(fault, unconfirmed_at_ms=None))
    return replace(known, ended=known.ended | {fault.code: ended})


def _apply_rule(
    known: ChipState, subject: Subject, due: Due, at_ms: int, draft: Transaction
) -> ChipState:
    """Return ``known`` after the rule that is due upgraded or released its code."""
    tables, upgrade = draft.tables, known.upgrade_of(due.code, due.what)
    if due.what == FAULT_DURATION:
        policy, fault = tables.durations[due.code], known.faults.get(due.code)
        if upgrade is not None:
            return durations.release(known, subject, upgrade, policy, at_ms, draft)
        assert fault is not None
        return durations.upgrade(known, subject, fault, policy, at_ms, draft)
    assert upgrade is not None
    if due.what == FAULT_FREQUENCY:
        frequency = tables.frequencies[due.code]
        return frequencies.release(known, subject, upgrade, frequency, at_ms, draft)
    because = "an isolation without a known reason ends as the last one that any rule could give"
    return upgrades.remove(known, subject, upgrade, at_ms, because, draft)
