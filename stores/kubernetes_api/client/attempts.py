"""A request about one object that gets no answer is made once more, over a new connection.

A connection can die without a sign, as when one of several API servers ends. A new one then
answers at once: all old ones that are idle are dropped, and watches over old ones are asked anew. A
server that is slow over new connections too is not dead: then there is one repetition in 10 s for
the whole process, and answers have more time before it. See ``docs/decisions/015``.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Coroutine
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from contract.errors import StoreError

if TYPE_CHECKING:
    from stores.kubernetes_api.client.pool import ConnectionPool

# The numbers are those of decision 15.
_MIN_SECONDS = 2.0
_MAX_SECONDS = 10.0
_TIMES = 1.5
"""An answer may take so many times as long as the slowest one of late."""
_LATELY_SECONDS = 30.0
_PAUSE_SECONDS = 10.0
_LATE_SECONDS = 0.3
_QUICK_SECONDS = 1.0
"""A server that answers within this over a new connection is not slow."""


class RequestKind(Enum):
    """Admission makes writes slow, not reads."""

    READ = "read"
    WRITE = "write"


class ApiAnswer(NamedTuple):
    """What a server answered.

    ``was_repeated``: another attempt of the same request may have reached the server.
    """

    status: int
    body: bytes
    was_repeated: bool = False


class RecentMaximum:
    """The largest of the values of the last ``window_seconds``, without a look at each of them."""

    def __init__(self, window_seconds: float) -> None:
        self._window_seconds = window_seconds
        self._falling: deque[tuple[float, float]] = deque()
        """Time and value: of all values, those without a later one that is as large."""

    def add(self, now: float, value: float) -> None:
        """Add a value; ``now`` is in seconds and never less than before."""
        while self._falling and self._falling[-1][1] <= value:
            self._falling.pop()
        self._falling.append((now, value))

    def at(self, now: float) -> float:
        """Return the largest value that is not older than the window, 0 without any."""
        while self._falling and self._falling[0][0] < now - self._window_seconds:
            self._falling.popleft()
        return self._falling[0][1] if self._falling else 0.0


Attempt: TypeAlias = Callable[[bool], Coroutine[Any, Any, ApiAnswer]]
"""Makes one attempt; over a new connection, if that is demanded."""


class Attempts:
    """Makes requests, each with at most two attempts open at a time."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._slowest = {kind: RecentMaximum(_LATELY_SECONDS) for kind in RequestKind}
        """Seconds until answers came."""
        self._next_at = -math.inf
        """Before this nothing is repeated, unless old connections are known to be dead."""
        self._left: set[asyncio.Task[ApiAnswer]] = set()
        """Attempts whose answer is not needed; it shows that their connection lives."""
        self._found_dead: asyncio.Future[None] | None = None

    async def answer(self, attempt: Attempt, kind: RequestKind) -> ApiAnswer:
        """Return the first answer to a request. Raises what its attempts raise."""
        began = _now()
        first = self._begin(attempt, kind, is_new=False)
        was_repeated, not_before = False, began
        try:
            while await self._is_overdue(first, kind, began, not_before):
                was_repeated = True
                second = await self._repeated(attempt, kind, first, began)
                if second is not None:
                    return second._replace(was_repeated=True)
                not_before = _now() + _MIN_SECONDS
            return first.result()._replace(was_repeated=was_repeated)
        except StoreError:
            # Whatever else is as old may be dead as well; a new connection shows it.
            self._pool.drop_idle(began)
            raise
        finally:
            if first not in self._left:
                first.cancel()

    def close(self) -> None:
        """End the attempts that no caller waits for."""
        for task in self._left:
            task.cancel()

    async def _is_overdue(
        self, first: asyncio.Task[ApiAnswer], kind: RequestKind, began: float, not_before: float
    ) -> bool:
        """Wait until ``first`` has ended, or is to be repeated; return whether it is."""
        while True:
            now = _now()
            due = began + self._patience_seconds(kind, now)
            # Answers over new connections have shown that old ones are dead.
            if self._pool.dead_before > began:
                due = min(due, began + _MIN_SECONDS)
            else:
                due = max(due, self._next_at)
            due = max(due, not_before)
            if first.done():
                return False
            if due <= now:
                return True
            if self._found_dead is None or self._found_dead.done():
                self._found_dead = asyncio.get_running_loop().create_future()
            await asyncio.wait(
                (first, self._found_dead),
                timeout=due - now,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if _now() > due + _LATE_SECONDS:
                # The process stood still: what was answered meanwhile has yet to be read.
                await asyncio.wait((first,), timeout=_LATE_SECONDS)

    async def _repeated(
        self, attempt: Attempt, kind: RequestKind, first: asyncio.Task[ApiAnswer], began: float
    ) -> ApiAnswer | None:
        """Make the request once more; what is answered, ``None`` while only ``first`` is open."""
        is_probe = self._pool.dead_before <= began
        second_began = _now()
        if is_probe:
            self._next_at = second_began + _PAUSE_SECONDS
            self.close()  # of a request no more than two attempts are open
        second = self._begin(attempt, kind, is_new=is_probe)
        try:
            await asyncio.wait((first, second), return_when=asyncio.FIRST_COMPLETED)
            if first.done() and first.exception() is None:
                # The server is slow. The new connection is kept, once it has answered too.
                self._leave(second)
                return first.result()
            if not second.done():
                # The first attempt has failed: an answer can come from the second one only.
                return await second
            # No new connection either; the first attempt stays open until its deadline.
            if second.exception() is not None:
                return None
            if is_probe and _now() - second_began < _QUICK_SECONDS:
                self._find_dead(second_began)
            elif is_probe:
                # Slow or dead: its answer shows which.
                first.add_done_callback(partial(self._check, second_began))
                self._leave(first)
            return second.result()
        finally:
            if second not in self._left:
                second.cancel()

    def _find_dead(self, before: float) -> None:
        self._next_at = -math.inf
        self._pool.renew(before)
        if self._found_dead is not None and not self._found_dead.done():
            self._found_dead.set_result(None)

    def _check(self, before: float, first: asyncio.Task[ApiAnswer]) -> None:
        if not first.cancelled() and first.exception() is not None:
            self._pool.drop_idle(before)

    def _begin(
        self, attempt: Attempt, kind: RequestKind, *, is_new: bool
    ) -> asyncio.Task[ApiAnswer]:
        task = asyncio.create_task(self._timed(attempt, kind, is_new))
        task.add_done_callback(_take_notice)
        return task

    async def _timed(self, attempt: Attempt, kind: RequestKind, is_new: bool) -> ApiAnswer:
        began = _now()
        response = await attempt(is_new)
        now = _now()
        self._slowest[kind].add(now, now - began)
        return response

    def _leave(self, task: asyncio.Task[ApiAnswer]) -> None:
        self._left.add(task)
        task.add_done_callback(self._left.discard)

    def _patience_seconds(self, kind: RequestKind, now: float) -> float:
        slowest = self._slowest[kind].at(now)
        return min(max(_MIN_SECONDS, _TIMES * slowest), _MAX_SECONDS)


def _take_notice(task: asyncio.Task[ApiAnswer]) -> None:
    """Retrieve the error, so that asyncio does not log it: the other attempt may have succeeded."""
    if not task.cancelled():
        task.exception()


def _now() -> float:
    return asyncio.get_running_loop().time()
