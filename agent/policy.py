"""From reports to faults and levels: a pure function with the time passed in.

The rules are those of ``docs/architecture.md`` ("The policy"); levels come from the catalogue
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
)
from contract.codes import RESET_FINISHED
from contract.names import DEVICE_INFO_PREFIX
from contract.observation import (
    Assertion,
    Gap,
    Observation,
    Report,
    SourceAnswered,
    SourceBlind,
    Subject,
    chip_subject,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from contract.catalogue import Catalogue
    from contract.levels import ChipLevel

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
        old: ChipLevel | None = None,
        new: ChipLevel | None = None,
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
    chips = dict(state.chips)
    deadline_ms = _deadline_ms(chips)
    for item in inputs:
        if deadline_ms is not None and deadline_ms <= _time_of(item):
            chips = _expire(chips, _time_of(item), draft)
            deadline_ms = _deadline_ms(chips)
        if isinstance(item, Acknowledged):
            if item.document.startswith(DEVICE_INFO_PREFIX):
                chips = {chip: _acknowledge(known, item) for chip, known in chips.items()}
                deadline_ms = _deadline_ms(chips)
            continue
        if isinstance(item, Gap) or item.subject.kind != "chip":
            continue  # after a gap an audit repairs what was missed
        before = chips.get(item.subject.id, _NEVER_SEEN)
        after = _apply(before, item, draft)
        if after is not before:
            chips[item.subject.id] = after
            draft.revision += 1
            deadline_ms = _sooner(deadline_ms, after, item)
    if deadline_ms is not None and deadline_ms <= now_ms:
        chips = _expire(chips, now_ms, draft)
    if draft.revision == state.revision and chips == state.chips:
        return state, tuple(draft.changes)
    return replace(state, revision=draft.revision, chips=chips), tuple(draft.changes)


def next_deadline_ms(state: State, tables: Catalogue) -> int | None:
    """When ``step`` wants to be called though nothing was reported; ``None`` for never."""
    del tables  # the shipped rules that wait for a time come with the customisation
    return _deadline_ms(state.chips)


_NEVER_SEEN = ChipState()


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


def _deadline_ms(chips: Mapping[int, ChipState]) -> int | None:
    dues = (_due_ms(fault) for known in chips.values() for fault in known.faults.values())
    return min((due for due in dues if due is not None), default=None)


def _sooner(
    deadline_ms: int | None, known: ChipState, item: Observation | SourceBlind | SourceAnswered
) -> int | None:
    """The next deadline when ``item`` was taken in; too early a one does no harm."""
    fault = known.faults.get(item.code) if isinstance(item, Observation) else None
    dues = (deadline_ms, None if fault is None else _due_ms(fault))
    return min((due for due in dues if due is not None), default=None)


def _expire(chips: Mapping[int, ChipState], now_ms: int, draft: _Draft) -> dict[int, ChipState]:
    """End one-off faults that every reader had time to see, and doubts that nothing cleared."""
    left = dict(chips)
    for chip, known in chips.items():
        for fault in known.faults.values():
            due_ms = _due_ms(fault)
            if due_ms is None or due_ms > now_ms:
                continue
            because = (
                "a one-off event, published long enough to be seen"
                if fault.once
                else "its recovery looked older than it, but no audit found it since"
            )
            draft.note(ChangeKind.ENDED, chip_subject(chip), fault, due_ms, because, fault.level)
            known = replace(known, faults=_without(known.faults, fault.code))
            if not fault.once:
                ended = Ended(due_ms, replace(fault, doubted_at_ms=None))
                known = replace(known, ended=known.ended | {fault.code: ended})
        left[chip] = known
    return left


def _acknowledge(known: ChipState, item: Acknowledged) -> ChipState:
    for fault in known.faults.values():
        shown = fault.once and fault.revision <= item.state_revision
        if shown and fault.acknowledged_at_ms is None:
            fault = replace(fault, acknowledged_at_ms=item.at_ms)
            known = replace(known, faults=known.faults | {fault.code: fault})
    return known


def _apply(
    known: ChipState, item: Observation | SourceBlind | SourceAnswered, draft: _Draft
) -> ChipState:
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
    if item.code == RESET_FINISHED:
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
            because = "the driver does not list it any more"
            draft.note(ChangeKind.ENDED, item.subject, held, item.seen_at_ms, because, held.level)
            return replace(known, faults=_without(known.faults, held.code))


def _occur(known: ChipState, held: Fault | None, item: Observation, draft: _Draft) -> ChipState:
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


def _once(known: ChipState, held: Fault | None, item: Observation, draft: _Draft) -> ChipState:
    if held is None:
        return _begin(known, replace(_new_fault(item, draft), once=True), item, draft)
    because = "a one-off event of a code that holds already"
    draft.note(
        ChangeKind.REPEATED, item.subject, held, item.seen_at_ms, because, held.level, held.level
    )
    return known


def _present(known: ChipState, held: Fault | None, item: Observation, draft: _Draft) -> ChipState:
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


def _recover(known: ChipState, held: Fault | None, item: Observation, draft: _Draft) -> ChipState:
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
    """The first moment of an episode. What a poll says of the severity does not count."""
    severity = None if item.assertion is Assertion.PRESENT else item.severity
    if severity is None:
        severity = draft.tables.severity_of(item.code)
    verdict = draft.tables.judge(item.code, severity)
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


def _begin(known: ChipState, fault: Fault, item: Observation, draft: _Draft) -> ChipState:
    draft.note(
        ChangeKind.BEGAN, item.subject, fault, item.seen_at_ms, fault.because, None, fault.level
    )
    return replace(known, faults=known.faults | {fault.code: fault})


def _update(
    known: ChipState, held: Fault, seen: Fault, item: Observation, draft: _Draft, what: str
) -> ChipState:
    """A code that holds was seen again: it lasts without doubt, maybe with another severity."""
    fault = replace(seen, once=False, acknowledged_at_ms=None, doubted_at_ms=None)
    if fault == held:
        return known
    if fault.severity != held.severity:
        verdict = draft.tables.judge(fault.code, fault.severity)
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


def _remember(known: ChipState, item: Observation, fault: Fault | None) -> dict[str, Ended]:
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
