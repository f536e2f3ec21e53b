"""What becomes of events between child and reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from contract.codes.levels import Severity
from dcmi_shim.values import DriverEvent, DriverGap
from dcmi_shim.worker.event_queue import EventQueue, Overlap

if TYPE_CHECKING:
    from collections.abc import Sequence


def event(serial: int, seen_at_ms: int = 0) -> DriverEvent:
    return DriverEvent(
        1, 0, Severity.MINOR, 1, seen_at_ms, None, serial, 0, 0, 0, 0, name="", information=""
    )


async def _read(queue: EventQueue[DriverEvent], count: int) -> list[DriverEvent | DriverGap]:
    reader = queue.read()
    return [await anext(reader) for _ in range(count)]


async def test_events_keep_their_order_and_adjacent_gaps_become_one() -> None:
    queue: EventQueue[DriverEvent] = EventQueue(lambda: 7, "driver")
    queue.add_event(event(1))
    queue.gap("one")
    queue.gap("two")
    queue.add_event(event(2))
    assert await _read(queue, 3) == [event(1), DriverGap(7, "one; two"), event(2)]


async def test_a_full_queue_counts_what_it_drops() -> None:
    queue: EventQueue[DriverEvent] = EventQueue(lambda: 7, "driver")
    for serial in range(10_000):
        queue.add_event(event(serial))
    received = await _read(queue, 8193)
    assert received == [
        *map(event, range(8192)),
        DriverGap(7, "1808 events dropped: the agent's queue was full"),
    ]


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
    passed = [serial for serial in before if not overlap.is_copy(event(serial), 1)]
    overlap.expect_copies(1, 2)
    for turn in [*turns, *[True] * len(old), *[False] * len(new)]:
        queue, child = (old, 1) if turn else (new, 2)
        if queue and not overlap.is_copy(event(queue[0], seen_at_ms=child), child):
            passed.append(queue[0])
        del queue[:1]
    overlap.end(1)
    assert sorted(passed) == sorted(serials)
    assert not overlap.is_copy(event(99), 2)
