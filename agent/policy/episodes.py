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


def observed(state: SubjectState, observation: Observation, draft: Transaction) -> SubjectState:
    """Return the state after ``observation``; the same object if nothing changed."""
    if observation.code == RESET_FINISHED and observation.subject.kind == "chip":
        return state  # it asks for an audit; it is not a fault
    if isinstance(state, ChipState) and _concerns_association(observation, draft.tables):
        if _is_held_back(state, observation):
            return _held_back(state, observation)
        state = _associated(state, observation, draft)
    return _asserted(state, observation, draft)


def begin_held_back(state: ChipState, code: str, draft: Transaction) -> ChipState:
    """Return ``state`` after an occurrence of ``code`` that was held back begins with its own
    time.
    """
    observation = state.held_back[code]
    after = _asserted(_without_held_back(state, code), observation, draft)
    assert isinstance(after, ChipState)
    return after


def end(
    state: S, fault: Fault, because: str, context: RuleContext, gone_ms: int | None = None
) -> S:
    """Return ``state`` without ``fault``, and with the effect of that on the rules.

    A lasting one is gone since ``gone_ms``, or else since the time of ``context``.
    """
    code = fault.code
    state = replace(state, faults=without(state.faults, code))
    if isinstance(state, ChipState):
        gone_ms = context.at_ms if gone_ms is None else gone_ms
        if not fault.once:
            state = with_gone_since(state, code, gone_ms)
        # Of a code with a duration rule, the frequency rule counts that rule's upgrades instead.
        if code not in context.draft.tables.durations:
            state = with_recovery(state, code, gone_ms)
    context.note(ChangeKind.ENDED, fault, because, fault.level, level_of(state, code))
    return state


def _associated(state: ChipState, observation: Observation, draft: Transaction) -> ChipState:
    """Return ``state`` before ``observation``, which may explain or end what is held back.

    An occurrence that ended while it was held back begins and ends, as any other one.
    """
    if observation.code in state.held_back:
        return begin_held_back(state, observation.code, draft)
    if observation.code == HBM_MULTI_BIT and observation.assertion not in (
        Assertion.RECOVER,
        Assertion.ABSENT,
    ):
        return _without_explained(state, observation.seen_at_ms)
    return state


def _asserted(state: SubjectState, observation: Observation, draft: Transaction) -> SubjectState:
    context = RuleContext(observation.subject, observation.seen_at_ms, draft)
    return _ASSERTED[observation.assertion](
        state, state.faults.get(observation.code), observation, context
    )


def _absent(
    state: SubjectState, active: Fault | None, observation: Observation, context: RuleContext
) -> SubjectState:
    """Remove one source of a fault; without any source the fault ends, unless it outlasts that."""
    # No list has a one-off event, so its absence from one proves nothing.
    if active is None or active.once:
        return state
    # A fault that only waits for a blind tool has no source left; the tool's answer decides.
    waits = not active.reported_by and active.unconfirmed_at_ms is None
    if observation.source not in active.reported_by and not (
        waits and observation.source == LINK_SOURCE
    ):
        return state
    other_sources = tuple(source for source in active.reported_by if source != observation.source)
    if not other_sources and not _outlasts_list(state, observation):
        return end(state, active, "its source does not list it any more", context)
    unconfirmed_at_ms = active.unconfirmed_at_ms
    is_tool_blind = _is_tool_blind(state, context.draft.state)
    # The tool's 6 s begin with the first list that lacks the fault; later ones do not prolong them.
    if not other_sources and unconfirmed_at_ms is None and not is_tool_blind:
        unconfirmed_at_ms = observation.seen_at_ms
    active = replace(active, sources=other_sources, unconfirmed_at_ms=unconfirmed_at_ms)
    return replace(state, faults=state.faults | {active.code: active})


def _occur(
    state: SubjectState, active: Fault | None, observation: Observation, context: RuleContext
) -> SubjectState:
    if active is not None:
        # It was overtaken on its way: the numbers of the later occurrence stay.
        if _is_before(observation, active.serial, active.raised_at_ms):
            return state
        newest = replace(
            active, serial=observation.serial, raised_at_ms=observation.driver_raised_at_ms
        )
        # A poll has no severity, and must not remove that of an event.
        if observation.severity is not None:
            newest = replace(newest, severity=observation.severity)
        return _update(state, active, newest, observation, "occurred", context)
    ended = state.ended.get(observation.code)
    if ended is not None and _is_over(observation, ended):
        if ended.fault is not None:
            return state  # reported twice, once after its recovery
        fault = _new_fault(state, observation, context)
        context.note(ChangeKind.BEGAN, fault, fault.because, None, fault.level)
        # It begins and ends in one step, so the history shows it and a frequency rule counts it.
        because = "its recovery was reported before it"
        state = _occurred(state, fault, context)
        if isinstance(state, ChipState) and fault.code not in context.draft.tables.durations:
            state = with_recovery(state, fault.code, observation.seen_at_ms)
        context.note(
            ChangeKind.ENDED, fault, because, fault.level, level_of(state, observation.code)
        )
        # With the fault, a second report of the same occurrence is recognised above.
        return replace(state, ended=state.ended | {observation.code: replace(ended, fault=fault)})
    return _begin(state, _new_fault(state, observation, context), context)


def _once(
    state: SubjectState, active: Fault | None, observation: Observation, context: RuleContext
) -> SubjectState:
    if active is None:
        return _begin(state, replace(_new_fault(state, observation, context), once=True), context)
    is_new = active.once and _is_another(observation, active)
    because = "a one-off event of a code that holds already"
    if is_new:
        because = "a one-off event, while the one before it was still shown"
    context.note(ChangeKind.REPEATED, active, because, active.level, active.level)
    if not is_new:
        return state
    # It counts, and is shown like the one before it.
    fault = replace(
        active,
        serial=observation.serial,
        raised_at_ms=observation.driver_raised_at_ms,
        revision=context.draft.revision + 1,
        acknowledged_at_ms=None,
    )
    state = replace(state, faults=state.faults | {active.code: fault})
    return _occurred(state, fault, context)


def _present(
    state: SubjectState, active: Fault | None, observation: Observation, context: RuleContext
) -> SubjectState:
    if active is not None:
        seen = (
            active
            if observation.subject.kind != "host"
            # The serial of a part of the host is its place in the BMC's list, by which documents
            # order codes.
            else replace(active, serial=observation.serial)
        )
        return _update(state, active, seen, observation, f"is {_found_by(observation)}", context)
    ended = state.ended.get(observation.code)
    was_over = observation.anew or ended is None or not _is_recent(ended, observation.seen_at_ms)
    if was_over or ended is None or ended.fault is None:
        return _begin(state, _new_fault(state, observation, context), context)
    # The recovery was false, so the episode goes on with its id and its first time.
    fault = ended.fault
    verdict = context.judge(state, fault.code, fault.severity)
    fault = replace(
        fault,
        level=verdict.level,
        because=verdict.because,
        serial=observation.serial if observation.subject.kind == "host" else fault.serial,
        revision=context.draft.revision + 1,
        sources=_stored_sources(fault, (observation.source,)),
    )
    because = f"{observation.code} was reported recovered and is still {_found_by(observation)}"
    old = level_of(state, observation.code)
    context.note(ChangeKind.RETURNED, fault, because, old, fault.level)
    faults, ended_left = (
        state.faults | {observation.code: fault},
        without(state.ended, observation.code),
    )
    state = _there(replace(state, faults=faults, ended=ended_left), observation.code)
    return with_recovery(state, observation.code, 0) if isinstance(state, ChipState) else state


def _recover(
    state: SubjectState, active: Fault | None, observation: Observation, context: RuleContext
) -> SubjectState:
    if active is None:
        ended = state.ended.get(observation.code)
        # A repeated recovery must neither lose the fault of the first one nor prolong its window.
        if ended is not None and _is_recent(ended, observation.seen_at_ms):
            return state
        # The occurrence of this recovery may still be on its way (``_is_over``).
        return replace(state, ended=_remember(state, observation, None))
    if active.once:
        return state  # it has no recovery; time ends it
    if _is_before(observation, active.serial, active.raised_at_ms):
        if active.unconfirmed_at_ms is not None:
            return state
        # The driver's clock may be wrong, so it is not ignored: an audit has the time to confirm.
        unconfirmed = replace(active, unconfirmed_at_ms=observation.seen_at_ms)
        return replace(state, faults=state.faults | {active.code: unconfirmed})
    because = "the driver reported its recovery"
    state = end(state, active, because, context)
    return replace(state, ended=_remember(state, observation, active))


def _found_by(observation: Observation) -> str:
    return (
        "listed by the driver"
        if observation.source == CHIP_SOURCE
        else f"found by {observation.source}"
    )


def _stored_sources(fault: Fault, sources: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return ``sources`` as the member of ``fault`` has them: ``None`` for its own source alone."""
    return None if sources == (fault.source,) else sources


def _there(state: SubjectState, code: str) -> SubjectState:
    return with_gone_since(state, code, None) if isinstance(state, ChipState) else state


def _new_fault(state: SubjectState, observation: Observation, context: RuleContext) -> Fault:
    """Return the first state of a fault's episode.

    A severity that a poll reports for a chip does not count. One from a document does, for a chip
    that has not answered yet and a code that no table has.
    """
    severity = observation.severity
    if observation.subject.kind == "chip":
        if observation.assertion is Assertion.PRESENT and not _is_remembered(
            state, observation, context
        ):
            severity = None
        if severity is None:
            severity = context.draft.tables.severity_of(observation.code)
    verdict = context.judge(state, observation.code, severity)
    return Fault(
        code=observation.code,
        episode=context.episode(observation.code),
        source=observation.source,
        level=verdict.level,
        because=verdict.because,
        first_seen_ms=observation.seen_at_ms,
        revision=context.draft.revision + 1,
        severity=severity,
        raised_at_ms=observation.driver_raised_at_ms,
        serial=observation.serial,
    )


def _is_remembered(state: SubjectState, observation: Observation, context: RuleContext) -> bool:
    is_silent = isinstance(state, ChipState) and state.silent
    return is_silent and observation.code not in context.draft.tables.chip_levels


def _begin(state: SubjectState, fault: Fault, context: RuleContext) -> SubjectState:
    old = level_of(state, fault.code)
    context.note(ChangeKind.BEGAN, fault, fault.because, old, fault.level)
    state = replace(state, faults=state.faults | {fault.code: fault})
    if not fault.once:  # a one-off event does not hold, so a duration rule still waits
        state = _there(state, fault.code)
    return _occurred(state, fault, context)


def _occurred(state: SubjectState, fault: Fault, context: RuleContext) -> SubjectState:
    """Count the beginning of an episode for a frequency rule, unless the code has a duration
    rule.
    """
    if fault.code in context.draft.tables.durations or not isinstance(state, ChipState):
        return state
    return count_occurrence(state, fault, context.at_ms, context)


def _update(
    state: SubjectState,
    active: Fault,
    seen: Fault,
    observation: Observation,
    event: str,
    context: RuleContext,
) -> SubjectState:
    """Apply another observation of a code that holds: confirmed, perhaps with a new severity or
    source.
    """
    # The source of a one-off event has not reported that the code lasts.
    reported_by = () if active.once else active.reported_by
    if observation.source not in reported_by:
        reported_by = (*reported_by, observation.source)
    fault = replace(
        seen,
        # What is listed, or occurs with a recovery to come, lasts from now on.
        once=False,
        acknowledged_at_ms=None,
        unconfirmed_at_ms=None,
        sources=_stored_sources(active, reported_by),
    )
    # The same object shows callers that nothing changed, so no document is compared.
    if fault == active:
        return state
    if fault.severity != active.severity:
        verdict = context.judge(state, fault.code, fault.severity)
        fault = replace(fault, level=verdict.level, because=verdict.because)
    if fault.level != active.level or fault.severity != active.severity or active.once:
        because = f"a one-off event before, it {event}" if active.once else fault.because
        context.note(ChangeKind.CHANGED, fault, because, active.level, fault.level)
    return _there(replace(state, faults=state.faults | {fault.code: fault}), fault.code)


def _remember(
    state: SubjectState, observation: Observation, fault: Fault | None
) -> dict[str, Ended]:
    """Return the recent recoveries with this one, without those that have no effect any more.

    They are in order of time, so the old ones are in front: a flood has hundreds of them.
    """
    ended = without(state.ended, observation.code)
    ended[observation.code] = Ended(
        observation.seen_at_ms, fault, observation.driver_raised_at_ms, observation.serial
    )
    # Stops at the new entry at the latest, which is recent.
    while not _is_recent(ended[(oldest := next(iter(ended)))], observation.seen_at_ms):
        del ended[oldest]
    return ended


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


def _is_before(observation: Observation, serial: int | None, raised_at_ms: int | None) -> bool:
    """Return whether the driver made ``observation`` before the occurrence with these numbers.

    Where serial and time disagree, the order of arrival counts.
    """
    earlier = later = False
    if observation.driver_raised_at_ms is not None and raised_at_ms is not None:
        earlier = observation.driver_raised_at_ms < raised_at_ms
        later = observation.driver_raised_at_ms > raised_at_ms
    if observation.serial and serial:
        return observation.serial < serial and not later
    return earlier


def _is_another(observation: Observation, active: Fault) -> bool:
    """Return whether ``observation`` is a later event than that of ``active``, not the same again.

    A driver without numbers and times cannot be distinguished from one that repeats itself.
    """
    if _is_before(observation, active.serial, active.raised_at_ms):
        return False
    return (observation.serial, observation.driver_raised_at_ms) != (
        active.serial,
        active.raised_at_ms,
    )


def _is_over(observation: Observation, ended: Ended) -> bool:
    """Return whether ``observation`` is the occurrence whose recovery ``ended`` came first."""
    if not _is_recent(ended, observation.seen_at_ms):
        return False
    if observation.driver_raised_at_ms is None or ended.raised_at_ms is None:
        return False
    # A recovery has the serial of its occurrence (dcmi#5.2); a greater one is a later occurrence.
    paired = not observation.serial or not ended.serial or observation.serial <= ended.serial
    return paired and observation.driver_raised_at_ms < ended.raised_at_ms


def _is_recent(ended: Ended, at_ms: int) -> bool:
    """Return whether a recovery still counts at ``at_ms``."""
    return at_ms - ended.at_ms < RETURN_WINDOW_MS


# Faults that another one explains.


_ASSOCIATION_MS = 5_000

_EXPLAINED = frozenset({AIC_BUS, AIV_BUS})
_ENDS = frozenset({Assertion.RECOVER, Assertion.ABSENT})


def _concerns_association(observation: Observation, tables: Catalogue) -> bool:
    """Return whether ``observation`` is about a code that explains others or is explained."""
    return (
        observation.code in _EXPLAINED or observation.code == HBM_MULTI_BIT
    ) and HBM_MULTI_BIT in tables.durations


def held_back_until_ms(observation: Observation) -> int:
    """Return when nothing can explain ``observation`` any more (epoch ms).

    That is strictly more than 5 s later.
    """
    return observation.seen_at_ms + _ASSOCIATION_MS + 1


def _is_held_back(state: ChipState, observation: Observation) -> bool:
    """Return whether ``observation`` is an occurrence that has to wait for what may explain it."""
    return (
        observation.code in _EXPLAINED
        and observation.assertion not in _ENDS
        and observation.code not in state.faults
    )


def _held_back(state: ChipState, observation: Observation) -> ChipState:
    """Return ``state`` after ``observation`` was held back, or dropped as explained already.

    An occurrence that is reported twice is held back once.
    """
    waits = state.held_back.get(observation.code)
    # A lasting occurrence must replace a one-off event that waits: time alone would end that.
    if waits is not None and (
        waits.assertion is not Assertion.ONCE or observation.assertion is Assertion.ONCE
    ):
        return state
    if _is_explained(state, observation):
        return state
    return replace(state, held_back=state.held_back | {observation.code: observation})


def _without_explained(state: ChipState, at_ms: int) -> ChipState:
    """Return ``state`` after the memory's code occurred at ``at_ms``, without what that
    explains.
    """
    unexplained = {
        code: observation
        for code, observation in state.held_back.items()
        # Strictly less than 5 s explains, as upstream compares (device-plugin#2.4).
        if abs(at_ms - observation.seen_at_ms) >= _ASSOCIATION_MS
    }
    return (
        state if len(unexplained) == len(state.held_back) else replace(state, held_back=unexplained)
    )


def _without_held_back(state: ChipState, code: str) -> ChipState:
    """Return ``state`` without the occurrence of ``code`` that was held back."""
    return replace(state, held_back=without(state.held_back, code))


def _is_explained(state: ChipState, observation: Observation) -> bool:
    fault, ended = state.faults.get(HBM_MULTI_BIT), state.ended.get(HBM_MULTI_BIT)
    # The memory's fault may be over already; its occurrence explains all the same.
    if fault is None and ended is not None:
        fault = ended.fault
    return fault is not None and abs(observation.seen_at_ms - fault.first_seen_ms) < _ASSOCIATION_MS


# Faults of links.


def _outlasts_list(state: SubjectState, observation: Observation) -> bool:
    """Return whether a fault outlasts its last source, which does not list it any more."""
    # No other source ends what held on a chip that is silent since the start (decision 18).
    if observation.source != CHIP_SOURCE:
        return isinstance(state, ChipState) and state.silent
    # Only chips without events have ``listed``: they report a link by their list alone.
    has_events = not isinstance(state, ChipState) or state.listed is None
    return has_events and _is_of_links(observation.code)


def _is_tool_blind(state: SubjectState, before: PolicyState) -> bool:
    """Return whether ``hccn_tool`` gives no answer about a chip, or about the node."""
    # A tool that is missing is one blindness, about the node.
    return LINK_SOURCE in state.blind or LINK_SOURCE in before.of(NODE).blind


def waiting_for_tool(state: SubjectState, since_ms: int | None) -> SubjectState:
    """Return ``state`` with a new deadline for faults that wait for ``hccn_tool``.

    They are unconfirmed since it answered at ``since_ms``; ``None``: it is blind, so they stay.
    """
    changed = {
        code: replace(fault, unconfirmed_at_ms=since_ms)
        for code, fault in state.faults.items()
        if not fault.reported_by and not fault.once and _is_of_links(code)
    }
    return replace(state, faults=state.faults | changed) if changed else state


def _is_of_links(code: str) -> bool:
    # The code of a UB port is of the hyper plane, not of the network; the tool reports it, too.
    return is_network(code) or code == UB_PORT_DOWN
