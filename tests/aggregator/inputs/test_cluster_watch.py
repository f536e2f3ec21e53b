"""Watches of cluster objects update the cluster state; a failure is logged once at each end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, cast

import pytest

from aggregator.advising.cluster_objects import KINDS
from aggregator.inputs.cluster_state import ClusterState
from aggregator.inputs.cluster_watch import follow
from aggregator.inputs.node_context import JobState, NodeState, PodState
from contract.errors import StoreRefused
from service.watchdog import Watchdog
from stores.address import open_store
from stores.cluster import KindUnavailable, Snapshot, Update
from stores.interruption import Interrupted
from tests.parts.deadlines import time_passes
from tests.parts.tasks import beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aggregator.advising.advice import AdviceService
    from stores.base import Store
    from stores.cluster import SharedReader

POD = PodState("u", "n1", chips=("Ascend910-0",))
LOGGER = "aggregator.inputs.cluster_watch"


class Feed:
    """Yields given events; an error ends it."""

    def __init__(self) -> None:
        self.asked = 0
        self._given: asyncio.Queue[object] = asyncio.Queue()

    async def give(self, *events: object) -> None:
        """Yield these, and wait until they are applied."""
        for event in events:
            self._given.put_nowait(event)
        await time_passes(0.01)

    async def events(self) -> AsyncIterator[Any]:
        self.asked += 1
        while True:
            event = await self._given.get()
            if isinstance(event, Exception):
                raise event
            yield event


class Advice:
    """Takes what the second reader of each kind has observed."""

    def __init__(self) -> None:
        self.shared_kinds = {name: KINDS[name] for name in ("nodes", "pods", "podgroups")}
        self.observed: list[tuple[str, object]] = []

    def observe_objects(self, name: str, event: object) -> None:
        self.observed.append((name, event))


class Bench:
    """A store that is followed."""

    url = "store:"

    def __init__(self) -> None:
        self.pod_feed, self.node_feed, self.job_feed = Feed(), Feed(), Feed()
        self.cluster = self
        self.cluster_state = ClusterState([True])
        self.reported: list[frozenset[str] | None] = []
        self.advice: Advice | None = None
        self.second: SharedReader[Any] | None = None

    def pods(self, *others: SharedReader[Any], node: str | None = None) -> AsyncIterator[Any]:
        (self.second,) = others or (None,)
        return self.pod_feed.events()

    def nodes(self, *_: object) -> AsyncIterator[Any]:
        return self.node_feed.events()

    def jobs(self, *_: object) -> AsyncIterator[Any]:
        return self.job_feed.events()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        store = cast("Store", self)
        following = follow(
            self.cluster_state,
            0,
            store,
            self.reported.append,
            Watchdog(),
            cast("AdviceService | None", self.advice),
        )
        async with beside(following):
            yield


@pytest.fixture
def bench(caplog: pytest.LogCaptureFixture) -> Bench:
    caplog.set_level(logging.INFO, LOGGER)
    return Bench()


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return found


@pytest.mark.looptime
async def test_every_listener_receives_what_changed_and_nothing_else(bench: Bench) -> None:
    async with bench.running():
        await bench.pod_feed.give(Snapshot({"u": POD}))
        await bench.job_feed.give(KindUnavailable("none"))
        assert bench.reported == [None, None]
        assert bench.cluster_state.answered(0)
        node = NodeState("n1", "10.0.0.1")
        await bench.node_feed.give(Snapshot({"n1": node}), Update("n1", node), Update("n1", node))
        # Who waits for Nodes is woken; a heartbeat is no news.
        assert bench.reported == [None, None, frozenset()]
        await bench.pod_feed.give(Update("u", None))
        assert bench.reported[3:] == [frozenset({"n1"})]


@pytest.mark.looptime
async def test_an_interruption_is_logged_once(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench.running():
        await bench.pod_feed.give(Interrupted("no rights"), Interrupted("still none"))
        assert logged(caplog) == ["pods of store: cannot be read: no rights"]
        assert bench.reported == [frozenset()]  # who waits for an answer has one
        await bench.pod_feed.give(Snapshot({}))
        assert logged(caplog) == ["pods of store: can be read again"]


@pytest.mark.looptime
async def test_advice_reads_the_same_watches(bench: Bench) -> None:
    bench.advice = Advice()
    async with bench.running():
        await bench.pod_feed.give(Interrupted("no rights"), Snapshot({"u": POD}))
        await bench.job_feed.give(KindUnavailable("404"))
        await bench.node_feed.give(StoreRefused("not like this"))
        assert bench.second is not None
        assert bench.second.kind is KINDS["pods"]
        bench.second.observe(Snapshot({}))
    # A list for the first reader is not one for the second, but both are interrupted.
    assert bench.advice.observed == [
        ("pods", Interrupted("no rights")),
        ("podgroups", KindUnavailable("404")),
        ("nodes", Interrupted("not like this")),
        ("pods", Snapshot({})),
    ]


@pytest.mark.looptime
async def test_a_refusal_stops_nothing_else_and_is_asked_again(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench.running():
        await bench.node_feed.give(StoreRefused("not like this"))
        assert logged(caplog) == ["nodes of store: cannot be read: not like this"]
        await bench.pod_feed.give(Snapshot({"u": POD}))
        assert bench.cluster_state.pods_on("n1") == (POD,)
        await asyncio.sleep(31)
        assert bench.node_feed.asked == 2
        await bench.node_feed.give(Snapshot({"n1": NodeState("n1")}))
        assert logged(caplog) == ["nodes of store: can be read again"]
        assert bench.cluster_state.nodes_known
        assert bench.reported == [frozenset(), None, frozenset()]


@pytest.mark.looptime
async def test_without_volcano_jobs_are_known_by_their_pods(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench.running():
        await bench.job_feed.give(KindUnavailable("404"), KindUnavailable("404"))
        assert logged(caplog) == ["store: has no PodGroups, jobs are known by their pods only"]
        await bench.job_feed.give(Snapshot({"g": JobState("j")}))
        assert logged(caplog) == ["store: has PodGroups now"]
        assert set(bench.cluster_state.jobs()) == {"j"}


@pytest.mark.looptime
async def test_a_shared_serial_number_is_logged_once(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    def node(name: str, number: str) -> NodeState:
        return NodeState(name, serial_number=number)

    async with bench.running():
        many = {name: node(name, "SN") for name in "gfedcba"}
        await bench.node_feed.give(Snapshot(many), Update("h", node("h", "SN")))
        assert logged(caplog) == [
            "7 nodes have the serial number 'SN', which names none of them: a, b, c, d, e, ..."
        ]
        await bench.node_feed.give(Snapshot({"a": node("a", "SN"), "b": node("b", "")}))
        assert logged(caplog) == ["no two nodes have the serial number 'SN' any more"]


async def test_a_store_that_knows_no_cluster_is_not_followed(tmp_path: Path) -> None:
    store = open_store(f"directory:{tmp_path}")
    cluster_state = ClusterState([store.cluster is not None])
    await follow(
        cluster_state, 0, store, lambda _: pytest.fail("there is nothing to tell"), Watchdog()
    )
    assert cluster_state.answered(0)
    assert not cluster_state.nodes_known
    assert cluster_state.node_context("n1").used is None
