"""The episodes of faults that an observation begins, changes or ends.

The same for chips, switch ports and parts of the server; only the judgement differs. Levels come
from the catalogue (``docs/spec/device-plugin.md#2.4`` and 2.7, without the defects K07, K08 and
K10). Three things make it more than "occurred" and "recovered":

*Order.* The driver's events may arrive in another order than it made them. A recovery has the
serial number of its occurrence (``docs/spec/dcmi.md#5.2``); for a driver that fills in neither
serial nor time, the order of arrival counts.

*Associations.* Bus errors of the cores around a multi-bit error of the memory are explained by it.
Only while a duration rule names the memory's code, an occurrence of a core's code is held back for
5 s. If the memory's code occurs on that chip less than 5 s before or after it, the occurrence is
dropped; otherwise it begins late, with its own time. Faults that hold already, and every recovery,
are not affected (without defect K37).

*Links.* The driver and ``hccn_tool`` report them. A driver with link events that does not list the
link does not end the fault while the tool may find the link down: for a moment, or until a blind
tool answers again. A driver without events knows of a link by its list alone, and such chips have
no network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

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
from agent.policy.upgrade_rules import count_occurrence, with_gone_since, with_recovery
from contract.codes.chip_codes import (
    AIC_BUS,
    AIV_BUS,
    HBM_MULTI_BIT,
    RESET_FINISHED,
    UB_PORT_DOWN,
    is_network,
)
from contract.observation import NODE, Assertion, Observation

if TYPE_CHECKING:
    from agent.policy.state import PolicyState
    from contract.codes.catalogue import Catalogue

S = TypeVar("S", SubjectState, ChipState)


def observed(known: SubjectState, item: Observation, draft: Transaction) -> SubjectState:
    """Return the state after the observation ``item``; the same object if nothing changed."""
    if item.code == RESET_FINISHED and item.subject.kind == "chip":
        return known  # it asks for an audit; it is no fault
    if isinstance(known, ChipState) and _concerns_association(item, draft.tables):
        if _is_held_back(known, item):
            return _held_back(known, item)
        known = _associated(known, item, draft)
    return _asserted(known, item, draft)


def begin_held_back(known: ChipState, code: str, draft: Transaction) -> ChipState:
    """Return ``known`` after an occurrence of ``code`` that was held back begins with its own
    time.
    """
    item = known.held_back[code]
    after = _asserted(_without_held_back(known, code), item, draft)
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
            known = with_gone_since(known, code, gone_ms)
        if code not in context.draft.tables.durations:
            known = with_recovery(known, code, gone_ms)
    context.note(ChangeKind.ENDED, fault, because, fault.level, level_of(known, code))
    return known


def _associated(known: ChipState, item: Observation, draft: Transaction) -> ChipState:
    """Return ``known`` before ``item`` is applied, which may explain or end what is held back.

    An occurrence that ended while it was held back begins and ends, as any other one.
    """
    if item.code in known.held_back:
        return begin_held_back(known, item.code, draft)
    if item.code == HBM_MULTI_BIT and item.assertion not in (Assertion.RECOVER, Assertion.ABSENT):
        return _without_explained(known, item.seen_at_ms)
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
    if not left and not _outlasts_list(known, item):
        return end(known, held, "its source does not list it any more", context)
    unconfirmed_at_ms = held.unconfirmed_at_ms
    is_tool_blind = _is_tool_blind(known, context.draft.state)
    if not left and unconfirmed_at_ms is None and not is_tool_blind:
        unconfirmed_at_ms = item.seen_at_ms
    held = replace(held, sources=left, unconfirmed_at_ms=unconfirmed_at_ms)
    return replace(known, faults=known.faults | {held.code: held})


def _occur(
    known: SubjectState, held: Fault | None, item: Observation, context: RuleContext
) -> SubjectState:
    if held is not None:
        if _is_before(item, held.serial, held.raised_at_ms):
            return known
        newest = replace(held, serial=item.serial, raised_at_ms=item.driver_raised_at_ms)
        if item.severity is not None:
            newest = replace(newest, severity=item.severity)
        return _update(known, held, newest, item, "occurred", context)
    ended = known.ended.get(item.code)
    if ended is not None and _is_over(item, ended):
        if ended.fault is not None:
            return known  # reported twice, once after its recovery
        fault = _new_fault(known, item, context)
        context.note(ChangeKind.BEGAN, fault, fault.because, None, fault.level)
        because = "its recovery was reported before it"
        known = _occurred(known, fault, context)
        if isinstance(known, ChipState) and fault.code not in context.draft.tables.durations:
            known = with_recovery(known, fault.code, item.seen_at_ms)
        context.note(ChangeKind.ENDED, fault, because, fault.level, level_of(known, item.code))
        return replace(known, ended=known.ended | {item.code: replace(ended, fault=fault)})
    return _begin(known, _new_fault(known, item, context), context)


def _once(
    known: SubjectState, held: Fault | None, item: Observation, context: RuleContext
) -> SubjectState:
    if held is None:
        return _begin(known, replace(_new_fault(known, item, context), once=True), context)
    is_new = held.once and _is_another(item, held)
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
    was_over = item.anew or ended is None or not _is_recent(ended, item.seen_at_ms)
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
    return with_recovery(known, item.code, 0) if isinstance(known, ChipState) else known


def _recover(
    known: SubjectState, held: Fault | None, item: Observation, context: RuleContext
) -> SubjectState:
    if held is None:
        ended = known.ended.get(item.code)
        if ended is not None and _is_recent(ended, item.seen_at_ms):
            return known
        return replace(known, ended=_remember(known, item, None))
    if held.once:
        return known
    if _is_before(item, held.serial, held.raised_at_ms):
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
    return with_gone_since(known, code, None) if isinstance(known, ChipState) else known


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
    return count_occurrence(known, fault, context.at_ms, context)


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
    while not _is_recent(kept[(oldest := next(iter(kept)))], item.seen_at_ms):
        del kept[oldest]
    return kept


_ASSERTED = {
    Assertion.OCCUR: _occur,
    Assertion.ONCE: _once,
    Assertion.PRESENT: _present,
    Assertion.RECOVER: _recover,
    Assertion.ABSENT: _absent,
}


# The order of the driver's events.


RETURN_WINDOW_MS = 10_000
"""Milliseconds after a recovery in which an audit may find that it was none.

A recovery is kept as long, because its own occurrence may arrive after it.
"""


def _is_before(item: Observation, serial: int | None, raised_at_ms: int | None) -> bool:
    """Return whether the driver made ``item`` before the occurrence with these numbers.

    Where serial and time disagree, the order of arrival counts.
    """
    earlier = later = False
    if item.driver_raised_at_ms is not None and raised_at_ms is not None:
        earlier = item.driver_raised_at_ms < raised_at_ms
        later = item.driver_raised_at_ms > raised_at_ms
    if item.serial and serial:
        return item.serial < serial and not later
    return earlier


def _is_another(item: Observation, held: Fault) -> bool:
    """Return whether ``item`` is a later event than the one behind ``held``, not the same one
    again.

    A driver without numbers and times cannot be distinguished from one that repeats itself.
    """
    if _is_before(item, held.serial, held.raised_at_ms):
        return False
    return (item.serial, item.driver_raised_at_ms) != (held.serial, held.raised_at_ms)


def _is_over(item: Observation, ended: Ended) -> bool:
    """Return whether ``item`` is the occurrence whose recovery ``ended`` arrived before it."""
    if not _is_recent(ended, item.seen_at_ms):
        return False
    if item.driver_raised_at_ms is None or ended.raised_at_ms is None:
        return False
    paired = not item.serial or not ended.serial or item.serial <= ended.serial
    return paired and item.driver_raised_at_ms < ended.raised_at_ms


def _is_recent(ended: Ended, at_ms: int) -> bool:
    """Return whether a recovery still counts at ``at_ms``."""
    return at_ms - ended.at_ms < RETURN_WINDOW_MS


# Faults that another one explains.


_ASSOCIATION_MS = 5_000

_EXPLAINED = frozenset({AIC_BUS, AIV_BUS})
_ENDS = frozenset({Assertion.RECOVER, Assertion.ABSENT})


def _concerns_association(item: Observation, tables: Catalogue) -> bool:
    """Return whether ``item`` is about a code that explains others or is explained."""
    return (
        item.code in _EXPLAINED or item.code == HBM_MULTI_BIT
    ) and HBM_MULTI_BIT in tables.durations


def held_back_until_ms(held: Observation) -> int:
    """Return when nothing can explain ``held`` any more (epoch ms).

    That is strictly more than 5 s later.
    """
    return held.seen_at_ms + _ASSOCIATION_MS + 1


def _is_held_back(known: ChipState, item: Observation) -> bool:
    """Return whether ``item`` is an occurrence that has to wait for what may explain it."""
    return item.code in _EXPLAINED and item.assertion not in _ENDS and item.code not in known.faults


def _held_back(known: ChipState, item: Observation) -> ChipState:
    """Return ``known`` after ``item`` was held back, or dropped because it is explained already.

    An occurrence that is reported twice is held back once.
    """
    waits = known.held_back.get(item.code)
    if waits is not None and (
        waits.assertion is not Assertion.ONCE or item.assertion is Assertion.ONCE
    ):
        return known
    if _is_explained(known, item):
        return known
    return replace(known, held_back=known.held_back | {item.code: item})


def _without_explained(known: ChipState, at_ms: int) -> ChipState:
    """Return ``known`` after the memory's code occurred at ``at_ms``, without what that
    explains.
    """
    left = {
        code: item
        for code, item in known.held_back.items()
        if abs(at_ms - item.seen_at_ms) >= _ASSOCIATION_MS
    }
    return known if len(left) == len(known.held_back) else replace(known, held_back=left)


def _without_held_back(known: ChipState, code: str) -> ChipState:
    """Return ``known`` without the occurrence of ``code`` that was held back."""
    return replace(known, held_back=without(known.held_back, code))


def _is_explained(known: ChipState, item: Observation) -> bool:
    fault, ended = known.faults.get(HBM_MULTI_BIT), known.ended.get(HBM_MULTI_BIT)
    if fault is None and ended is not None:
        fault = ended.fault
    return fault is not None and abs(item.seen_at_ms - fault.first_seen_ms) < _ASSOCIATION_MS


# Faults of links.


def _outlasts_list(known: SubjectState, item: Observation) -> bool:
    """Return whether a fault outlasts its last source, which does not list it any more."""
    if item.source != CHIP_SOURCE:
        return isinstance(known, ChipState) and known.silent
    has_events = not isinstance(known, ChipState) or known.listed is None
    return has_events and _is_of_links(item.code)


def _is_tool_blind(known: SubjectState, state: PolicyState) -> bool:
    """Return whether ``hccn_tool`` gives no answer about a chip, or about the node."""
    return LINK_SOURCE in known.blind or LINK_SOURCE in state.of(NODE).blind


def waiting_for_tool(known: SubjectState, since_ms: int | None) -> SubjectState:
    """Return ``known`` with a new deadline for faults that wait for ``hccn_tool``.

    They are unconfirmed since it answered at ``since_ms``; ``None``: it is blind, so they stay.
    """
    changed = {
        code: replace(fault, unconfirmed_at_ms=since_ms)
        for code, fault in known.faults.items()
        if not fault.reported_by and not fault.once and _is_of_links(code)
    }
    return replace(known, faults=known.faults | changed) if changed else known


def _is_of_links(code: str) -> bool:
    return is_network(code) or code == UB_PORT_DOWN
