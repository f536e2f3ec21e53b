"""Who is silent while heartbeats take long to be accepted, or are not accepted at all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aggregator.liveness import rules as liveness
from aggregator.liveness.first_heartbeat_probe import Rehearsals
from aggregator.liveness.rules import HeartbeatListing, LostNodes, Rehearsal
from contract.errors import StoreForbidden, StoreUnavailable
from service.clock import Instant
from stores.base import Beat

if TYPE_CHECKING:
    from contract.errors import StoreError
    from stores.base import Store

INTERVAL_MS = 5_000


def verdict_at(
    quiet_ms: int, rehearsal: Rehearsal | None, *, interval_seconds: float = 5.0
) -> LostNodes:
    """Who is lost when one of four nodes has been quiet for so long."""
    beats = [Beat(f"n{number}", "host", interval_seconds, 1) for number in range(4)]
    first = liveness.listed(HeartbeatListing(), beats, 0, ())
    listing = first
    for at_ms in range(INTERVAL_MS, quiet_ms + 1, INTERVAL_MS):
        alive = [Beat(one.node, "host", interval_seconds, at_ms) for one in beats[1:]]
        listing = liveness.listed(listing, [beats[0], *alive], at_ms, ())
    rehearsals = {} if rehearsal is None else {"n0": rehearsal}
    listing = HeartbeatListing(listing.pulses, listing.listed_at_ms, rehearsals=rehearsals)
    return liveness.judge(LostNodes(), [listing], quiet_ms)


@pytest.mark.parametrize(
    ("rehearsal", "lost_after_ms"),
    [
        (Rehearsal(5), 15_000),
        (Rehearsal(900), 15_000),
        (Rehearsal(10_000), 25_000),
        (Rehearsal(30_000), 65_000),
        (Rehearsal(5, refused_at_ms=40_000), 55_000),
    ],
)
def test_silence_counts_for_twice_as_long_as_a_beat_takes(
    rehearsal: Rehearsal, lost_after_ms: int
) -> None:
    assert verdict_at(lost_after_ms, rehearsal).lost == {}
    assert set(verdict_at(lost_after_ms + INTERVAL_MS, rehearsal).lost) == {"n0"}


@pytest.mark.parametrize("rehearsal", [None, Rehearsal(None, 1)])
def test_no_node_is_lost_before_a_beat_would_have_been_accepted(
    rehearsal: Rehearsal | None,
) -> None:
    assert verdict_at(600_000, rehearsal).lost == {}


def test_a_longer_interval_that_is_announced_counts_once() -> None:
    assert verdict_at(65_000, Rehearsal(30_000), interval_seconds=18.0).lost == {}
    assert set(verdict_at(70_000, Rehearsal(30_000), interval_seconds=18.0).lost) == {"n0"}


def test_the_next_listing_is_when_a_rehearsal_finds_a_node_silent() -> None:
    pulse = liveness.ObservedHeartbeat("host", 1, INTERVAL_MS, 0, 0)
    for rehearsals, at_ms in (({}, 26_000), ({"n0": Rehearsal(10_600)}, 26_201)):
        listing = HeartbeatListing({"n0": pulse}, 21_000, rehearsals=rehearsals)
        assert liveness.next_ms([listing], 21_000) == at_ms


def test_who_is_lost_stays_so_without_a_rehearsal() -> None:
    lost = verdict_at(20_000, Rehearsal(5))
    listing = HeartbeatListing(
        {"n0": liveness.ObservedHeartbeat("host", 1, INTERVAL_MS, 0, 0)}, 25_000, rehearsals={}
    )
    assert liveness.judge(lost, [listing], 25_000).lost == lost.lost


class Server:
    """Takes so many seconds for each rehearsal, or refuses it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.error: StoreError | None = None
        self.asked: list[str] = []
        self.most = self._now = 0

    async def rehearse_beat(self, node: str) -> None:
        self.asked.append(node)
        self._now += 1
        self.most = max(self.most, self._now)
        await asyncio.sleep(self.seconds)
        self._now -= 1
        if self.error is not None:
            raise self.error


def _clock() -> Instant:
    at_ms = round(asyncio.get_running_loop().time() * 1000)
    return Instant(at_ms, at_ms)


@pytest.mark.looptime
async def test_eight_at_most_at_a_time_and_the_slowest_counts_for_all() -> None:
    server, done = Server(), asyncio.Event()
    store: Store = server  # type: ignore[assignment]  # only for rehearsals
    rehearsals = Rehearsals(store, _clock, done.set)
    nodes = [f"n{number}" for number in range(20)]
    server.seconds = 10.0
    rehearsals.look(nodes)
    rehearsals.look(nodes)
    await done.wait()
    assert (len(server.asked), server.most) == (8, 8)
    assert rehearsals.results == dict.fromkeys(nodes, Rehearsal(10_000))
    rehearsals.look(nodes[:2])
    assert rehearsals.results == dict.fromkeys(nodes[:2], Rehearsal(10_000))
    assert len(server.asked) == 8


@pytest.mark.looptime
async def test_one_that_is_refused_is_tried_again_and_remembered() -> None:
    server, done = Server(), asyncio.Event()
    store: Store = server  # type: ignore[assignment]  # only for rehearsals
    rehearsals = Rehearsals(store, _clock, done.set)
    server.error = StoreUnavailable("a webhook fails")
    for at_ms in (0, 5_000):
        rehearsals.look(["n0"])
        await done.wait()
        done.clear()
        assert rehearsals.results == {"n0": Rehearsal(None, at_ms)}
        await asyncio.sleep(5)
    server.error = StoreForbidden("we may not")
    rehearsals.look(["n0"])
    await done.wait()
    assert rehearsals.results == {"n0": Rehearsal(0, 5_000)}
