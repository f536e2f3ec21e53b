"""Agents that beat in a cluster in memory, until they fall silent."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from contract.errors import StoreError
from stores.base import Beat
from stores.kubernetes_api.beats import LeaseHeartbeats
from tests.parts.deadlines import stand_in_waits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from tests.cluster.playing import Cluster

INTERVAL_SECONDS = 5
THRESHOLD_SECONDS = 3 * INTERVAL_SECONDS


class Agents:
    """``nodes`` beat every interval, each a little later than the one before."""

    def __init__(self, site: Cluster, nodes: Iterable[str]) -> None:
        self.nodes = list(nodes)
        self.silent: set[str] = set()
        self.writes: dict[str, str] = {}
        """The last writes that the next beats of each node name."""
        self._site = site
        self._beats = LeaseHeartbeats(site.api.client("agents"))  # type: ignore[arg-type]

    async def beat(self, number: int, node: str) -> None:
        """Send heartbeats of ``node`` without end, unless it is silent."""
        await stand_in_waits(INTERVAL_SECONDS * number / len(self.nodes))
        while True:
            began = self._site.at_ms
            if node not in self.silent:
                beat = Beat(
                    node,
                    f"host-{node}",
                    INTERVAL_SECONDS,
                    self._site.wall_ms,
                    writes=self.writes.get(node, ""),
                )
                with contextlib.suppress(StoreError):
                    await self._beats.beat(beat)
            took = (self._site.at_ms - began) / 1000
            await stand_in_waits(INTERVAL_SECONDS - took)


@contextlib.asynccontextmanager
async def agents(site: Cluster, nodes: Iterable[str]) -> AsyncIterator[Agents]:
    """Send heartbeats of all nodes within the block."""
    made = Agents(site, nodes)
    tasks = [asyncio.create_task(made.beat(*one)) for one in enumerate(made.nodes)]
    try:
        yield made
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
