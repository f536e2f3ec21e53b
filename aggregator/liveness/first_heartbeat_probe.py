"""Measures how long a first heartbeat takes now, before a node is published lost.

Where admission is slow, a heartbeat that is on its way is accepted late: the node lives. So while a
node is late, one is sent as a dry run: the API server does all that it does for a real one, and
stores nothing. Silence counts for twice as long as that takes. While none is accepted at all, no
node falls silent.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from aggregator.liveness.rules import ProbeResult
from contract.errors import StoreError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from service.clock import Clock
    from stores.base import Store

_AT_ONCE = 8


class HeartbeatProbe:
    """The dry runs in one store; ``done`` is called when ``results`` changed."""

    def __init__(self, store: Store, clock: Clock, done: Callable[[], None]) -> None:
        self.results: dict[str, ProbeResult] = {}
        """By node that is late."""
        self._store = store
        self._clock = clock
        self._done = done
        self._task: asyncio.Task[None] | None = None

    def probe(self, late: Collection[str]) -> None:
        """Remove the results of nodes that are not late any more; start dry runs for those without
        one.
        """
        for node in self.results.keys() - late:
            del self.results[node]
        known = {node for node, one in self.results.items() if one.took_ms is not None}
        unknown = [node for node in late if node not in known]
        if unknown and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._probe(unknown), name="probe heartbeats")

    def close(self) -> None:
        """Cancel the dry runs under way."""
        if self._task is not None:
            self._task.cancel()

    async def _probe(self, nodes: list[str]) -> None:
        """Make dry runs for some of ``nodes``: the slowest of them counts for all."""
        sample = random.sample(nodes, min(_AT_ONCE, len(nodes)))
        took = await asyncio.gather(*map(self._took_ms, sample))
        now_ms = self._clock().steady_ms
        answered = [one for one in took if one is not None]
        for node in nodes:
            if len(answered) < len(took):
                self.results[node] = ProbeResult(None, now_ms)
            else:
                before = self.results.get(node)
                refused_at_ms = None if before is None else before.refused_at_ms
                self.results[node] = ProbeResult(max(answered), refused_at_ms)
        self._done()

    async def _took_ms(self, node: str) -> int | None:
        """Return how long one dry run took; ``None`` where it was not accepted."""
        began_ms = self._clock().steady_ms
        try:
            await self._store.dry_run_beat(node)
        except StoreUnavailable:
            return None
        except StoreError:
            pass  # it is answered: for us only, there is something else in its way
        return self._clock().steady_ms - began_ms
