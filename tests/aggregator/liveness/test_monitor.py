"""What a new leader knows of nodes that were silent before."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aggregator.liveness.monitor import HeartbeatMonitor
from aggregator.liveness.persisted import PersistedHeartbeats
from service.clock import Instant
from service.watchdog import Watchdog
from stores.base import Beat
from tests.aggregator.kept_texts import kept_texts
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stores.base import Store


class Bench:
    """Heartbeats that a test plays; each node beats every second, or not at all."""

    def __init__(self, begins: float = 0.0, kept: Mapping[str, str] | None = None) -> None:
        self.at = begins
        self.steps = 0
        self.beating = ["n0", "n1", "n2"]
        self.lost: list[frozenset[str]] = []
        self.last: dict[str, int] = dict.fromkeys(self.beating, 0)
        self.memory = PersistedHeartbeats((), self.now)
        self.memory.restore(kept or {}, self.now())
        stores: dict[str, Store] = {"s:": self}  # type: ignore[dict-item]  # only for beats
        stalls = Watchdog(lambda: self.at)
        self.heartbeat_monitor = HeartbeatMonitor(
            stores, self.lost.append, self.now, stalls, {}, self.memory
        )
        self.heartbeat_monitor._restore_silence()

    def now(self) -> Instant:
        """Return the time: the wall clock continues over runs, the steady one begins anew."""
        return Instant(int((1000 + self.at) * 1000), int(self.steps * 1000))

    async def beats(self) -> tuple[Beat, ...]:
        return tuple(Beat(node, "host", 1.0, at) for node, at in self.last.items())

    async def dry_run_beat(self, node: str) -> None:
        assert node in self.last

    async def listen(self, seconds: int) -> None:
        for _ in range(seconds):
            self.at += 1
            self.steps += 1
            self.last |= {node: int(self.at * 1000) for node in self.beating}
            await self.heartbeat_monitor._list("s:", self)  # type: ignore[arg-type]
            for _ in range(5):
                await asyncio.sleep(0)  # for probes, which take no time

    def texts(self) -> dict[str, str]:
        return kept_texts(self.memory)


async def test_whom_another_leader_lost_is_lost_until_it_beats() -> None:
    bench = Bench()
    await bench.listen(5)
    bench.beating.remove("n1")
    await bench.listen(2)
    bench.heartbeat_monitor.inherit(["n1"])
    assert set(bench.heartbeat_monitor.lost_nodes.lost) == {"n1"}
    await bench.listen(5)
    assert set(bench.heartbeat_monitor.lost_nodes.lost) == {"n1"}
    bench.beating.append("n1")
    await bench.listen(1)
    assert bench.heartbeat_monitor.lost_nodes.lost == {}


async def test_a_node_that_beats_for_us_is_not_lost_because_another_leader_published_it() -> None:
    bench = Bench()
    await bench.listen(5)
    bench.heartbeat_monitor.inherit(["n1"])
    assert bench.heartbeat_monitor.lost_nodes.lost == {}


async def test_since_when_a_node_is_silent_survives_and_counts_anew() -> None:
    bench = Bench()
    await bench.listen(10)
    assert bench.texts() == {}, "nothing is written while all is well"
    bench.beating.remove("n1")
    await bench.listen(60)
    (kept,) = bench.texts().items()
    await bench.listen(100)
    assert bench.texts() == {}, "and nothing again while nothing changes"
    after = Bench(bench.at + 30, dict([kept]))
    after.beating.remove("n1")
    after.last = dict(bench.last)
    await after.listen(2)
    heartbeat = after.heartbeat_monitor.listings["s:"].heartbeats["n1"]
    silent_seconds = (after.now().steady_ms - heartbeat.changed_at_ms) / 1000
    assert abs(silent_seconds - (60 + 100 + 30 + 2)) <= patience(1)
    assert after.heartbeat_monitor.lost_nodes.lost == {}, "it has its whole time again"
    await after.listen(3)
    assert set(after.heartbeat_monitor.lost_nodes.lost) == {"n1"}
