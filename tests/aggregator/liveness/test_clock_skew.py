"""Clocks of nodes: what listing late explains is no wrong clock, what it does not explain is."""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING

import pytest

from aggregator.liveness import lost_nodes as liveness
from aggregator.liveness.clock_skew import Skew, Skews, observed, wrong
from aggregator.liveness.lost_nodes import HeartbeatListing
from aggregator.liveness.monitor import HeartbeatMonitor
from aggregator.liveness.persisted import PersistedHeartbeats
from service.clock import Instant
from service.watchdog import Watchdog
from stores.base import Beat

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stores.base import Store


class Clocks:
    """A node with a wrong clock, beats every 5 s, and an observer that lists them."""

    def __init__(self, skew_seconds: float, period_seconds: float = 5.0) -> None:
        self.skew_seconds = skew_seconds
        self.period_seconds = period_seconds
        self.listing = HeartbeatListing()
        self.skews = Skews()
        self.at = 1000.0
        self.phase = random.Random(7).uniform(0, 5)

    def run(self, seconds: float) -> Skew:
        end = self.at + seconds
        while self.at < end:
            self.at += self.period_seconds
            last = self.at - (self.at - self.phase) % 5.0
            self.list(Beat("n1", "h", 5.0, int((last + self.skew_seconds) * 1000)))
        return self.skews.nodes["n1"]

    def list(self, *beats: Beat, took: float = 0.02) -> None:
        now_ms = int(self.at * 1000)
        asked_ms = now_ms - int(took * 1000)
        self.skews = observed(self.skews, self.listing.heartbeats, beats, asked_ms, now_ms)
        self.listing = liveness.listed(self.listing, beats, now_ms, ())


@pytest.mark.parametrize("period", [0.7, 3.1, 5.0, 7.7])
def test_the_difference_lies_between_the_two(period: float) -> None:
    for skew in (-3600.0, -7.0, -1.0, 0.0, 0.4, 3.0, 8.0, 1e6):
        found = Clocks(skew, period).run(600)
        assert found.low_ms - 1 <= skew * 1000 <= found.high_ms + 25, skew
        assert abs(found.least_ms) <= abs(skew) * 1000 + 25, "never more than it is"
        assert abs(found.least_ms) >= abs(skew) * 1000 - period * 1000 - 25, skew


def test_a_right_clock_is_never_warned_of_however_late_it_is_listed() -> None:
    chance = random.Random(3)
    clocks = Clocks(0.0)
    for _ in range(500):
        clocks.period_seconds = chance.uniform(0.1, 30)
        assert clocks.run(0.1).least_ms == 0
    assert wrong([clocks.skews]) == frozenset()


def test_a_clock_that_is_set_is_noticed_and_forgotten() -> None:
    clocks = Clocks(0.0, 1.0)
    assert clocks.run(60).least_ms == 0
    clocks.skew_seconds = 30.0
    assert 28_900 < clocks.run(10).least_ms <= 30_000
    assert wrong([clocks.skews]) == {"n1"}
    clocks.skew_seconds = 0.0
    assert clocks.run(10).least_ms == 0


def test_wrong_clock_is_wrong_by_the_smallest_difference_that_fits() -> None:
    # Ends that change places are of an observer whose own clock was set back.
    ends = [-9000, -2001, -2000, -1000, 0, 1000, 2000, 2001, 9000]
    known = {f"{low}:{high}": Skew(low, high) for low in ends for high in ends}
    expected = {node for node, one in known.items() if abs(one.least_ms) > 2000}
    assert wrong([Skews(known)]) == expected
    assert len(expected) == 22


def test_an_old_lease_proves_nothing_of_a_clock() -> None:
    clocks = Clocks(0.0)
    for _ in range(10):
        clocks.at += 5
        clocks.list(Beat("n1", "h", 5.0, 7000))
    assert clocks.skews.nodes["n1"].least_ms == 0
    clocks.at += 5
    clocks.list()
    assert clocks.skews.nodes == {}, "it is gone"


def test_a_store_that_knows_when_a_beat_came_reports_it_exactly() -> None:
    clocks = Clocks(0.0)
    clocks.list(Beat("n1", "h", 5.0, 900_000, age_ms=0))
    assert clocks.skews.nodes["n1"].least_ms == -100_000 or clocks.skews.nodes["n1"].high_ms > 0
    clocks.at += 5
    clocks.list(Beat("n1", "h", 5.0, 1_006_000, age_ms=2000))
    assert clocks.skews.nodes["n1"].least_ms == 3000
    clocks.at += 5
    clocks.list(Beat("n1", "h", 5.0, 1_006_000, age_ms=1000, is_broken=True))
    assert clocks.skews.nodes["n1"].least_ms == 3000, "a will has no clock"


def test_a_beat_that_a_broker_kept_while_we_were_away_proves_little_of_a_clock() -> None:
    clocks = Clocks(0.0)
    clocks.list(Beat("n1", "h", 5.0, 1_000_000, age_ms=0))
    clocks.at += 60
    clocks.list(Beat("n1", "h", 5.0, 1_010_000, age_ms=0, is_retained=True))
    assert clocks.skews.nodes["n1"].least_ms == 0
    assert wrong([clocks.skews]) == frozenset()


class Listed:
    """A store with nothing but beats."""

    def __init__(self) -> None:
        self.found: Iterable[Beat] = ()

    async def beats(self) -> tuple[Beat, ...]:
        return tuple(self.found)


async def test_it_is_logged_once_at_its_begin_and_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    store, at = Listed(), 0.0

    def clock() -> Instant:
        return Instant(int((1000 + at) * 1000), int(at * 1000))

    stores: dict[str, Store] = {"s:": store}  # type: ignore[dict-item]  # all that is asked of it
    heartbeat_monitor = HeartbeatMonitor(
        stores, lambda lost: None, clock, Watchdog(lambda: at), {}, PersistedHeartbeats((), clock)
    )
    for step in range(60):
        at = step * 1.0
        ahead = 5000 if 20 <= step < 40 else 0
        store.found = [
            Beat(f"n{number}", "h", 1.0, clock().wall_ms + ahead * (number == 1))
            for number in range(3)
        ]
        await heartbeat_monitor._list("s:", store)  # type: ignore[arg-type]
    assert caplog.text.count("clocks are more than 2 s off") == 1
    assert caplog.text.count("clocks are right again: n1") == 1
