"""From reports to faults and levels: a pure function with the time passed in.

The rules are those of ``docs/architecture.md`` ("The policy") and the same for chips, switch ports
and parts of the server; only who judges differs. Levels come from the catalogue
(``spec/device-plugin.md`` 2.4 and 2.7, without the defects K07, K08 and K10 of its section 9).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from msgspec.structs import replace

from agent.event_order import is_before, is_over, is_recent
from agent.state import (
    Acknowledged,
    Blindness,
    Change,
    ChangeKind,
    ChipState,
    Ended,
    Fault,
    State,
    SubjectState,
)
from contract.codes import RESET_FINISHED
from contract.names import DEVICE_INFO_PREFIX, NODE_INFO_PREFIX
from contract.observation import (
    Assertion,
    Gap,
    Observation,
    Report,
    SourceAnswered,
    SourceBlind,
    Subject,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from contract.catalogue import Catalogue, Verdict
    from contract.levels import Severity

Input: TypeAlias = Report | Acknowledged

ONCE_VISIBLE_MS = 5_000
"""How long a one-off fault stays after a store acknowledged it, so that no reader can miss it."""


DOUBT_MS = 6_000
"""How long an audit has to confirm a fault whose recovery looked older than its occurrence.
Audits are asked 2 s after the last event and answer within 2 s."""


@dataclass
class _Draft:
    """One call of ``step``: what it has found so far."""

    state: State
    tables: Catalogue
    revision: int
    changes: list[Change] = field(default_factory=list)

    def note(
        self,
        kind: ChangeKind,
        subject: Subject,
        fault: Fault,
        at_ms: int,
        because: str,
        old: str | None = None,
        new: str | None = None,
    ) -> None:
        self.changes.append(
            Change(
                kind, subject, fault.code, fault.episode, at_ms, because, old, new, fault.severity
            )
        )


def step(
    state: State, inputs: Sequence[Input], now_ms: int, tables: Catalogue
) -> tuple[State, tuple[Change, ...]]:
    """Take in ``inputs`` in their order and let time pass until ``now_ms``.

    How the inputs are batched makes no difference. The very same state is returned when nothing
    changed.
    """
    draft = _Draft(state, tables, state.revision)
    subjects = dict(state.subjects())
    deadline_ms = _deadline_ms(subjects.values())
    for item in inputs:
        if deadline_ms is not None and deadline_ms <= _time_of(item):
            subjects = _expire(subjects, _time_of(item), draft)
            deadline_ms = _deadline_ms(subjects.values())
        if isinstance(item, Acknowledged):
            subjects = {
                subject: _acknowledge(known, item) if _is_shown(subject, item.document) else known
                for subject, known in subjects.items()
            }
            deadline_ms = _deadline_ms(subjects.values())
            continue
        if isinstance(item, Gap):
            continue  # an audit repairs what was missed
        before = subjects.get(item.subject) or state.of(item.subject)
        after = _apply(before, item, draft)
        if after is not before:
            subjects[item.subject] = after
            draft.revision += 1
            deadline_ms = _sooner(deadline_ms, after, item)
    if deadline_ms is not None and deadline_ms <= now_ms:
        subjects = _expire(subjects, now_ms, draft)
    return _state_of(draft, subjects), tuple(draft.changes)


def next_deadline_ms(state: State, tables: Catalogue) -> int | None:
    """When ``step`` wants to be called though nothing was reported; ``None`` for never."""
    del tables  # the shipped rules that wait for a time come with the customisation
    return _deadline_ms(known for _, known in state.subjects())


def _state_of(draft: _Draft, subjects: Mapping[Subject, SubjectState]) -> State:
    """The state with ``subjects``: the very same one when nothing changed."""
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


def _is_shown(subject: Subject, document: str) -> bool:
    """Whether faults of ``subject`` are shown in ``document`` (its name)."""
    return document.startswith(NODE_INFO_PREFIX if subject.kind == "host" else DEVICE_INFO_PREFIX)


def is_one_off_waiting(state: State, document: str) -> bool:
    """Whether a one-off fault has yet to be acknowledged with ``document`` (its name)."""
    return any(
        fault.once and fault.acknowledged_at_ms is None
        for subject, known in state.subjects()
        if _is_shown(subject, document)
        for fault in known.faults.values()
    )


def _judge(tables: Catalogue, subject: Subject, code: str, severity: Severity | None) -> Verdict:
    """The level of a code on a subject of its kind, and why."""
    match subject.kind:
        case "chip":
            return tables.judge(code, severity)
        case "switch":
            return tables.judge_switch(code)
    return tables.judge_node(code)


def _time_of(item: Input) -> int:
    match item:
        case Observation():
            return item.seen_at_ms
        case SourceBlind():
            return item.since_ms
    return item.at_ms


def _due_ms(fault: Fault) -> int | None:
    """When time alone ends ``fault``."""
    if fault.once:
        at_ms, wait_ms = fault.acknowledged_at_ms, ONCE_VISIBLE_MS
    else:
        at_ms, wait_ms = fault.doubted_at_ms, DOUBT_MS
    return None if at_ms is None else at_ms + wait_ms


def _deadline_ms(subjects: Iterable[SubjectState]) -> int | None:
    dues = (_due_ms(fault) for known in subjects for fault in known.faults.values())
    return min((due for due in dues if due is not None), default=None)


def _sooner(
    deadline_ms: int | None, known: SubjectState, item: Observation | SourceBlind | SourceAnswered
) -> int | None:
    """The next deadline when ``item`` was taken in; too early a one does no harm."""
    fault = known.faults.get(item.code) if isinstance(item, Observation) else None
    dues = (deadline_ms, None if fault is None else _due_ms(fault))
    return min((due for due in dues if due is not None), default=None)


def _expire(
    subjects: Mapping[Subject, SubjectState], now_ms: int, draft: _Draft
) -> dict[Subject, SubjectState]:
    """End one-off faults that every reader had time to see, and doubts that nothing cleared."""
    left = dict(subjects)
    for subject, known in subjects.items():
        for fault in known.faults.values():
            due_ms = _due_ms(fault)
            if due_ms is None or due_ms > now_ms:
                continue
            because = (
                "a one-off event, published long enough to be seen"
                if fault.once
                else "its recovery looked older than it, but no audit found it since"
            )
            draft.note(ChangeKind.ENDED, subject, fault, due_ms, because, fault.level)
            known = replace(known, faults=_without(known.faults, fault.code))
            if not fault.once:
                ended = Ended(due_ms, replace(fault, doubted_at_ms=None))
                known = replace(known, ended=known.ended | {fault.code: ended})
        left[subject] = known
    return left


def _acknowledge(known: SubjectState, item: Acknowledged) -> SubjectState:
    for fault in known.faults.values():
        shown = fault.once and fault.revision <= item.state_revision
        if shown and fault.acknowledged_at_ms is None:
            fault = replace(fault, acknowledged_at_ms=item.at_ms)
            known = replace(known, faults=known.faults | {fault.code: fault})
    return known


def _apply(
    known: SubjectState, item: Observation | SourceBlind | SourceAnswered, draft: _Draft
) -> SubjectState:
    if isinstance(item, SourceBlind):
        blindness = Blindness(item.since_ms, item.reason)
        if known.blind.get(item.source) == blindness:
            return known
        return replace(known, blind=known.blind | {item.source: blindness})
    if isinstance(item, SourceAnswered):
        if item.source in known.answered and item.source not in known.blind:
            return known
        answered = tuple(sorted({*known.answered, item.source}))
        blind = {source: why for source, why in known.blind.items() if source != item.source}
        return replace(known, answered=answered, blind=blind)
    if item.code == RESET_FINISHED and item.subject.kind == "chip":
        return known  # it asks for an audit; it is no fault
    held = known.faults.get(item.code)
    match item.assertion:
        case Assertion.OCCUR:
            return _occur(known, held, item, draft)
        case Assertion.ONCE:
            return _once(known, held, item, draft)
        case Assertion.PRESENT:
            return _present(known, held, item, draft)
        case Assertion.RECOVER:
            return _recover(known, held, item, draft)
        case Assertion.ABSENT:
            if held is None or held.once:
                return known
            because = "its source does not list it any more"
            draft.note(ChangeKind.ENDED, item.subject, held, item.seen_at_ms, because, held.level)
            return replace(known, faults=_without(known.faults, held.code))


def _occur(
    known: SubjectState, held: Fault | None, item: Observation, draft: _Draft
) -> SubjectState:
    if held is not None:
        if is_before(item, held.serial, held.raised_at_ms):
            return known
        newest = replace(held, serial=item.serial, raised_at_ms=item.driver_raised_at_ms)
        if item.severity is not None:
            newest = replace(newest, severity=item.severity)
        return _update(known, held, newest, item, draft, "occurred")
    ended = known.ended.get(item.code)
    if ended is not None and is_over(item, ended):
        if ended.fault is not None:
            return known  # reported twice, once after its recovery
        fault = _new_fault(item, draft)
        draft.note(
            ChangeKind.BEGAN, item.subject, fault, item.seen_at_ms, fault.because, None, fault.level
        )
        because = "its recovery was reported before it"
        draft.note(ChangeKind.ENDED, item.subject, fault, item.seen_at_ms, because, fault.level)
        return replace(known, ended=known.ended | {item.code: replace(ended, fault=fault)})
    return _begin(known, _new_fault(item, draft), item, draft)


def _once(
    known: SubjectState, held: Fault | None, item: Observation, draft: _Draft
) -> SubjectState:
    if held is None:
        return _begin(known, replace(_new_fault(item, draft), once=True), item, draft)
    because = "a one-off event of a code that holds already"
    draft.note(
        ChangeKind.REPEATED, item.subject, held, item.seen_at_ms, because, held.level, held.level
    )
    return known


def _present(
    known: SubjectState, held: Fault | None, item: Observation, draft: _Draft
) -> SubjectState:
    if held is not None:
        return _update(known, held, held, item, draft, "is listed by the driver")
    ended = known.ended.get(item.code)
    if ended is None or ended.fault is None or not is_recent(ended, item.seen_at_ms):
        return _begin(known, _new_fault(item, draft), item, draft)
    fault = replace(ended.fault, revision=draft.revision + 1)
    because = f"{item.code} was reported recovered and is still listed by the driver"
    draft.note(
        ChangeKind.RETURNED, item.subject, fault, item.seen_at_ms, because, None, fault.level
    )
    return replace(
        known,
        faults=known.faults | {item.code: fault},
        ended=_without(known.ended, item.code),
    )


def _recover(
    known: SubjectState, held: Fault | None, item: Observation, draft: _Draft
) -> SubjectState:
    if held is None:
        ended = known.ended.get(item.code)
        if ended is not None and is_recent(ended, item.seen_at_ms):
            return known
        return replace(known, ended=_remember(known, item, None))
    if held.once:
        return known
    if is_before(item, held.serial, held.raised_at_ms):
        if held.doubted_at_ms is not None:
            return known
        doubted = replace(held, doubted_at_ms=item.seen_at_ms)
        return replace(known, faults=known.faults | {held.code: doubted})
    because = "the driver reported its recovery"
    draft.note(ChangeKind.ENDED, item.subject, held, item.seen_at_ms, because, held.level)
    return replace(
        known, faults=_without(known.faults, held.code), ended=_remember(known, item, held)
    )


def _new_fault(item: Observation, draft: _Draft) -> Fault:
    """The first moment of an episode. What a poll says of a chip's severity does not count."""
    severity = item.severity
    if item.subject.kind == "chip":
        if item.assertion is Assertion.PRESENT:
            severity = None
        if severity is None:
            severity = draft.tables.severity_of(item.code)
    verdict = _judge(draft.tables, item.subject, item.code, severity)
    return Fault(
        code=item.code,
        episode=_episode(item, draft),
        source=item.source,
        level=verdict.level,
        because=verdict.because,
        first_seen_ms=item.seen_at_ms,
        revision=draft.revision + 1,
        severity=severity,
        raised_at_ms=item.driver_raised_at_ms,
        serial=item.serial,
    )


def _begin(known: SubjectState, fault: Fault, item: Observation, draft: _Draft) -> SubjectState:
    draft.note(
        ChangeKind.BEGAN, item.subject, fault, item.seen_at_ms, fault.because, None, fault.level
    )
    return replace(known, faults=known.faults | {fault.code: fault})


def _update(
    known: SubjectState, held: Fault, seen: Fault, item: Observation, draft: _Draft, what: str
) -> SubjectState:
    """A code that holds was seen again: it lasts without doubt, maybe with another severity."""
    fault = replace(seen, once=False, acknowledged_at_ms=None, doubted_at_ms=None)
    if fault == held:
        return known
    if fault.severity != held.severity:
        verdict = _judge(draft.tables, item.subject, fault.code, fault.severity)
        fault = replace(fault, level=verdict.level, because=verdict.because)
    if fault.level != held.level or fault.severity != held.severity or held.once:
        because = f"a one-off event before, it {what}" if held.once else fault.because
        draft.note(
            ChangeKind.CHANGED,
            item.subject,
            fault,
            item.seen_at_ms,
            because,
            held.level,
            fault.level,
        )
    return replace(known, faults=known.faults | {fault.code: fault})


def _remember(known: SubjectState, item: Observation, fault: Fault | None) -> dict[str, Ended]:
    kept = {code: ended for code, ended in known.ended.items() if is_recent(ended, item.seen_at_ms)}
    kept[item.code] = Ended(item.seen_at_ms, fault, item.driver_raised_at_ms, item.serial)
    return kept


def _episode(item: Observation, draft: _Draft) -> str:
    parts = (
        draft.state.node,
        str(item.subject),
        item.code,
        draft.state.boot_id,
        str(draft.revision + 1),
        str(item.seen_at_ms),
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


T = TypeVar("T")


def _without(items: dict[str, T], key: str) -> dict[str, T]:
    return {code: item for code, item in items.items() if code != key}
