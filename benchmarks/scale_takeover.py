"""Two replicas, of which one leads: how long nothing is published when it ends."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from benchmarks.scale_watch import Counted
    from tests.aggregator.daemon import Daemon

_CHANGES = 20
"""Changes after the signal, one after the other: the longest is the gap, whichever replica wrote
it.
"""
_PAUSE_SECONDS = 60.0
_LATE_SECONDS = 3.0
"""After a paused leader goes on: what it had under way arrives, and is refused."""


class Replicas:
    """``leader`` leads, ``follower`` is not started yet. ``change`` makes the change with a number;
    the milliseconds until it is shown. ``count`` begins to count writes.
    """

    def __init__(
        self,
        leader: Daemon,
        follower: Daemon,
        change: Callable[[int], Awaitable[float]],
        count: Callable[[], Counted],
    ) -> None:
        self.leader = leader
        self.follower = follower
        self._change = change
        self._count = count
        self._changes = 0

    async def follow(self) -> None:
        """Start the follower; comes back when it could lead."""
        await asyncio.to_thread(self.follower.start)

    async def measure(self) -> dict[str, float]:
        """Return the gaps in seconds: of a leader terminated, killed, paused."""
        return {
            "gap_term_s": await self._ended_by(signal.SIGTERM),
            "gap_kill_s": await self._ended_by(signal.SIGKILL),
            "gap_pause_s": await self._paused(),
        }

    async def _ended_by(self, number: signal.Signals) -> float:
        self.leader.process.signal(number)
        gap = await self._gap()
        await asyncio.to_thread(self.leader.stop)
        self._swap()
        await self.follow()
        return gap

    async def _paused(self) -> float:
        self.leader.process.freeze()
        end = time.monotonic() + _PAUSE_SECONDS
        gap = await self._gap()
        await asyncio.sleep(max(0.0, end - time.monotonic()))
        counted = self._count()
        self.leader.process.thaw()
        await asyncio.sleep(_LATE_SECONDS)
        self._swap()
        if not self._leads(self.leader) or self._leads(self.follower):
            raise RuntimeError("a leader that was paused leads again beside the next one")
        if counted.data_writes:
            raise RuntimeError("a leader that was paused wrote what is old")
        return gap

    def _leads(self, daemon: Daemon) -> bool:
        return bool(daemon.ask("/api/v1/leader")[1]["leader"]["leads"])

    async def _gap(self) -> float:
        longest = 0.0
        for _ in range(_CHANGES):
            longest = max(longest, await self._change(self._changes))
            self._changes += 1
        return longest / 1000

    def _swap(self) -> None:
        self.leader, self.follower = self.follower, self.leader
