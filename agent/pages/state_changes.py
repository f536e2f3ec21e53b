"""What changed in the state of the node, as events of the stream."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from agent.policy.state import SubjectState
from contract.pages.changes import BlindChange, FaultChange
from contract.pages.faults import subject_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.policy.state import PolicyState
    from contract.observation import Subject
    from service.pages.event_stream import Stream

_UNKNOWN = SubjectState()


class StateChanges:
    """Sends changes of ``state`` to ``stream``."""

    def __init__(
        self,
        stream: Stream,
        state: Callable[[], PolicyState],
        device_type: Callable[[], str],
        wall_clock: Callable[[], int],
    ) -> None:
        self.stream = stream
        self._state = state
        self._device_type = device_type
        self._wall_clock = wall_clock
        self._compared = state()
        self._is_due = False

    def wake(self) -> None:
        """Compare soon, after the publishers of the change have run."""
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self.compare)

    def compare(self) -> None:
        """Send the changes since the last comparison."""
        self._is_due = False
        before, self._compared = self._compared, self._state()
        now, at_ms = self._compared, self._wall_clock()
        then = dict(before.subjects())
        for subject, current in now.subjects():
            old = then.pop(subject, _UNKNOWN)
            # Values do not change: what was not replaced is the same.
            if old is not current:
                self._send(subject, old, current, at_ms)
        for subject, old in then.items():
            self._send(subject, old, _UNKNOWN, at_ms)

    def _send(self, subject: Subject, old: SubjectState, new: SubjectState, at_ms: int) -> None:
        node = self._compared.node
        name = subject_name(subject, self._device_type())
        for code in sorted(old.faults.keys() | new.faults.keys()):
            before, fault = old.faults.get(code), new.faults.get(code)
            before_level = None if before is None else before.level
            if fault is None:
                change = FaultChange(node, at_ms, name, code, before_level, None)
            elif fault.level != before_level:
                severity = None if fault.severity is None else fault.severity.word
                answer = (severity, fault.device_fault, "agent")
                change = FaultChange(node, at_ms, name, code, before_level, fault.level, *answer)
            else:
                continue
            self.stream.send("change", change, {node})
        chip = name if subject.kind == "chip" else None
        for source in sorted(old.blind.keys() | new.blind.keys()):
            if old.blind.get(source) != new.blind.get(source):
                blindness = new.blind.get(source) or old.blind[source]
                of_part = f"{source} {subject.part}".rstrip()
                is_over = source not in new.blind
                blind = BlindChange(
                    node, at_ms, of_part, blindness.since_ms, blindness.reason, chip, is_over
                )
                self.stream.send("blind", blind, {node})
