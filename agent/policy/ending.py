"""The end of a fault, and its effect on the rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from agent.policy import durations, frequencies
from agent.policy.state import ChangeKind, ChipState
from agent.policy.transaction import level_of, without

if TYPE_CHECKING:
    from agent.policy.state import Fault, SubjectState
    from agent.policy.transaction import Transaction
    from contract.observation import Subject


def end(
    known: SubjectState,
    subject: Subject,
    fault: Fault,
    at_ms: int,
    because: str,
    draft: Transaction,
    gone_ms: int | None = None,
) -> SubjectState:
    """Return ``known`` without ``fault``.

    A lasting one is gone since ``gone_ms``, or else ``at_ms``.
    """
    code = fault.code
    known = replace(known, faults=without(known.faults, code))
    if isinstance(known, ChipState):
        gone_ms = at_ms if gone_ms is None else gone_ms
        if not fault.once:
            known = durations.gone(known, code, gone_ms)
        if code not in draft.tables.durations:
            known = frequencies.recovered(known, code, gone_ms)
    kept = level_of(known, fault.code)
    draft.note(ChangeKind.ENDED, subject, fault, at_ms, because, fault.level, kept)
    return known
