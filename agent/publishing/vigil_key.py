"""Our own data key: which sources are blind, and the agent's answers about faults.

A source is named once it has been blind for ``SETTLE_MS``; that of a chip which has not answered
since the start at once, because the process before may have named it. The text changes at most once
in ``PACE_SECONDS``, so that a source that comes and goes costs few writes; other writes meanwhile
carry the last text. Answers about faults change with the faults, without a pause.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

import msgspec

from contract.codes.catalogue import shipped
from contract.codes.chip_codes import is_code
from contract.codes.levels import is_device_fault
from contract.codes.storage_faults import RESOURCES
from contract.documents.vigil_key import BlindSource, FaultAnswer, encode_vigil_key
from contract.observation import storage_subject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent.policy.state import ChipState, PolicyState, SubjectState
    from contract.codes.levels import Severity

PACE_SECONDS = 10.0
SETTLE_MS = 2_000
_STORAGE = {str(storage_subject(client)): client for client in RESOURCES}


def blind_sources(state: PolicyState) -> Iterator[BlindSource]:
    """Yield every source that gives no answer: those about the node first, then those about
    chips.
    """
    # Sorted, because the order of reports must not change the text.
    for subject, subject_state in sorted(state.others.items()):
        client = f" {_STORAGE[subject]}" if subject in _STORAGE else ""
        yield from _of(subject_state, client, None)
    for chip, subject_state in sorted(state.chips.items()):
        yield from _of(subject_state, "", chip)


def _of(subject_state: SubjectState, client: str, chip: int | None) -> Iterator[BlindSource]:
    for source, blindness in sorted(subject_state.blind.items()):
        yield BlindSource(f"{source}{client}", blindness.since_ms, blindness.reason, chip)


class NamedSource(msgspec.Struct, frozen=True):
    """The sources that are named as blind, when that changed last, and the text of both.

    ``text`` is ``None`` where nothing is named.
    """

    sources: tuple[BlindSource, ...] = ()
    changed_at_ms: int = 0
    text: str | None = None


NOTHING_NAMED = NamedSource()


def key_with_answers(named: NamedSource, state: PolicyState) -> str | None:
    """Return the text of the key in device-info: blind sources, and an answer about each fault."""
    answers = [
        answer
        for chip, chip_state in state.chips.items()
        if chip_state.faults or chip_state.upgrades
        for answer in _answers(chip, chip_state)
    ]
    if not answers:
        return named.text
    # Answers that repeat the catalogue are left out first where there is no room for all.
    answers.sort(key=lambda answer: (_is_of_catalogue(answer), answer.chip, answer.code))
    return encode_vigil_key(named.sources, named.changed_at_ms, answers)


def _answers(chip: int, chip_state: ChipState) -> Iterator[FaultAnswer]:
    for fault in chip_state.faults.values():
        yield _answer(chip, fault.code, fault.severity, device_fault=fault.device_fault)
    for code, upgrade in {upgrade.code: upgrade for upgrade in chip_state.upgrades}.items():
        if code not in chip_state.faults and is_code(code):
            severity = upgrade.severity
            yield _answer(chip, code, severity, device_fault=is_device_fault(severity))


def _answer(chip: int, code: str, severity: Severity | None, *, device_fault: bool) -> FaultAnswer:
    word = None if severity is None else severity.word
    return FaultAnswer(chip, code, word, device_fault)


def _is_of_catalogue(answer: FaultAnswer) -> bool:
    severity = shipped().severity_of(answer.code)
    if severity is None:
        return False
    return (answer.severity, answer.device_fault) == (severity.word, is_device_fault(severity))


class VigilKeyText:
    """Derives the named sources from ``state``.

    ``wake`` is called when time may have changed them.
    """

    def __init__(
        self,
        state: Callable[[], PolicyState],
        wall_clock: Callable[[], int],
        wake: Callable[[], None],
    ) -> None:
        self._state = state
        self._wall_clock = wall_clock
        self._wake = wake
        self._named = NOTHING_NAMED
        self._undated: str | None = None
        """The text without the time of its last change."""
        self._changed_at = -math.inf
        self._of: PolicyState | None = None
        self._due_at = -math.inf
        self._timer: asyncio.TimerHandle | None = None

    def named(self) -> NamedSource:
        """Return the sources named now; the same object while they do not change."""
        loop, state = asyncio.get_running_loop(), self._state()
        now = loop.time()
        if state is self._of and now < self._due_at:
            return self._named
        settled, settles_in = self._settled(state)
        undated = encode_vigil_key(settled)
        due_at = now + settles_in
        if undated != self._undated:
            due = self._changed_at + PACE_SECONDS
            if now >= due:
                now_ms = self._wall_clock()
                text = encode_vigil_key(settled, now_ms)
                self._named = NamedSource(tuple(settled), now_ms, text)
                self._undated, self._changed_at = undated, now
            else:
                due_at = min(due_at, due)
        self._of, self._due_at = state, due_at
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if math.isinf(due_at) else loop.call_at(due_at, self._wake)
        return self._named

    def _settled(self, state: PolicyState) -> tuple[list[BlindSource], float]:
        """Return the sources to name, and the seconds until the next one is due."""
        now_ms = self._wall_clock()
        settled, next_ms = [], math.inf
        for entry in blind_sources(state):
            is_silent = entry.chip is not None and state.chips[entry.chip].silent
            left_ms = 0 if is_silent else entry.since_ms + SETTLE_MS - now_ms
            if left_ms <= 0:
                settled.append(entry)
            else:
                # A clock that was set back does not keep it unnamed for long.
                next_ms = min(next_ms, left_ms, SETTLE_MS)
        return settled, next_ms / 1000
