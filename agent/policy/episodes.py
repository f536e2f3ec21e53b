"""The episodes that an observation begins, changes or ends.

The same for chips, switch ports and parts of the server; only the judgement differs. Levels come
from the catalogue (``device-plugin#2.4`` and 2.7, without the defects K07, K08 and K10).
"""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from agent.policy import associations, durations, frequencies, link_faults
from agent.policy.event_order import is_another, is_before, is_over, is_recent
from agent.policy.state import (
    CHIP_SOURCE,
    LINK_SOURCE,
    ChangeKind,
    ChipState,
    Ended,
    Fault,
    SubjectState,
)
from agent.policy.transaction import RuleContext, Transaction, level_of, without
from contract.codes.chip_codes import HBM_MULTI_BIT, RESET_FINISHED
from contract.observation import Assertion, Observation

S = TypeVar("S", SubjectState, ChipState)


def observed(known: SubjectState, item: Observation, draft: Transaction) -> SubjectState:
    """Return the state after the observation ``item``; the same object if nothing changed."""
    if item.code == RESET_FINISHED and item.subject.kind == "chip":
        return known  # it asks for an audit; it is no fault
    if isinstance(known, ChipState) and associations.concerns(item, draft.tables):
        if associations.is_held_back(known, item):
            return associations.held_back(known, item)
        known = _associated(known, item, draft)
    return _asserted(known, item, draft)


def begin_held_back(known: ChipState, code: str, draft: Transaction) -> ChipState:
    """Return ``known`` after an occurrence of ``code`` that was held back begins with its own
    time.
    """
    item = known.held_back[code]
    after = _asserted(associations.without_held_back(known, code), item, draft)
    assert isinstance(after, ChipState)
    return after


def end(
    known: S, fault: Fault, because: str, context: RuleContext, gone_ms: int | None = None
) -> S:
    """Return ``known`` without ``fault``, and with the effect of that on the rules.

    A lasting one is gone since ``gone_ms``, or else since the time of ``context``.
    """
    code = fault.code
    known = replace(known, faults=without(known.faults, code))
    if isinstance(known, ChipState):
        gone_ms = context.at_ms if gone_ms is None else gone_ms
        if not fault.once:
            known = durations.gone_since(known, code, gone_ms)
        if code not in context.draft.tables.durations:
            known = frequencies.recovered(known, code, gone_ms)
    context.note(ChangeKind.ENDED, fault, because, fault.level, level_of(known, code))
    return known


def _associated(known: ChipState, item: Observation, draft: Transaction) -> ChipState:
    """Return ``known`` before ``item`` is applied, which may explain or end what is held back.

    An occurrence that ended while it was held back begins and ends, as any other one.
    """
    if item.code in known.held_back:
        return begin_held_back(known, item.code, draft)
    if item.code == HBM_MULTI_BIT and item.assertion not in (Assertion.RECOVER, Assertion.ABSENT):
        return associations.without_explained(known, item.seen_at_ms)
    return known


def _asserted(known: SubjectState, item: Observation, draft: Transaction) -> SubjectState:
    context = RuleContext(item.subject, item.seen_at_ms, draft)
    return _ASSERTED[item.assertion](known, known.faults.get(item.code), item, context)


def _absent(
    known: SubjectState, held: Fault | None, item: Observation, context: RuleContext
) -> SubjectState:
    """Remove one source of a fault; without any source the fault ends, unless it outlasts that."""
    if held is None or held.once:
        return known
    waits = not held.reported_by and held.unconfirmed_at_ms is None
    if item.source not in held.reported_by and not (waits and item.source == LINK_SOURCE):
        return known
    left = tuple(source for source in held.reported_by if source != item.source)
    if not left and not link_faults.outlasts_list(known, item):
        return end(known, held, "its source does not list it any more", context)
    unconfirmed_at_ms = held.unconfirmed_at_ms
    is_tool_blind = link_faults.is_tool_blind(known, context.draft.state)
    if not left and unconfirmed_at_ms is None and not is_tool_blind:
        unconfirmed_at_ms = item.seen_at_ms
    held = replace(held, sources=left, unconfirmed_at_ms=unconfirmed_at_ms)
    return replace(known, faults=known.faults | {held.code: held})


def _occur(
    known: SubjectState, held: Fault | None, item: Observation, context: RuleContext
) -> SubjectState:
    if held is not None:
        if is_before(item, held.serial, held.raised_at_ms):
            return known
        newest = replace(held, serial=item.serial, raised_at_ms=item.driver_raised_at_ms)
        if item.severity is not None:
            newest = replace(newest, severity=item.severity)
        return _update(known, held, newest, item, "occurred", context)
    ended = known.ended.get(item.code)
    if ended is not None and is_over(item, ended):
        if ended.fault is not None:
            return known  # reported twice, once after its recovery
        fault = _new_fault(known, item, context)
        context.note(ChangeKind.BEGAN, fault, fault.because, None, fault.level)
        because = "its recovery was reported before it"
        known = _occurred(known, fault, context)
        if isinstance(known, ChipState) and fault.code not in context.draft.tables.durations:
            known = frequencies.recovered(known, fault.code, item.seen_at_ms)
        context.note(ChangeKind.ENDED, fault, because, fault.level, level_of(known, item.code))
        return replace(known, ended=known.ended | {item.code: replace(ended, fault=fault)})
    return _begin(known, _new_fault(known, item, context), context)


def _once(
    known: SubjectState, held: Fault | None, item: Observation, context: RuleContext
) -> SubjectState:
    if held is None:
        return _begin(known, replace(_new_fault(known, item, context), once=True), context)
    is_new = held.once and is_another(item, held)
    because = "a one-off event of a code that holds already"
    if is_new:
        because = "a one-off event, while the one before it was still shown"
    context.note(ChangeKind.REPEATED, held, because, held.level, held.level)
    if not is_new:
        return known
    # It counts, and is shown like the one before it.
    fault = replace(
        held,
        serial=item.serial,
        raised_at_ms=item.driver_raised_at_ms,
        revision=context.draft.revision + 1,
        acknowledged_at_ms=None,
    )
    known = replace(known, faults=known.faults | {held.code: fault})
    return _occurred(known, fault, context)


def _present(
    known: SubjectState, held: Fault | None, item: Observation, context: RuleContext
) -> SubjectState:
    if held is not None:
        seen = held if item.subject.kind != "host" else replace(held, serial=item.serial)
        return _update(known, held, seen, item, f"is {_found_by(item)}", context)
    ended = known.ended.get(item.code)
    was_over = item.anew or ended is None or not is_recent(ended, item.seen_at_ms)
    if was_over or ended is None or ended.fault is None:
        return _begin(known, _new_fault(known, item, context), context)
    fault = ended.fault
    verdict = context.judge(known, fault.code, fault.severity)
    fault = replace(
        fault,
        level=verdict.level,
        because=verdict.because,
        serial=item.serial if item.subject.kind == "host" else fault.serial,
        revision=context.draft.revision + 1,
        sources=_stored_sources(fault, (item.source,)),
    )
    because = f"{item.code} was reported recovered and is still {_found_by(item)}"
    old = level_of(known, item.code)
    context.note(ChangeKind.RETURNED, fault, because, old, fault.level)
    faults, ended_left = known.faults | {item.code: fault}, without(known.ended, item.code)
    known = _there(replace(known, faults=faults, ended=ended_left), item.code)
    return frequencies.recovered(known, item.code, 0) if isinstance(known, ChipState) else known


def _recover(
    known: SubjectState, held: Fault | None, item: Observation, context: RuleContext
) -> SubjectState:
    if held is None:
        ended = known.ended.get(item.code)
        if ended is not None and is_recent(ended, item.seen_at_ms):
            return known
        return replace(known, ended=_remember(known, item, None))
    if held.once:
        return known
    if is_before(item, held.serial, held.raised_at_ms):
        if held.unconfirmed_at_ms is not None:
            return known
        unconfirmed = replace(held, unconfirmed_at_ms=item.seen_at_ms)
        return replace(known, faults=known.faults | {held.code: unconfirmed})
    because = "the driver reported its recovery"
    known = end(known, held, because, context)
    return replace(known, ended=_remember(known, item, held))


def _found_by(item: Observation) -> str:
    return "listed by the driver" if item.source == CHIP_SOURCE else f"found by {item.source}"


def _stored_sources(fault: Fault, sources: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return ``sources`` as the member of ``fault`` has them: ``None`` for its own source alone."""
    return None if sources == (fault.source,) else sources


def _there(known: SubjectState, code: str) -> SubjectState:
    return durations.gone_since(known, code, None) if isinstance(known, ChipState) else known


def _new_fault(known: SubjectState, item: Observation, context: RuleContext) -> Fault:
    """Return the first state of a fault's episode.

    A severity that a poll reports for a chip does not count. One from a document does, for a chip
    that has not answered yet and a code that no table has.
    """
    severity = item.severity
    if item.subject.kind == "chip":
        if item.assertion is Assertion.PRESENT and not _is_remembered(known, item, context):
            severity = None
        if severity is None:
            severity = context.draft.tables.severity_of(item.code)
    verdict = context.judge(known, item.code, severity)
    return Fault(
        code=item.code,
        episode=context.episode(item.code),
        source=item.source,
        level=verdict.level,
        because=verdict.because,
        first_seen_ms=item.seen_at_ms,
        revision=context.draft.revision + 1,
        severity=severity,
        raised_at_ms=item.driver_raised_at_ms,
        serial=item.serial,
    )


def _is_remembered(known: SubjectState, item: Observation, context: RuleContext) -> bool:
    is_silent = isinstance(known, ChipState) and known.silent
    return is_silent and item.code not in context.draft.tables.chip_levels


def _begin(known: SubjectState, fault: Fault, context: RuleContext) -> SubjectState:
    old = level_of(known, fault.code)
    context.note(ChangeKind.BEGAN, fault, fault.because, old, fault.level)
    known = replace(known, faults=known.faults | {fault.code: fault})
    if not fault.once:
        known = _there(known, fault.code)
    return _occurred(known, fault, context)


def _occurred(known: SubjectState, fault: Fault, context: RuleContext) -> SubjectState:
    """Count the beginning of an episode for a frequency rule, unless the code has a duration
    rule.
    """
    if fault.code in context.draft.tables.durations or not isinstance(known, ChipState):
        return known
    return frequencies.occurred(known, fault, context.at_ms, context)


def _update(
    known: SubjectState,
    held: Fault,
    seen: Fault,
    item: Observation,
    what: str,
    context: RuleContext,
) -> SubjectState:
    """Apply another observation of a code that holds: confirmed, perhaps with a new severity or
    source.
    """
    reported_by = () if held.once else held.reported_by
    if item.source not in reported_by:
        reported_by = (*reported_by, item.source)
    fault = replace(
        seen,
        once=False,
        acknowledged_at_ms=None,
        unconfirmed_at_ms=None,
        sources=_stored_sources(held, reported_by),
    )
    if fault == held:
        return known
    if fault.severity != held.severity:
        verdict = context.judge(known, fault.code, fault.severity)
        fault = replace(fault, level=verdict.level, because=verdict.because)
    if fault.level != held.level or fault.severity != held.severity or held.once:
        because = f"a one-off event before, it {what}" if held.once else fault.because
        context.note(ChangeKind.CHANGED, fault, because, held.level, fault.level)
    return _there(replace(known, faults=known.faults | {fault.code: fault}), fault.code)


def _remember(known: SubjectState, item: Observation, fault: Fault | None) -> dict[str, Ended]:
    """Return the recent recoveries with this one, without those that have no effect any more.

    They are in order of time, so the old ones are in front: a flood has hundreds of them.
    """
    kept = without(known.ended, item.code)
    kept[item.code] = Ended(item.seen_at_ms, fault, item.driver_raised_at_ms, item.serial)
    while not is_recent(kept[(oldest := next(iter(kept)))], item.seen_at_ms):
        del kept[oldest]
    return kept


_ASSERTED = {
    Assertion.OCCUR: _occur,
    Assertion.ONCE: _once,
    Assertion.PRESENT: _present,
    Assertion.RECOVER: _recover,
    Assertion.ABSENT: _absent,
}
