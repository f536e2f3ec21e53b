"""From reports to faults and levels: a pure function with the time passed in.

The rules are those of ``docs/rooms/agent.md`` ("The policy"): effects of an observation are in
``episodes``, those of time in ``deadlines``, the rules that raise levels in ``durations`` and
``frequencies``.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from msgspec.structs import replace

from agent.policy.adoption import adopt, release
from agent.policy.chips import forgotten, listed, restored
from agent.policy.clock_set_back import times_capped
from agent.policy.deadlines import deadline_ms_of, due_ms_of, expire, next_due
from agent.policy.episodes import observed
from agent.policy.link_faults import waiting_for_tool
from agent.policy.reconfiguration import configured
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
    Forgotten,
    PolicyState,
    Released,
    SubjectState,
)
from agent.policy.transaction import RuleContext, Transaction, all_judged_again
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
    from collections.abc import Mapping, Sequence

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
        subject: configured(known, RuleContext(subject, at_ms, draft))
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
        return adopt(known, item, RuleContext(item.subject, item.at_ms, draft))
    if isinstance(item, Released):
        return release(known, RuleContext(item.subject, item.at_ms, draft))
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
