"""From reports to faults and levels: a pure function with the time passed in.

The rules are those of ``docs/rooms/agent.md`` ("The policy"): effects of an observation are in
``episodes``, those of time in ``deadlines``, the rules that raise levels in ``durations`` and
``frequencies``.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from msgspec.structs import replace

from agent.policy.chips import forgotten, listed, restored
from agent.policy.episodes import (
    RETURN_WINDOW_MS,
    begin_held_back,
    end,
    held_back_until_ms,
    observed,
    waiting_for_tool,
)
from agent.policy.state import (
    CHIP_SOURCE,
    LINK_SOURCE,
    SETTLE_MS,
    Acknowledged,
    Adopted,
    Blindness,
    Change,
    ChipsListed,
    ChipsRemembered,
    ChipState,
    ClockSetBack,
    Configured,
    Ended,
    Fault,
    Forgotten,
    PolicyState,
    Released,
    SubjectState,
    Upgrade,
    times_capped,
)
from agent.policy.transaction import RuleContext, Transaction, all_judged_again, without
from agent.policy.upgrade_rules import (
    adopt_upgrade,
    duration_release_ms,
    duration_upgrade_ms,
    frequency_release_ms,
    judged_by_tables,
    release_by_duration,
    release_by_frequency,
    release_by_operator,
    remove_upgrade,
    upgrade_by_duration,
)
from contract.codes.policies import FAULT_DURATION, FAULT_FREQUENCY
from contract.names import DEVICE_INFO_PREFIX, NODE_INFO_PREFIX
from contract.observation import (
    Gap,
    HealthRead,
    Observation,
    Report,
    SourceAnswered,
    SourceBlind,
    Subject,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from contract.codes.catalogue import Catalogue

StepInput: TypeAlias = (
    Observation | SourceBlind | SourceAnswered | HealthRead | Adopted | Released | ChipsRemembered
)
"""The inputs that are about one subject."""

InputToAll: TypeAlias = Acknowledged | Configured | ClockSetBack | ChipsListed
"""The inputs that may be about each subject."""

Input: TypeAlias = (
    Report
    | Acknowledged
    | Adopted
    | Released
    | Configured
    | ClockSetBack
    | ChipsListed
    | ChipsRemembered
    | Forgotten
)


class PolicyCall(NamedTuple):
    """One call of ``step`` that the journal has in the row ``sequence``."""

    inputs: Sequence[Input]
    changes: Sequence[Change]
    tables: Catalogue
    sequence: int


def step(
    state: PolicyState, inputs: Sequence[Input], now_ms: int, tables: Catalogue
) -> tuple[PolicyState, tuple[Change, ...]]:
    """Return the state and its changes after ``inputs``, in their order, and all time until
    ``now_ms``.

    How the inputs are batched makes no difference. Returns the same object when nothing changed.
    """
    draft = Transaction(state, tables, state.revision)
    subjects, named = dict(state.subjects()), state.named
    deadline_ms = deadline_ms_of(subjects.values(), tables, state.settled_at_ms)
    for item in inputs:
        # What the tables of ``Configured`` make overdue changes with it, not when others held.
        is_due = deadline_ms is not None and deadline_ms <= _time_of(item)
        if is_due and not isinstance(item, Configured):
            subjects = expire(subjects, _time_of(item), draft)
            deadline_ms = deadline_ms_of(subjects.values(), tables, draft.state.settled_at_ms)
        if not isinstance(item, Observation):  # most inputs are: the checks below are for others
            if isinstance(item, Gap):
                continue  # an audit repairs what was missed
            if isinstance(item, InputToAll):
                subjects = _apply_to_all(subjects, item, draft)
                if isinstance(item, Acknowledged) and item.named is not None:
                    named = item.named
                deadline_ms = deadline_ms_of(subjects.values(), tables, draft.state.settled_at_ms)
                continue
            if isinstance(item, Forgotten | Released):
                named = tuple(chip for chip in named if chip != item.subject.id)
            if isinstance(item, Forgotten):
                known = subjects.pop(item.subject, draft.state.of(item.subject))
                forgotten(known, item.because, RuleContext(item.subject, item.at_ms, draft))
                draft.revision += 1
                continue
        before = subjects.get(item.subject) or draft.state.of(item.subject)
        after = _apply(before, item, draft)
        if after is not before:
            subjects[item.subject] = after
            draft.revision += 1
            deadline_ms = _sooner(deadline_ms, after, item, draft)
    if deadline_ms is not None and deadline_ms <= now_ms:
        subjects = expire(subjects, now_ms, draft)
    after_all = _state_of(draft, subjects)
    after_all = after_all if named == state.named else replace(after_all, named=named)
    return after_all, tuple(draft.changes)


def _apply_to_all(
    subjects: dict[Subject, SubjectState], item: InputToAll, draft: Transaction
) -> dict[Subject, SubjectState]:
    """Return ``subjects`` after an input that may be about each of them."""
    match item:
        case Configured():
            return _configured(subjects, item.at_ms, draft)
        case ClockSetBack():
            draft.state = _set_back(draft.state, item.at_ms)
            earlier = {
                subject: times_capped(known, item.at_ms) for subject, known in subjects.items()
            }
            draft.revision += earlier != subjects
            return earlier
        case Acknowledged():
            return {
                subject: _acknowledge(known, item) if _is_shown(subject, item.document) else known
                for subject, known in subjects.items()
            }
        case ChipsListed():
            return listed(subjects, item, draft)


def _set_back(state: PolicyState, now_ms: int) -> PolicyState:
    """Return ``state`` at the earlier time ``now_ms``: no start is settled later than one of
    now.
    """
    settled_at_ms = min(state.settled_at_ms, now_ms + SETTLE_MS)
    if settled_at_ms == state.settled_at_ms:
        return state
    return replace(state, settled_at_ms=settled_at_ms)


def next_deadline_ms(state: PolicyState, tables: Catalogue) -> int | None:
    """Return when ``step`` must be called without an input (epoch ms); ``None`` for never."""
    everything = chain(state.chips.values(), state.others.values())
    return deadline_ms_of(everything, tables, state.settled_at_ms)


def _state_of(draft: Transaction, subjects: Mapping[Subject, SubjectState]) -> PolicyState:
    """Return the state with ``subjects``: the same object when nothing changed."""
    chips = {
        subject.id: known for subject, known in subjects.items() if isinstance(known, ChipState)
    }
    others = {
        str(subject): known
        for subject, known in subjects.items()
        if not isinstance(known, ChipState) and known != _FORGOTTEN
    }
    old = draft.state
    if draft.revision == old.revision and chips == old.chips and others == old.others:
        return old
    return replace(old, revision=draft.revision, chips=chips, others=others)


_FORGOTTEN = SubjectState()


def _configured(
    subjects: Mapping[Subject, SubjectState], at_ms: int, draft: Transaction
) -> dict[Subject, SubjectState]:
    """Judge all ``subjects`` again by the tables of ``draft``."""
    judged = {
        subject: judged_by_tables(known, RuleContext(subject, at_ms, draft))
        for subject, known in subjects.items()
    }
    judged = expire(judged, at_ms, draft, since_ms=at_ms)
    if any(known is not subjects[subject] for subject, known in judged.items()):
        draft.revision += 1
    return judged


def _is_shown(subject: Subject, document: str) -> bool:
    """Return whether faults of ``subject`` are shown in ``document`` (its name)."""
    return document.startswith(NODE_INFO_PREFIX if subject.kind == "host" else DEVICE_INFO_PREFIX)


def is_one_off_waiting(state: PolicyState, document: str) -> bool:
    """Return whether a one-off fault has yet to be acknowledged with ``document`` (its name)."""
    return any(
        fault.once and fault.acknowledged_at_ms is None
        for subject, known in state.subjects()
        if _is_shown(subject, document)
        for fault in known.faults.values()
    )


def _time_of(item: Input) -> int:
    if isinstance(item, Observation):
        return item.seen_at_ms
    return item.since_ms if isinstance(item, SourceBlind) else item.at_ms


def _sooner(
    deadline_ms: int | None,
    known: SubjectState,
    item: StepInput,
    draft: Transaction,
) -> int | None:
    """Return the next deadline after ``item`` was applied; one that is too early does no harm."""
    if isinstance(item, SourceAnswered) and item.source in (LINK_SOURCE, CHIP_SOURCE):
        due = next_due(known, draft.tables, draft.state.settled_at_ms)
        due_ms = None if due is None else due.at_ms
    elif not isinstance(item, Observation | Adopted):
        return deadline_ms
    else:
        due_ms = due_ms_of(known, item.code, draft.tables, draft.state.settled_at_ms)
    if due_ms is None or deadline_ms is None:
        return due_ms if deadline_ms is None else deadline_ms
    return min(due_ms, deadline_ms)


def _acknowledge(known: SubjectState, item: Acknowledged) -> SubjectState:
    for fault in known.faults.values():
        shown = fault.once and fault.revision <= item.state_revision
        if shown and fault.acknowledged_at_ms is None:
            fault = replace(fault, acknowledged_at_ms=item.at_ms)
            known = replace(known, faults=known.faults | {fault.code: fault})
    return known


def _apply(known: SubjectState, item: StepInput, draft: Transaction) -> SubjectState:
    if isinstance(item, Observation):
        return observed(known, item, draft)
    if isinstance(item, Adopted):
        return adopt_upgrade(known, item, RuleContext(item.subject, item.at_ms, draft))
    if isinstance(item, Released):
        return release_by_operator(known, RuleContext(item.subject, item.at_ms, draft))
    if isinstance(item, HealthRead):
        return _health_read(known, item, draft)
    if isinstance(item, ChipsRemembered):
        return restored(known)
    if isinstance(item, SourceBlind):
        blindness = Blindness(item.since_ms, item.reason, item.by_driver)
        if known.blind.get(item.source) == blindness:
            return known
        if item.source == LINK_SOURCE:
            known = waiting_for_tool(known, None)
        return replace(known, blind=known.blind | {item.source: blindness})
    if item.source == CHIP_SOURCE and isinstance(known, ChipState) and known.silent:
        known = replace(known, silent=False, settled_at_ms=item.at_ms + SETTLE_MS)
    elif item.source in known.answered and item.source not in known.blind:
        return known
    if item.source == LINK_SOURCE:
        known = waiting_for_tool(known, item.at_ms)
    answered = tuple(sorted({*known.answered, item.source}))
    blind = {source: why for source, why in known.blind.items() if source != item.source}
    return replace(known, answered=answered, blind=blind)


def _health_read(known: SubjectState, item: HealthRead, draft: Transaction) -> SubjectState:
    """Return ``known`` with the health word of its chip, which bounds the level of unlisted
    codes.
    """
    if not isinstance(known, ChipState) or (known.word, known.listed) == (item.word, item.codes):
        return known
    known = replace(known, word=item.word, listed=item.codes)
    context = RuleContext(item.subject, item.at_ms, draft)
    return all_judged_again(known, "the health word was read", context)


# What time alone changes.


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
            upgrade_ms = duration_upgrade_ms(fault, policies[fault.code])
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
        Due(held_back_until_ms(item), code, BEGINS) for code, item in known.held_back.items()
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
        return None if frequency is None else frequency_release_ms(known, upgrade, frequency)
    if upgrade.kind == FAULT_DURATION:
        duration = tables.durations.get(upgrade.code)
        return None if duration is None else duration_release_ms(upgrade, duration)
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
            return release_by_duration(known, upgrade, policy, context)
        return upgrade_by_duration(known, known.faults[due.code], policy, context)
    assert upgrade is not None
    if due.what == FAULT_FREQUENCY:
        return release_by_frequency(known, upgrade, tables.frequencies[due.code], context)
    because = "an isolation without a known reason ends as the last one that any rule could give"
    return remove_upgrade(known, upgrade, because, context)
