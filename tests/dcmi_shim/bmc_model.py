"""A BMC in a few lines, to hold conversations with; replies are without completion code."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dcmi_shim.ipmi.alarms import Alarm, Reading

Event: TypeAlias = tuple[int, int, int, int, int]
"""Code, seconds, severity, subject type, index."""

FAN: Event = (0x28000009, 1_700_000_000, 2, 0x04, 3)


def index_of(data: bytes) -> int:
    """Return the first index that a request for the list has."""
    first: int = struct.unpack_from("<H", data, 5)[0]
    return first


def page(
    events: Sequence[Event],
    total: int | None = None,
    count: int | None = None,
    manufacturer: bytes = b"\xdb\x07\x00",
) -> bytes:
    """Return one reply; its fields match the events unless they are given."""
    total = len(events) if total is None else total
    count = len(events) if count is None else count
    head = struct.pack("<3sHBB", manufacturer, total, count, 0)
    return head + b"".join(struct.pack("<IIBBB4x", *event) for event in events)


def fans(count: int, code: int = 0x28000009) -> list[Event]:
    """Return ``count`` alarms, one on each fan."""
    return [(code, 1_700_000_000 + number, 2, 0x04, number) for number in range(count)]


def pages_of(events: Sequence[Event], size: int = 10) -> Callable[[int], bytes]:
    """Return a function that answers as a BMC does: with ``events`` in pages of ``size``."""
    return lambda first: page(events[first : first + size], total=len(events))


def hold(reading: Reading, answer: Callable[[int], bytes]) -> tuple[tuple[Alarm, ...], list[int]]:
    """Answer a reading's requests; return its alarms and the requested indices."""
    asked: list[int] = []
    request = next(reading)
    while True:
        asked.append(index_of(request.data))
        try:
            request = reading.send(answer(asked[-1]))
        except StopIteration as stop:
            return stop.value, asked
