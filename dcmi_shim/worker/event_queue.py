"""Events on their way from driver children to the one reader in the agent."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from contract.plural import plural
from dcmi_shim.values import DriverGap

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from dcmi_shim.values import DriverEvent, DriverSwitchEvent

_log = logging.getLogger(__name__)
_MAX_LENGTH = 8192
_MAX_BATCH = 64

Event = TypeVar("Event")


class EventQueue(Generic[Event]):
    """A bounded queue of events. Those that do not fit become one counted gap."""

    def __init__(self, wall_clock: Callable[[], int], name: str) -> None:
        self._wall_clock = wall_clock
        self._name = name
        self._items: deque[Event | DriverGap] = deque()
        self._filled = asyncio.Event()
        self._dropped = 0

    def add_event(self, event: Event) -> None:
        """Add an event."""
        # Once one is dropped, all later ones are until the gap is in the queue: the order stays.
        if self._dropped or len(self._items) >= _MAX_LENGTH:
            self._dropped += 1
        else:
            self._items.append(event)
        self._filled.set()

    def gap(self, reason: str) -> None:
        """Report that events may have been missed until now."""
        _log.warning("%s events: %s", self._name, reason)
        last = self._items[-1] if self._items else None
        # Gaps in a row are one, so that a driver that fails for hours fills no queue.
        if isinstance(last, DriverGap):
            self._items.pop()
            reason = f"{last.reason}; {reason}"[-_MAX_LENGTH:]
        self._items.append(DriverGap(self._wall_clock(), reason))
        self._filled.set()

    async def read(self) -> AsyncIterator[Event | DriverGap]:
        """Yield events and gaps in order, without end. One reader only.

        Events that are queued already are read in one turn of the loop, up to ``_MAX_BATCH``.
        """
        while True:
            await self._filled.wait()
            while self._items:
                for _ in range(min(_MAX_BATCH, len(self._items))):
                    yield self._items.popleft()
                # A flood must not block all other tasks.
                await asyncio.sleep(0)
            self._filled.clear()
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                self.gap(f"{plural(dropped, 'event')} dropped: the agent's queue was full")


class Overlap:
    """Recognises the second copy of an event while two subscribed children run at once.

    The library sends both the same. So the n-th equal event of one child is a copy when the other
    has sent it n times already.
    """

    def __init__(self) -> None:
        self._seen: dict[int, Counter[DriverEvent | DriverSwitchEvent]] = {}

    def expect_copies(self, *children: int) -> None:
        """Expect the same events from ``children`` (their process ids) from now on."""
        for child in children:
            self._seen.setdefault(child, Counter())

    def end(self, child: int) -> None:
        """Forget ``child``, which ended a while ago: no process has older events any more."""
        self._seen.pop(child, None)
        # One child alone sends no copies, and its counts would grow without end.
        if len(self._seen) <= 1:
            self._seen.clear()

    def is_copy(self, event: DriverEvent | DriverSwitchEvent, child: int) -> bool:
        """Return whether another child has sent ``event``, which ``child`` sends now."""
        mine = self._seen.get(child)
        if mine is None:
            return False
        # Each process reads its own clock; the driver's fields are equal in both copies.
        event = msgspec.structs.replace(event, seen_at_ms=0)
        mine[event] += 1
        return any(
            other[event] >= mine[event]
            for pid, other in self._seen.items()
            if pid != child and event in other
        )
