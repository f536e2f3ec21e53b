"""When it beats, and what for old readers: in virtual time, on a store that notes what comes."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, cast

import pytest

from agent.heartbeat.old_readers import NodeAnnotations, RequiredLabel
from contract.errors import StoreError, StoreForbidden, StoreUnavailable
from stores.base import Beat, NodeObject
from stores.interruption import Interrupted
from tests.agent.lives import HeartbeatLife

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from contextlib import AbstractAsyncContextManager

    from stores.base import KubernetesEvent, NodesEvent, ObjectOwner, Store

pytestmark = pytest.mark.looptime

BEGIN_SECONDS = 1_700_000_000


class NotingStore:
    """Beats and annotations, with the time of the loop at which they came."""

    def __init__(self) -> None:
        self.url = "noting:"
        self.beaten: list[tuple[float, Beat]] = []
        self.annotated: list[tuple[float, dict[str, str | None]]] = []
        self.error: StoreError | None = None
        self.node_error: StoreError | None = None
        self.beat_seconds = 0.0
        self.node_watch: asyncio.Queue[NodeObject | Interrupted] = asyncio.Queue()

    async def beat(self, beat: Beat) -> None:
        await asyncio.sleep(self.beat_seconds)
        if self.error is not None:
            raise self.error
        self.beaten.append((asyncio.get_running_loop().time(), beat))

    async def beats(self, _: str | None = None) -> tuple[Beat, ...]:
        if self.error is not None:
            raise self.error
        return tuple(beat for _, beat in self.beaten[-1:])

    async def set_node(
        self,
        _: str,
        __: Mapping[str, str | None],
        annotations: Mapping[str, str | None],
        *,
        expected: str | None = None,
    ) -> None:
        if self.node_error is not None:
            raise self.node_error
        self.annotated.append((asyncio.get_running_loop().time(), dict(annotations)))

    async def missing_owners(
        self, namespace: str, owners: tuple[ObjectOwner, ...]
    ) -> frozenset[str]:
        raise NotImplementedError

    async def commands(self, node: str) -> tuple[tuple[str, str, str], ...]:
        del node
        return ()

    async def is_own_node_only(self, _: str) -> bool | None:
        return None

    async def watch_node(self, _: str) -> AsyncIterator[NodeObject | Interrupted]:
        while True:
            yield await self.node_watch.get()

    async def record(self, event: KubernetesEvent) -> None:
        raise AssertionError(event)

    async def get_node(self, node: str) -> NodeObject:
        raise AssertionError(node)

    def watch_nodes(self, label: tuple[str, str]) -> AsyncIterator[NodesEvent]:
        raise AssertionError


class NotedLife(HeartbeatLife):
    """A heartbeat on a store that notes it; ``clock_seconds`` is how far its clock is set back."""

    def __init__(self, interval_seconds: float) -> None:
        self.noting = NotingStore()
        self.clock_seconds = 0
        self.annotations = NodeAnnotations(self.noting, "node-1", interval_seconds)
        store = cast("Store", self.noting)  # what it asks of it
        super().__init__(
            store, "host-a_1", interval_seconds, self.wall_clock, also=self.annotations
        )

    def wall_clock(self) -> int:
        passed = asyncio.get_running_loop().time()
        return round((BEGIN_SECONDS + self.clock_seconds + passed) * 1000)

    @property
    def shown(self) -> list[int]:
        return [int(given["noded/heartbeat"] or "") for _, given in self.noting.annotated]


def running(interval_seconds: float = 5.0) -> AbstractAsyncContextManager[NotedLife]:
    return NotedLife(interval_seconds).running()


async def test_it_beats_at_once_and_then_on_time() -> None:
    async with running() as bench:
        await asyncio.sleep(600)
    times = [at for at, _ in bench.noting.beaten]
    first_gap, *gaps = (later - earlier for earlier, later in pairwise(times))
    assert times[0] < 0.01
    assert first_gap < 5.501
    assert 4.499 < min(gaps) < 4.7
    assert 5.3 < max(gaps) < 5.501
    assert abs(sum(gaps) / len(gaps) - 5) < 0.1, "jitter is none on the average"
    assert len({round(gap, 3) for gap in gaps}) > 50
    beat = bench.noting.beaten[0][1]
    assert (beat.node, beat.holder, beat.interval_seconds) == ("node-1", "host-a_1", 5.0)
    assert beat.beaten_at_ms == BEGIN_SECONDS * 1000
    assert [at for at, _ in bench.noting.annotated] == times


@pytest.mark.slow
async def test_a_thousand_agents_that_start_together_do_not_beat_together() -> None:
    async with contextlib.AsyncExitStack() as running_agents:
        agents = [await running_agents.enter_async_context(running()) for _ in range(1000)]
        await asyncio.sleep(30)
    # The first second has the beat of each start, and a part of the second ones.
    times = [at for agent in agents for at, _ in agent.noting.beaten if 1 <= at < 30]
    seconds = Counter(int(at) for at in times)
    assert len(seconds) == 29
    assert max(seconds.values()) < 2 * len(times) / len(seconds)


@pytest.mark.parametrize("seconds", [10.0, 30.0])
async def test_a_longer_interval_is_announced_while_beats_take_long(seconds: float) -> None:
    async with running() as bench:
        await asyncio.sleep(20)
        bench.noting.beat_seconds = seconds
        await asyncio.sleep(400)
        slow = [beat for at, beat in bench.noting.beaten if at > 100]
        times = [at for at, _ in bench.noting.beaten if at > 100]
        bench.noting.beat_seconds = 0.0
        await asyncio.sleep(100)
    announced = [beat.interval_seconds for beat in slow]
    # Three of them are waited for.
    longest = max(later - earlier for earlier, later in pairwise(times))
    assert 3 * min(announced) > 1.5 * longest
    assert 3 * max(announced) < 3 * 5 + 2 * seconds
    assert all(one != following for one, following in pairwise(announced))
    assert bench.noting.beaten[-1][1].interval_seconds == 5.0


async def test_beats_of_one_second_differ_on_the_node() -> None:
    """noded#H6."""
    async with running(1.0) as bench:
        await asyncio.sleep(100)
        await bench.heartbeat.claim.check()
        await bench.heartbeat.claim.check()
    assert all(one != next_one for one, next_one in pairwise(bench.shown))
    assert bench.noting.annotated[0][1] == {
        "noded/heartbeat": str(BEGIN_SECONDS),
        "noded/heartbeat-interval": "1",
    }


async def test_a_clock_that_is_set_back_is_followed() -> None:
    async with running() as bench:
        await asyncio.sleep(100)
        before = bench.shown[-1]
        bench.clock_seconds = -3600
        await asyncio.sleep(100)
    assert bench.shown[-1] < before - 3400
    assert all(one != next_one for one, next_one in pairwise(bench.shown))
    stamps = [beat.beaten_at_ms for _, beat in bench.noting.beaten]
    assert all(one != next_one for one, next_one in pairwise(stamps))


async def test_a_beat_that_was_not_taken_is_tried_again_within_the_interval(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running(60.0) as bench:
        await asyncio.sleep(1)
        bench.noting.node_error = StoreUnavailable("no route to host")
        await asyncio.sleep(70)
        assert bench.annotations.failures > 3
        assert "no route to host" in str(bench.annotations.trouble.reason)
        assert bench.heartbeat.trouble.reason is None
        bench.noting.node_error = None
        count = len(bench.noting.annotated)
        await asyncio.sleep(3)
        assert len(bench.noting.annotated) > count
        assert bench.annotations.trouble.reason is None
    assert caplog.text.count("no heartbeat on the Node: no route to host") == 1
    assert caplog.text.count("the heartbeat is on the Node again") == 1


async def test_refused_write_is_retried_slowly() -> None:
    async with running() as bench:
        bench.noting.node_error = StoreForbidden("no right to patch nodes/status")
        await asyncio.sleep(100)
        assert 18 <= bench.annotations.failures <= 23
        assert 18 <= len(bench.noting.beaten) <= 23, "our own goes on"


async def test_old_readers_see_an_agent_that_may_not_write_leases() -> None:
    async with running() as bench:
        bench.noting.error = StoreForbidden("no right to read Leases")
        await asyncio.sleep(100)
        assert len(bench.shown) >= 18
        bench.watchdog.stalls = {"links": 61.0}
        await asyncio.sleep(10)
        count = len(bench.shown)
        await asyncio.sleep(100)
        assert len(bench.shown) == count, "it makes no progress"
        assert bench.heartbeat.withheld == "no progress: links"


async def test_the_last_beat_differs_for_each_agent() -> None:
    async with running() as bench:
        await asyncio.sleep(7)
        await bench.heartbeat.leave(300.0)
    (*_, (_, before), (_, last)) = bench.noting.beaten
    assert last.interval_seconds == 100.0
    assert last.beaten_at_ms != before.beaten_at_ms


async def test_the_label_is_asked_for_and_never_set(caplog: pytest.LogCaptureFixture) -> None:
    noting = NotingStore()
    label = RequiredLabel(noting, "node-1")
    task = asyncio.create_task(label.run())

    async def see(seen: NodeObject | Interrupted) -> str | None:
        noting.node_watch.put_nowait(seen)
        await asyncio.sleep(1)
        return label.problem

    assert label.problem == "node node-1 was not read yet"
    missing = await see(NodeObject({}, {}))
    assert missing is not None
    assert "kubectl label node node-1 --overwrite nodeDEnable=on" in missing
    assert await see(NodeObject({"other": "label"}, {})) == missing
    assert "its value is 'off'" in str(await see(NodeObject({"nodeDEnable": "off"}, {})))
    assert await see(NodeObject({"nodeDEnable": "on"}, {})) is None
    assert await see(Interrupted("away")) == "node node-1 cannot be read: away"
    assert await see(NodeObject({"nodeDEnable": "on"}, {})) is None
    assert caplog.text.count("it is not there, so readers") == 1, "logged once"
    assert noting.annotated == []
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
