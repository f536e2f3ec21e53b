"""Many nodes that beat, without agents."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from contract.errors import StoreError
from stores.base import Beat
from tests.parts.deadlines import stand_in_waits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from stores.base import Store


class Fleet:
    """Nodes that beat every ``interval`` seconds, evenly spread, until they are silenced."""

    def __init__(self, store: Store, nodes: Iterable[str], interval: float) -> None:
        self.nodes = tuple(nodes)
        self.silent: set[str] = set()
        self.beaten_at: dict[str, float] = {}
        """Monotonic time at which the last beat that was acknowledged had been."""
        self.sent_at: dict[str, float] = {}
        """Monotonic time before that beat was sent: no program can have observed it earlier."""
        self._store = store
        self._interval = interval

    async def _beat(self, node: str, phase: float) -> None:
        await stand_in_waits(phase)
        while True:
            next_at = time.monotonic() + self._interval
            if node not in self.silent:
                beat = Beat(node, f"host-of-{node}", self._interval, int(time.time() * 1000))
                with contextlib.suppress(StoreError):
                    sent_at = time.monotonic()
                    await self._store.beat(beat)
                    self.sent_at[node], self.beaten_at[node] = sent_at, time.monotonic()
            await stand_in_waits(next_at - time.monotonic())

    @contextlib.asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        """Send heartbeats of all nodes within the block."""
        async with asyncio.TaskGroup() as tasks:
            spread = self._interval / len(self.nodes)
            beating = [
                tasks.create_task(self._beat(node, number * spread))
                for number, node in enumerate(self.nodes)
            ]
            yield
            for task in beating:
                task.cancel()
