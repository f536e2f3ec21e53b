"""What keeps old heartbeats from being judged: what they are read from cannot be read."""

from __future__ import annotations

import asyncio
from unittest.mock import MagicMock

import pytest

from aggregator.liveness import lost_nodes as liveness
from aggregator.liveness import persisted
from aggregator.liveness.legacy_watch import LegacyHeartbeatWatch
from aggregator.liveness.lost_nodes import HeartbeatListing, LostNodes
from aggregator.liveness.persisted import PersistedHeartbeats
from aggregator.liveness.persisted_row import LastSeen
from contract.documents.node_info import Generation, NodeBeat, NodeRecord
from contract.errors import StoreForbidden
from service.clock import Instant
from stores.base import NodeObject
from stores.cluster import Snapshot
from stores.interruption import Interrupted

LABELLED = NodeObject({"nodeDEnable": "on"}, {}, "1")


class Bench:
    """A node of generation C, whose node-info is watched; the watch of Nodes is played."""

    def __init__(self) -> None:
        self.at = 0
        self.beat = 1000
        self.trouble: str | None = None
        self.verdict = LostNodes()
        objects = None  # it is asked for its watch only
        self.watch = LegacyHeartbeatWatch(
            "s:",
            objects,  # type: ignore[arg-type]
            self.record,
            lambda: self.trouble,
            self.now,
        )

    def record(self, _: str) -> NodeRecord:
        return NodeRecord((), "Healthy", 0, Generation.C, NodeBeat(self.beat, 5))

    def now(self) -> Instant:
        return Instant(1_000_000 + self.at * 1000, self.at * 1000)

    def listen(self, until: int, *, beats: bool) -> None:
        """Judge every second."""
        while self.at < until:
            self.at += 1
            self.beat += beats
            lost = self.verdict.lost
            self.watch.judge(self.now(), lambda _: False, lost, None)
            self.verdict = liveness.judge(self.verdict, [self.watch.listing], self.at * 1000)


def is_listed(listing: HeartbeatListing) -> bool:
    return listing.listed_at_ms is not None


def test_while_node_info_cannot_be_read_no_node_falls_silent() -> None:
    bench = Bench()
    bench.watch.observe_nodes(Snapshot({"n1": LABELLED}))
    bench.listen(5, beats=True)
    bench.trouble = "away"
    bench.listen(100, beats=False)
    assert bench.verdict.lost == {}
    bench.trouble = None
    bench.listen(115, beats=False)
    assert bench.verdict.lost == {}, "and then it has its whole time again"
    bench.listen(117, beats=False)
    assert set(bench.verdict.lost) == {"n1"}


@pytest.mark.looptime
async def test_nodes_that_may_not_be_watched_are_reported() -> None:
    bench = Bench()
    objects = MagicMock()
    objects.watch_nodes.side_effect = StoreForbidden("nodes is forbidden")
    watch = LegacyHeartbeatWatch("s:", objects, bench.record, lambda: None, bench.now)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await watch.run()
    assert watch.problem == "nodes is forbidden"


def test_before_it_was_read_once_nothing_is_taken_for_deleted() -> None:
    bench = Bench()
    bench.trouble = "it was not listed yet"
    bench.watch.restore_seen([LastSeen("n1", 1000, 999)])
    bench.watch.observe_nodes(Snapshot({"n1": LABELLED}))
    bench.listen(25, beats=False)
    assert not is_listed(bench.watch.listing), "who was lost before stays so"
    # It is not waited for for ever: the other stores' heartbeats are to be judged.
    bench.listen(40, beats=False)
    assert bench.watch.listing == HeartbeatListing(listed_at_ms=40_000)
    assert [one.heartbeat_seconds for one in bench.watch.last_seen()] == [1000]
    bench.trouble = None
    bench.listen(55, beats=False)
    assert bench.verdict.lost == {}
    bench.listen(58, beats=False)
    assert set(bench.verdict.lost) == {"n1"}


def test_deleted_node_is_removed_from_the_persistent_state() -> None:
    """Else a later run would know of a heartbeat that changed, and take its silence for a loss."""
    bench = Bench()
    memory = PersistedHeartbeats([bench.watch], bench.now)
    kept = {"3": persisted.encode([LastSeen("n1", 1000, 999)])}
    assert memory.restore(kept, bench.now()) == []
    assert memory.pop_changed() == frozenset()
    bench.watch.observe_nodes(Snapshot({}))
    bench.listen(1, beats=False)
    memory.record(())
    assert memory.pop_changed() == {"3"}
    assert memory.text("3") is None


def test_nothing_is_written_while_heartbeats_go_on_and_silence_once() -> None:
    bench = Bench()
    memory = PersistedHeartbeats([bench.watch], bench.now)
    memory.restore({}, bench.now())
    bench.watch.observe_nodes(Snapshot({"n1": LABELLED}))
    written = []
    for until in range(5, 200, 5):
        bench.listen(until, beats=until < 50)
        memory.record(())
        written += [(until, memory.text(bucket)) for bucket in memory.pop_changed()]
    assert written == [
        (5, '[{"NodeName":"n1"}]'),
        (65, '[{"NodeName":"n1","HeartbeatTime":1045,"UpdateTime":1045}]'),
    ]
    later = Bench()
    later.at = 500
    PersistedHeartbeats([later.watch], later.now).restore({"x": written[-1][1] or ""}, later.now())
    assert later.watch.listing.heartbeats["n1"].changed_at_ms == 45_000


def test_nodes_that_cannot_be_listed_are_the_same() -> None:
    bench = Bench()
    bench.watch.observe_nodes(Snapshot({"n1": LABELLED}))
    bench.listen(5, beats=True)
    bench.watch.observe_nodes(Interrupted("away"))
    bench.listen(100, beats=False)
    assert bench.verdict.lost == {}
