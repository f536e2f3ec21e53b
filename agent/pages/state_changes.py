"""What changed in the state of the node, as events of the stream."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from contract.pages.changes import BlindChange, FaultChange
from contract.pages.subjects import subject_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent.policy.state import PolicyState, SubjectState
    from contract.observation import Subject
    from service.pages.event_stream import Stream


class StateChanges:
    """Sends to ``stream`` what is otherwise in ``state`` than when it was compared last."""

    def __init__(
        self,
        stream: Stream,
        state: Callable[[], PolicyState],
        device_type: Callable[[], str],
        wall_clock: Callable[[], int],
    ) -> None:
        self._stream = stream
        self._state = state
        self._device_type = device_type
        self._wall_clock = wall_clock
        self._compared = state()
        self._is_due = False

    def wake(self) -> None:
        """Compare soon: after whoever publishes the change was woken."""
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self.compare)

    def compare(self) -> None:
        """Send what has changed."""
        self._is_due = False
        before, self._compared = self._compared, self._state()
        now, at_ms = self._compared, self._wall_clock()
        then = dict(before.subjects())
        for subject, known in now.subjects():
            old = then.pop(subject, None)
            # Values do not change: what was not replaced is the same.
            if old is not known:
                self._send(subject, old, known, at_ms)
        for subject, old in then.items():
            self._send(subject, old, None, at_ms)

    def _send(
        self, subject: Subject, old: SubjectState | None, new: SubjectState | None, at_ms: int
    ) -> None:
        node = self._compared.node
        name = subject_name(subject, self._device_type())
        for fault in _faults(name, node, old, new, at_ms):
            self._stream.send("change", fault, {node})
        chip = name if subject.kind == "chip" else None
        for blind in _blind(chip, subject.part, node, old, new, at_ms):
            self._stream.send("blind", blind, {node})


def _faults(
    name: str, node: str, old: SubjectState | None, new: SubjectState | None, at_ms: int
) -> Iterator[FaultChange]:
    was = {} if old is None else old.faults
    holds = {} if new is None else new.faults
    for code in sorted(was.keys() | holds.keys()):
        before, fault = was.get(code), holds.get(code)
        before_level = None if before is None else before.level
        if fault is None:
            yield FaultChange(node, at_ms, name, code, before_level, None)
        elif fault.level != before_level:
            severity = None if fault.severity is None else fault.severity.word
            answer = (severity, fault.device_fault, "agent")
            yield FaultChange(node, at_ms, name, code, before_level, fault.level, *answer)


def _blind(
    chip: str | None,
    part: str,
    node: str,
    old: SubjectState | None,
    new: SubjectState | None,
    at_ms: int,
) -> Iterator[BlindChange]:
    was = {} if old is None else old.blind
    holds = {} if new is None else new.blind
    for source in sorted(was.keys() | holds.keys()):
        one = holds.get(source, was.get(source))
        if one is not None and was.get(source) != holds.get(source):
            of_part = f"{source} {part}".rstrip()
            is_over = source not in holds
            yield BlindChange(node, at_ms, of_part, one.since_ms, one.reason, chip, is_over)
