"""Who is silent while heartbeats take long to be accepted, or are not accepted at all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aggregator.liveness import lost_nodes as liveness
from aggregator.liveness.lost_nodes import HeartbeatListing, LostNodes, ProbeResult
from aggregator.liveness.monitor import HeartbeatProbe
from contract.errors import StoreForbidden, StoreUnavailable
from service.clock import Instant
from stores.base import Beat
from tests.parts.deadlines import stand_in_waits

if TYPE_CHECKING:
    from contract.errors import StoreError
    from stores.base import Store

INTERVAL_MS = 5_000


def verdict_at(
    quiet_ms: int, probe: ProbeResult | None, *, interval_seconds: float = 5.0
) -> LostNodes:
    """Return the lost nodes when one of four nodes has been silent for ``quiet_ms``."""
    beats = [Beat(f"n{number}", "host", interval_seconds, 1) for number in range(4)]
    first = liveness.listed(HeartbeatListing(), beats, 0, ())
    listing = first
    for at_ms in range(INTERVAL_MS, quiet_ms + 1, INTERVAL_MS):
        alive = [Beat(one.node, "host", interval_seconds, at_ms) for one in beats[1:]]
        listing = liveness.listed(listing, [beats[0], *alive], at_ms, ())
    probes = {} if probe is None else {"n0": probe}
    listing = HeartbeatListing(listing.heartbeats, listing.listed_at_ms, probes=probes)
    return liveness.judge(LostNodes(), [listing], quiet_ms)


@pytest.mark.parametrize(
    ("probe", "lost_after_ms"),
    [
        (ProbeResult(5), 15_000),
        (ProbeResult(900), 15_000),
        (ProbeResult(10_000), 25_000),
        (ProbeResult(30_000), 65_000),
        (ProbeResult(5, refused_at_ms=40_000), 55_000),
    ],
)
def test_silence_counts_for_twice_as_long_as_a_beat_takes(
    probe: ProbeResult, lost_after_ms: int
) -> None:
    assert verdict_at(lost_after_ms, probe).lost == {}
    assert set(verdict_at(lost_after_ms + INTERVAL_MS, probe).lost) == {"n0"}


@pytest.mark.parametrize("probe", [None, ProbeResult(None, 1)])
def test_no_node_is_lost_before_a_beat_would_have_been_accepted(
    probe: ProbeResult | None,
) -> None:
    assert verdict_at(600_000, probe).lost == {}


def test_a_longer_interval_that_is_announced_counts_once() -> None:
    assert verdict_at(65_000, ProbeResult(30_000), interval_seconds=18.0).lost == {}
    assert set(verdict_at(70_000, ProbeResult(30_000), interval_seconds=18.0).lost) == {"n0"}


def test_the_next_listing_is_at_the_time_at_which_a_probe_finds_the_node_silent() -> None:
    heartbeat = liveness.ObservedHeartbeat("host", 1, INTERVAL_MS, 0, 0)
    for probes, at_ms in (({}, 26_000), ({"n0": ProbeResult(10_600)}, 26_201)):
        listing = HeartbeatListing({"n0": heartbeat}, 21_000, probes=probes)
        assert liveness.next_ms([listing], 21_000) == at_ms


def test_lost_node_stays_lost_without_a_probe() -> None:
    lost = verdict_at(20_000, ProbeResult(5))
    listing = HeartbeatListing(
        {"n0": liveness.ObservedHeartbeat("host", 1, INTERVAL_MS, 0, 0)}, 25_000, probes={}
    )
    assert liveness.judge(lost, [listing], 25_000).lost == lost.lost


class Server:
    """Takes so many seconds for each probe, or refuses it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.error: StoreError | None = None
        self.asked: list[str] = []
        self.most = self._now = 0

    async def dry_run_beat(self, node: str) -> None:
        self.asked.append(node)
        self._now += 1
        self.most = max(self.most, self._now)
        await stand_in_waits(self.seconds)
        self._now -= 1
        if self.error is not None:
            raise self.error


def _clock() -> Instant:
    at_ms = round(asyncio.get_running_loop().time() * 1000)
    return Instant(at_ms, at_ms)


@pytest.mark.looptime
async def test_eight_at_most_at_a_time_and_the_slowest_counts_for_all() -> None:
    server, done = Server(), asyncio.Event()
    store: Store = server  # type: ignore[assignment]  # only for probes
    probes = HeartbeatProbe(store, _clock, done.set)
    nodes = [f"n{number}" for number in range(20)]
    server.seconds = 10.0
    probes.probe(nodes)
    probes.probe(nodes)
    await done.wait()
    assert (len(server.asked), server.most) == (8, 8)
    assert probes.results == dict.fromkeys(nodes, ProbeResult(10_000))
    probes.probe(nodes[:2])
    assert probes.results == dict.fromkeys(nodes[:2], ProbeResult(10_000))
    assert len(server.asked) == 8


@pytest.mark.looptime
async def test_one_that_is_refused_is_tried_again_and_remembered() -> None:
    server, done = Server(), asyncio.Event()
    store: Store = server  # type: ignore[assignment]  # only for probes
    probes = HeartbeatProbe(store, _clock, done.set)
    server.error = StoreUnavailable("a webhook fails")
    for at_ms in (0, 5_000):
        probes.probe(["n0"])
        await done.wait()
        done.clear()
        assert probes.results == {"n0": ProbeResult(None, at_ms)}
        await asyncio.sleep(5)
    server.error = StoreForbidden("we may not")
    probes.probe(["n0"])
    await done.wait()
    assert probes.results == {"n0": ProbeResult(0, 5_000)}
