"""What becomes of events between child and reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from dcmi_shim.values import DriverEvent, DriverGap
from dcmi_shim.worker.event_queue import EventQueue, Overlap, driver_event
from dcmi_shim.worker.process import RawEvent

if TYPE_CHECKING:
    from collections.abc import Sequence


def raw(serial: int, seen_at_ms: int = 0, severity: int = 1) -> RawEvent:
    return RawEvent(
        1, 0, severity, 1, seen_at_ms, None, serial, 0, 0, 0, 0, 0, name="", information=""
    )


async def _read(
    queue: EventQueue[RawEvent, DriverEvent], count: int
) -> list[DriverEvent | DriverGap]:
    reader = queue.read()
    return [await anext(reader) for _ in range(count)]


async def test_order_severities_and_gaps() -> None:
    queue = EventQueue(lambda: 7, driver_event, "driver")
    queue.add_event(raw(1, severity=3))
    queue.gap("one")
    queue.gap("two")
    queue.add_event(raw(2, severity=9))
    first, gap, second = await _read(queue, 3)
    assert isinstance(first, DriverEvent)
    assert isinstance(second, DriverEvent)
    assert (first.severity, second.severity) == (3, None)
    assert gap == DriverGap(7, "one; two")


async def test_a_full_queue_counts_what_it_drops() -> None:
    queue = EventQueue(lambda: 7, driver_event, "driver")
    for serial in range(10_000):
        queue.add_event(raw(serial))
    received = await _read(queue, 8193)
    assert [item.serial for item in received[:-1] if isinstance(item, DriverEvent)] == list(
        range(8192)
    )
    assert received[-1] == DriverGap(7, "1808 events dropped: the agent's queue was full")


@given(
    st.lists(st.integers(0, 3), max_size=12),
    st.integers(0, 12),
    st.lists(st.booleans(), max_size=30),
)
def test_two_children_show_each_event_once(
    serials: Sequence[int], subscribed_after: int, turns: Sequence[bool]
) -> None:
    """The old child shows all, the new one those after its subscription; equal ones occur."""
    overlap = Overlap()
    before = list(serials[:subscribed_after])
    old, new = (list(serials[subscribed_after:]) for _ in range(2))
    passed = [serial for serial in before if not overlap.is_copy(raw(serial), 1)]
    overlap.begin(1, 2)
    for turn in [*turns, *[True] * len(old), *[False] * len(new)]:
        queue, child = (old, 1) if turn else (new, 2)
        if queue and not overlap.is_copy(raw(queue[0], seen_at_ms=child), child):
            passed.append(queue[0])
        del queue[:1]
    overlap.end(1)
    assert sorted(passed) == sorted(serials)
    assert not overlap.is_copy(raw(99), 2)
