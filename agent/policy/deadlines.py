"""When time alone changes a subject, and the change that is due then.

``next_due`` is called with every event, for every code of every chip: plain loops without
allocations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from agent.policy import associations, durations, frequencies, upgrades
from agent.policy.episodes import begin_held_back, end
from agent.policy.event_order import RETURN_WINDOW_MS
from agent.policy.state import ChipState, Ended, Fault, SubjectState, Upgrade
from agent.policy.transaction import RuleContext, Transaction, without
from contract.codes.policies import FAULT_DURATION, FAULT_FREQUENCY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from contract.codes.catalogue import Catalogue
    from contract.observation import Subject

ONCE_VISIBLE_MS = 5_500
"""Milliseconds that a one-off fault stays after a store acknowledged it: no reader misses it.

It must be visible for 5 s in cluster-info, too, where it may appear later than it disappears.
"""

CONFIRMATION_MS = 6_000
"""Milliseconds in which an audit confirms a fault whose recovery looked older than its occurrence.

The link tool has as long to confirm a fault that the driver does not list. Both are asked 2 s after
the last event and answer within 2 s.
"""

ENDS = ""
FORGOTTEN = "forgotten"
BEGINS = "begins"


class Due(NamedTuple):
    """``code`` changes at ``at_ms``: a fault ``ENDS`` or is ``FORGOTTEN``, an occurrence that was
    held back ``BEGINS``, or a rule of this kind acts.

    Changes at the same time happen in the order of these tuples.
    """

    at_ms: int
    code: str
    what: str


def next_due(known: SubjectState, tables: Catalogue, settled_ms: int) -> Due | None:
    """Return the next change by time alone; rules wait until ``settled_ms``."""
    if isinstance(known, ChipState):
        due = _of_chip(known, known.faults.values(), known.upgrades, tables, settled_ms)
        return due if not known.held_back else _with_held_back(known, due)
    return _of_other(known)


def due_ms_of(known: SubjectState, code: str, tables: Catalogue, settled_ms: int) -> int | None:
    """Return when time alone changes ``code`` (epoch ms).

    It may be the earlier time of another code.
    """
    if isinstance(known, ChipState):
        fault = known.faults.get(code)
        faults = () if fault is None else (fault,)
        of_code = [one for one in known.upgrades if one.code == code] if known.upgrades else ()
        due = _of_chip(known, faults, of_code, tables, settled_ms)
        if known.held_back:
            due = _with_held_back(known, due)
    else:
        due = _of_other(known)
    return None if due is None else due.at_ms


def deadline_ms_of(
    subjects: Iterable[SubjectState], tables: Catalogue, settled_ms: int
) -> int | None:
    """Return when time alone changes anything (epoch ms); ``None`` for never."""
    deadline_ms = None
    for known in subjects:
        due = next_due(known, tables, settled_ms)
        if due is not None and (deadline_ms is None or due.at_ms < deadline_ms):
            deadline_ms = due.at_ms
    return deadline_ms


def _of_chip(
    known: ChipState,
    faults: Iterable[Fault],
    upgrades_of: Iterable[Upgrade],
    tables: Catalogue,
    settled_ms: int,
) -> Due | None:
    """Return the first change due of some codes of a chip."""
    first = None
    policies = tables.durations
    for fault in faults:
        if fault.once or fault.unconfirmed_at_ms is not None:
            end_ms = None if known.silent else _end_ms(fault)
            if end_ms is None:
                continue
            what, at_ms = ENDS, end_ms if fault.once else max(end_ms, known.settled_at_ms)
        elif fault.code in policies and known.upgrade_of(fault.code, FAULT_DURATION) is None:
            upgrade_ms = durations.upgrade_ms(fault, policies[fault.code])
            what, at_ms = FAULT_DURATION, max(upgrade_ms, settled_ms, known.settled_at_ms)
        else:
            continue
        if first is None or (at_ms, fault.code, what) < first:
            first = Due(at_ms, fault.code, what)
    for upgrade in upgrades_of:
        release_ms = None if known.silent else _release_ms(known, upgrade, tables)
        if release_ms is None:
            continue
        at_ms = max(release_ms, settled_ms, known.settled_at_ms)
        if first is None or (at_ms, upgrade.code, upgrade.kind) < first:
            first = Due(at_ms, upgrade.code, upgrade.kind)
    return first


def _with_held_back(known: ChipState, due: Due | None) -> Due:
    """Return the earlier one of ``due`` and the first occurrence that is held back."""
    waiting = (
        Due(associations.release_ms(item), code, BEGINS) for code, item in known.held_back.items()
    )
    first = min(waiting)
    return first if due is None or first < due else due


def _of_other(known: SubjectState) -> Due | None:
    """Return the first change due of a subject that is no chip.

    Its recoveries are forgotten when they have no effect any more: there are hundreds of switch
    ports, and each would be checked with every event for ever.
    """
    first = None
    for code, ended in known.ended.items():
        due = Due(ended.at_ms + RETURN_WINDOW_MS, code, FORGOTTEN)
        first = due if first is None or due < first else first
    for code, fault in known.faults.items():
        end_ms = _end_ms(fault)
        if end_ms is not None:
            due = Due(end_ms, code, ENDS)
            first = due if first is None or due < first else first
    return first


def _end_ms(fault: Fault) -> int | None:
    """Return when time alone ends ``fault`` (epoch milliseconds)."""
    if fault.once:
        shown_ms = fault.acknowledged_at_ms
        return None if shown_ms is None else shown_ms + ONCE_VISIBLE_MS
    unconfirmed_ms = fault.unconfirmed_at_ms
    return None if unconfirmed_ms is None else unconfirmed_ms + CONFIRMATION_MS


def _release_ms(known: ChipState, upgrade: Upgrade, tables: Catalogue) -> int | None:
    """Return when time alone ends ``upgrade`` (epoch milliseconds).

    An upgrade without a known reason ends at the last time that any rule could give
    (device-plugin#3.6). An operator's separation is released by an operator only.
    """
    if upgrade.request is not None:
        return None
    if upgrade.kind == FAULT_FREQUENCY:
        frequency = tables.frequencies.get(upgrade.code)
        return None if frequency is None else frequencies.release_ms(known, upgrade, frequency)
    if upgrade.kind == FAULT_DURATION:
        duration = tables.durations.get(upgrade.code)
        return None if duration is None else durations.release_ms(upgrade, duration)
    longest_ms = tables.autofill_release_ms
    return None if longest_ms is None else upgrade.upgraded_at_ms + longest_ms + 1


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
                context = RuleContext(subject, due.at_ms, draft)
                known = _end_by_time(known, known.faults[due.code], context)
            elif due.what == FORGOTTEN:
                known = replace(known, ended=without(known.ended, due.code))
            elif due.what == BEGINS:
                assert isinstance(known, ChipState)
                known = begin_held_back(known, due.code, draft)
                draft.revision += 1  # as its report would have done
            else:
                assert isinstance(known, ChipState)
                context = RuleContext(subject, max(due.at_ms, since_ms), draft)
                known = _apply_rule(known, due, context)
        left[subject] = known
    return left


def _end_by_time(known: SubjectState, fault: Fault, context: RuleContext) -> SubjectState:
    """End a one-off fault that every reader could see, or an unconfirmed one that stayed so."""
    if fault.once:
        return end(known, fault, "a one-off event, published long enough to be seen", context)
    because = "its recovery looked older than it, but no audit has found it since"
    if not fault.reported_by:
        because = "the driver does not list it, and no other source has found it since"
    known = end(known, fault, because, context, fault.unconfirmed_at_ms)
    if not fault.reported_by:
        return known
    ended = Ended(context.at_ms, replace(fault, unconfirmed_at_ms=None))
    return replace(known, ended=known.ended | {fault.code: ended})


def _apply_rule(known: ChipState, due: Due, context: RuleContext) -> ChipState:
    """Return ``known`` after the rule that is due upgraded or released its code."""
    tables, upgrade = context.draft.tables, known.upgrade_of(due.code, due.what)
    if due.what == FAULT_DURATION:
        policy = tables.durations[due.code]
        if upgrade is not None:
            return durations.release(known, upgrade, policy, context)
        return durations.upgrade(known, known.faults[due.code], policy, context)
    assert upgrade is not None
    if due.what == FAULT_FREQUENCY:
        return frequencies.release(known, upgrade, tables.frequencies[due.code], context)
    because = "an isolation without a known reason ends as the last one that any rule could give"
    return upgrades.remove(known, upgrade, because, context)
