"""What happened in a gap of the journal, as far as the states before and after show it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.observation import Assertion, Observation, SourceAnswered, SourceBlind

if TYPE_CHECKING:
    from agent.policy.state import Fault, PolicyState
    from agent.policy.step import Input
    from contract.observation import Subject


def inputs_between(before: PolicyState, after: PolicyState, at_ms: int) -> list[Input]:
    """Return inputs that lead from ``before`` to the faults of ``after``, all of them at ``at_ms``.

    Their effects on rules remain: they are counted and judged like any other inputs.
    """
    known = dict(before.subjects())
    now = dict(after.subjects())
    inputs: list[Input] = []
    for subject in {**known, **now}:
        one, other = before.of(subject), after.of(subject)
        inputs += (
            _observation(subject, fault, Assertion.RECOVER, at_ms)
            for code, fault in one.faults.items()
            if code not in other.faults
        )
        inputs += (
            _observation(subject, fault, Assertion.ONCE if fault.once else Assertion.OCCUR, at_ms)
            for code, fault in other.faults.items()
            if code not in one.faults
        )
        inputs += (
            SourceAnswered(source, subject, at_ms)
            for source in other.answered
            if source not in one.answered or (source in one.blind and source not in other.blind)
        )
        inputs += (
            SourceBlind(source, subject, blindness.since_ms, blindness.reason)
            for source, blindness in other.blind.items()
            if source not in one.blind
        )
    return inputs


def _observation(subject: Subject, fault: Fault, assertion: Assertion, at_ms: int) -> Observation:
    return Observation(
        fault.source, subject, fault.code, assertion, at_ms, fault.severity, fault.raised_at_ms
    )
