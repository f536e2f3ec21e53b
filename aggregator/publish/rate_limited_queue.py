"""Limits how many documents are written to a store in a second, and orders them.

The first change of a quiet time goes at once. In any second there are no more writes than allowed.
Of 16 a second, 4 go at once, 12 in the next 750 ms, and so on in each second. What changes while a
document waits goes out with it. The document that has waited longest is next; a touch waits until
no change does, but not so long that a reader notices (``consumers#7.1``, M8). Persistent state,
which no reader waits for, waits too, but however long a storm of changes lasts, one write in some
is state. What can wait leaves room for the next change, which would otherwise find that all turns
were just used.
"""

from __future__ import annotations

import asyncio
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from pacing.token_bucket import TokenBucket

if TYPE_CHECKING:
    from service.clock import Clock

# Of the 16 writes in a second that decision 9 measured with, four may go at once.
_BURST_SHARE = 4
"""One in so many writes of a second may go at once."""

_WINDOW_MS = 1001
"""A second. Times are whole milliseconds, so two of them may be a part of one closer."""

_TOUCH_PATIENCE_MS = 5000
"""A touch that has waited for longer counts as a change. Its period leaves 10 s or more."""

_KEPT_FREE_SHARE = 2
"""Of the writes that may go at once one in so many is left to changes."""

_STATE_SHARE = 8
"""One in so many writes is state, where both wait: two in a second of 16."""

_FIRST_WRITES = 4
"""First writes of documents in flight. Each one in flight has a connection, and its TLS handshake
costs both sides more than the write.
"""

_CAN_WAIT = 2
"""The last rank."""


class WriteKind(Enum):
    """The reason of a write, which decides its turn."""

    CHANGE = "change"
    TOUCH = "touch"
    STATE = "state"


class _QueuedWrite(NamedTuple):
    since_ms: int
    number: int
    kind: WriteKind


class RateLimitedQueue:
    """The documents that wait to be written, in the order of their turns. Pure."""

    def __init__(self, writes_per_second: int) -> None:
        self._writes_per_second = writes_per_second
        burst = max(1, writes_per_second // _BURST_SHARE)
        self._bucket = TokenBucket(burst, writes_per_second)
        # The bucket alone would allow its burst besides ``writes_per_second`` in a second.
        self._last_second: deque[int] = deque(maxlen=writes_per_second)
        """When the last writes were granted; it is as long as a second may have writes."""
        # Touches and state leave this many tokens for the next change.
        self._patient = 1 + burst // _KEPT_FREE_SHARE
        """So many writes must be possible for what can wait."""
        self._waiting: dict[str, _QueuedWrite] = {}
        self._enqueued = 0
        self._since_state = 0
        """Other writes since state was written last."""

    def enqueue(self, name: str, now_ms: int, kind: WriteKind = WriteKind.CHANGE) -> None:
        """Queue a document that is to be written or touched."""
        self._enqueued += 1
        # A document that is queued again keeps one place, and is written once with its newest
        # content.
        self._waiting[name] = _QueuedWrite(now_ms, self._enqueued, kind)

    def withdraw(self, name: str) -> None:
        """Remove a document from the queue."""
        self._waiting.pop(name, None)

    def grant(self, now_ms: int) -> list[str]:
        """Return the documents that may be written now, longest waiting first, once for each
        request.
        """
        granted = []
        while self._waiting:
            name, needed = self._next(now_ms)
            # The first in order decides: a later one that needs less would overtake it.
            if self._wait_ms(now_ms, needed):
                break
            kind = self._waiting.pop(name).kind
            self._since_state = 0 if kind is WriteKind.STATE else self._since_state + 1
            self._bucket.take()
            self._last_second.append(max(now_ms, self._bucket.at_ms))
            granted.append(name)
        return granted

    def _wait_ms(self, now_ms: int, needed: int) -> int:
        """Return after how many milliseconds so many writes are possible; 0: now."""
        bucket_ms = self._bucket.wait_ms(now_ms, needed)
        # So many of the last writes must be more than a second ago, the oldest ones first.
        past = len(self._last_second) + needed - self._writes_per_second
        if past <= 0:
            return bucket_ms
        return max(bucket_ms, self._last_second[past - 1] + _WINDOW_MS - self._bucket.at_ms)

    def _next(self, now_ms: int) -> tuple[str, int]:
        """Return the next document, and how many writes must be possible for its turn."""
        name = min(self._waiting, key=lambda waiting: self._turn(waiting, now_ms))
        return name, self._patient if self._turn(name, now_ms)[0] == _CAN_WAIT else 1

    def _turn(self, name: str, now_ms: int) -> tuple[int, int]:
        waiting = self._waiting[name]
        match waiting.kind:
            case WriteKind.CHANGE:
                rank = 1
            case WriteKind.TOUCH:
                # After 5 s a touch is as urgent as a change, or a storm would starve it past the 60
                # s of M8.
                rank = _CAN_WAIT if now_ms - waiting.since_ms < _TOUCH_PATIENCE_MS else 1
            case WriteKind.STATE:
                # Rank 0 comes before all changes: the state of a storm is written while it lasts.
                rank = _CAN_WAIT if self._since_state < _STATE_SHARE - 1 else 0
        return rank, waiting.number

    def next_ms(self) -> int | None:
        """Return the steady time of the next ``grant``; ``None`` while none waits."""
        if not self._waiting:
            return None
        now_ms = self._bucket.at_ms
        _, needed = self._next(now_ms)
        return now_ms + self._wait_ms(now_ms, needed)


class WriteQueue:
    """Lets tasks wait for the turns of a ``RateLimitedQueue``, one task for each document."""

    def __init__(self, writes_per_second: int, clock: Clock) -> None:
        self._clock = clock
        self._pace = RateLimitedQueue(writes_per_second)
        self._turns: dict[str, asyncio.Future[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.first_writes = asyncio.Semaphore(_FIRST_WRITES)
        """Held by each first write of a document, which needs no turn."""

    async def write(self, name: str, kind: WriteKind = WriteKind.CHANGE) -> None:
        """Wait until a document may be written."""
        try:
            await self._enqueue(name, kind)
        finally:
            self._withdraw(name)

    async def touch(self, name: str, changed: asyncio.Event) -> bool:
        """Wait until a document may be touched, or has ``changed``; return whether it may be
        touched.
        """
        turn = self._enqueue(name, WriteKind.TOUCH)
        if turn.done():
            return True
        # A document that changes meanwhile is written, which replaces the touch.
        change = asyncio.ensure_future(changed.wait())
        try:
            await asyncio.wait((turn, change), return_when=asyncio.FIRST_COMPLETED)
        finally:
            change.cancel()
            # In ``finally``: a cancelled caller must not leave a place that takes a token.
            self._withdraw(name)
        return turn.done() and not turn.cancelled()

    def _enqueue(self, name: str, kind: WriteKind) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        now_ms = self._clock().steady_ms
        turn = self._turns[name] = loop.create_future()
        self._pace.enqueue(name, now_ms, kind)
        self._grant()
        return turn

    def _withdraw(self, name: str) -> None:
        turn = self._turns.pop(name, None)
        if turn is not None:
            turn.cancel()
            self._pace.withdraw(name)

    def _grant(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now_ms = self._clock().steady_ms
        for name in self._pace.grant(now_ms):
            self._turns.pop(name).set_result(None)
        at_ms = self._pace.next_ms()
        if at_ms is not None:
            # At least a millisecond: a timer of 0 would run in the same iteration with the same
            # clock.
            seconds = max(1, at_ms - now_ms) / 1000
            self._timer = asyncio.get_running_loop().call_later(seconds, self._grant)
