"""Who is lost: the table of the specification, what the observer must not count, the brake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from aggregator.liveness.lost_nodes import (
    LONG_AGO_MS,
    HeartbeatListing,
    LostNodes,
    failed,
    interval_ms,
    judge,
    listed,
    listing_period_ms,
    next_ms,
    period_ms,
)
from stores.base import Beat

if TYPE_CHECKING:
    from collections.abc import Iterable


def beat(node: str, at: int, interval: float = 5.0, holder: str = "host") -> Beat:
    return Beat(node, holder, interval, at)


class Observer:
    """Lists beats at times that a test chooses, in seconds."""

    def __init__(self, stores: int = 1, lost: Iterable[str] = ()) -> None:
        self.listing = [HeartbeatListing() for _ in range(stores)]
        self.verdict = LostNodes(dict.fromkeys(lost, LONG_AGO_MS))

    def list(self, at: float, *beats: Beat, store: int = 0) -> frozenset[str]:
        """Apply a listing of beats; return the lost nodes."""
        now_ms = int(at * 1000)
        self.listing[store] = listed(self.listing[store], beats, now_ms, self.verdict.lost)
        self.verdict = judge(self.verdict, self.listing, now_ms)
        return frozenset(self.verdict.lost)

    def fail(self, store: int = 0) -> None:
        """Record that a store's heartbeats could not be listed."""
        self.listing[store] = failed(self.listing[store], "away")

    @property
    def held(self) -> frozenset[str]:
        """Return the silent nodes that are not lost because of the brake."""
        brake = self.verdict.brake
        return frozenset() if brake is None else frozenset(brake.nodes)


LOST = frozenset({"n1"})
NO_NODES: frozenset[str] = frozenset()


def test_the_acceptance_timeline() -> None:
    # noded#7.11, listed every second as its scheduler does; deleted is unknown, not a 0.
    observer, value = Observer(), 1000
    verdicts = {}
    for second in range(100, 148):
        value = {105: 1005, 130: 900}.get(second, value)
        beats = [beat("n1", value)] if second < 131 else []
        verdicts[second] = observer.list(second, *beats)
    silent = {second for second, lost in verdicts.items() if lost}
    assert silent == set(range(121, 130))


def test_an_interval_of_1_to_300_s_counts_and_another_one_is_5_s() -> None:
    for seconds in (0, 0.999, 300.001, float("nan"), float("inf")):
        assert interval_ms(seconds) == 5000, seconds
    assert [interval_ms(seconds) for seconds in (1, 1.5, 300)] == [1000, 1500, 300_000]


def test_a_node_that_never_beat_is_unknown() -> None:
    observer = Observer()
    assert observer.list(0) == NO_NODES
    assert observer.list(1000) == NO_NODES


def test_the_threshold_is_three_intervals_and_strict() -> None:
    for interval in (1.0, 5.0, 60.0):
        observer = Observer()
        for step in range(4):
            assert observer.list(step * interval, beat("n1", 7, interval)) == NO_NODES
        assert observer.list(3 * interval + 0.001, beat("n1", 7, interval)) == LOST


@pytest.mark.parametrize(
    "change", [beat("n1", 8), beat("n1", 1), beat("n1", 7, holder="other"), None]
)
def test_any_change_ends_it(change: Beat | None) -> None:
    observer = Observer()
    for second in range(17):
        observer.list(second, beat("n1", 7))
    assert set(observer.verdict.lost) == LOST
    assert observer.list(17, *([] if change is None else [change])) == NO_NODES


def test_the_node_that_came_back_has_a_fresh_threshold() -> None:
    observer = Observer()
    for second in range(17):
        observer.list(second, beat("n1", 7))
    for second in range(17, 33):
        assert observer.list(second, beat("n1", 8)) == NO_NODES
    assert observer.list(33, beat("n1", 8)) == LOST


def test_time_without_listings_does_not_count() -> None:
    observer = Observer()
    for second in range(15):
        assert observer.list(second, beat("n1", 7)) == NO_NODES
    observer.fail()
    assert observer.list(75, beat("n1", 7)) == NO_NODES
    for second in range(76, 91):
        assert observer.list(second, beat("n1", 7)) == NO_NODES
    assert observer.list(91, beat("n1", 7)) == LOST


def test_a_listing_that_took_too_long_is_a_failed_one() -> None:
    observer = Observer()
    observer.list(0, beat("n1", 7))
    assert observer.list(60, beat("n1", 7)) == NO_NODES
    for second in range(61, 76):
        assert observer.list(second, beat("n1", 7)) == NO_NODES
    assert observer.list(76, beat("n1", 7)) == LOST


def test_an_answer_that_took_longer_than_a_period_is_a_fresh_threshold() -> None:
    for took_ms, silent in ((5000, True), (5001, False)):
        listing = listed(HeartbeatListing(), [beat("n1", 1)], 0, ())
        listing = listed(listing, [beat("n1", 1)], 10_000, ())
        listing = listed(listing, [beat("n1", 1)], 16_000, (), took_ms)
        assert ("n1" in judge(LostNodes(), [listing], 16_000).lost) is silent


def test_node_lost_before_an_outage_stays_lost() -> None:
    observer = Observer()
    for second in range(17):
        observer.list(second, beat("n1", 7))
    observer.fail()
    assert observer.list(80, beat("n1", 7)) == LOST
    assert observer.list(81, beat("n1", 8)) == NO_NODES


def test_a_start_is_a_fresh_threshold_for_all_but_those_lost_before() -> None:
    observer = Observer(lost=["n1", "n2"])
    old = (beat("n1", 7), beat("n3", 7))
    for second in range(500, 516):
        # n2 has no beat any more: nothing is known about it.
        assert observer.list(second, *old) == LOST
    assert observer.list(516, *old) == {"n1", "n3"}
    assert observer.list(517, beat("n1", 8), old[1]) == {"n3"}


def test_before_the_first_listing_no_node_is_found() -> None:
    observer = Observer(stores=2, lost=["n1"])
    assert observer.list(0, store=1) == LOST
    assert observer.list(1, store=0) == NO_NODES


def test_a_node_is_alive_in_any_store() -> None:
    observer = Observer(stores=2)
    for second in range(0, 40, 2):
        observer.list(second, beat("n1", 7))
        assert observer.list(second, beat("n1", second), store=1) == NO_NODES
    observer.fail(store=1)
    # Where it beats cannot be read: it is not lost because of an old beat elsewhere.
    for second in range(40, 80, 2):
        assert observer.list(second, beat("n1", 7)) == NO_NODES
    # The same after a restart, until it was read once.
    observer = Observer(stores=2)
    for second in range(0, 40, 2):
        assert observer.list(second, beat("n1", 7)) == NO_NODES
    assert observer.list(40, store=1) == LOST


def test_the_observer_goes_by_the_shortest_interval() -> None:
    assert period_ms([HeartbeatListing()]) == 1000
    listing = listed(HeartbeatListing(), [beat("n1", 1, 60.0), beat("n2", 1, 7.0)], 0, ())
    assert period_ms([listing, HeartbeatListing()]) == 7000
    assert period_ms([listed(HeartbeatListing(), [beat("n1", 1, 1.0)], 0, ())]) == 1000


def test_beats_are_listed_once_per_shortest_interval_that_is_usual() -> None:
    assert listing_period_ms([HeartbeatListing()]) == 1000
    listing = listed(HeartbeatListing(), [beat("n1", 1, 60.0), beat("n2", 1, 7.0)], 0, ())
    assert listing_period_ms([listing]) == 5000, "both may announce an absence"
    listing = listed(listing, [beat("n1", 1, 60.0), beat("n2", 2, 7.0)], 7000, ())
    assert listing_period_ms([listing]) == 5000, "n1 still may"
    listing = listed(listing, [beat("n1", 2, 60.0), beat("n2", 3, 7.0)], 60_000, ())
    assert listing_period_ms([listing, HeartbeatListing()]) == 7000
    listing = listed(listing, [beat("n1", 2, 60.0)], 61_000, ())
    assert listing_period_ms([listing]) == 60_000
    assert listing_period_ms([listed(listing, [beat("n2", 4, 1.0)], 62_000, ())]) == 1000


@pytest.mark.parametrize("usual", [1.0, 5.0, 60.0])
def test_an_announced_absence_does_not_change_how_often_beats_are_listed(usual: float) -> None:
    listing = HeartbeatListing()
    for at in (1, 2, 3):
        listing = listed(listing, [beat("n1", at, usual)], int(at * usual * 1000), ())
    at_ms = int(3 * usual * 1000)
    assert listing_period_ms([listing]) == usual * 1000
    listing = listed(listing, [beat("n1", 4, 300.0)], at_ms, ())
    assert listing.heartbeats["n1"].threshold_ms == 900_000
    assert next_ms([listing], at_ms) == at_ms + usual * 1000
    # An observer that was not there before knows no interval.
    assert listing_period_ms([listed(HeartbeatListing(), [beat("n1", 4, 300.0)], 0, ())]) == 5000
    # It beats as before.
    listing = listed(listing, [beat("n1", 5, usual)], at_ms, ())
    assert listing_period_ms([listing]) == usual * 1000


def test_a_node_that_never_beats_again_makes_no_replica_list_more_often() -> None:
    listing = listed(HeartbeatListing(), [beat("n1", 1, 15.0), beat("n2", 1, 15.0)], 0, ())
    periods = []
    for number in range(2, 6):
        beats = [beat("n1", 1, 15.0), beat("n2", number, 15.0)]
        listing = listed(listing, beats, number * 15_000 - 15_000, ())
        periods.append(listing_period_ms([listing]))
    assert periods == [5000, 5000, 5000, 15_000], "its agent may begin again while it is not silent"
    listing = listed(listing, [beat("n1", 2, 7.0), beat("n2", 6, 15.0)], 75_000, ())
    assert listing_period_ms([listing]) == 5000
    # No other node beats.
    listing = listed(HeartbeatListing(), [beat("n1", 1, 15.0)], 0, ())
    assert listing_period_ms([listed(listing, [beat("n1", 1, 15.0)], 46_000, ())]) == 5000


class Fleet:
    """Nodes that beat every 5 s, each at its own moment, observed every 5 s."""

    def __init__(self, nodes: int) -> None:
        self.names = [f"n{number:03}" for number in range(nodes)]
        self.ends = dict.fromkeys(self.names, 10**9)
        self.begins = dict.fromkeys(self.names, 10**9)
        self.observer = Observer()
        self.lost_at: dict[str, int] = {}
        self.second = 0

    def run(self, until: int) -> None:
        """Pass time."""
        while self.second < until:
            if self.second % 5 == 0:
                beats = [beat(name, self._last(number)) for number, name in enumerate(self.names)]
                for node in self.observer.list(self.second, *beats):
                    self.lost_at.setdefault(node, self.second)
            self.second += 1

    def _last(self, number: int) -> int:
        name, phase = self.names[number], number % 5
        last = self.second if self.second >= self.begins[name] else 0
        last = max(last, min(self.second, self.ends[name] - 1))
        return last - (last - phase) % 5


def test_a_fleet_that_beats_loses_no_node() -> None:
    fleet = Fleet(100)
    fleet.run(200)
    assert fleet.lost_at == {}
    assert fleet.observer.held == NO_NODES


def test_one_of_many_is_lost_in_time() -> None:
    fleet = Fleet(100)
    for number in (3, 41):
        fleet.ends[f"n{number:03}"] = 100
    fleet.run(200)
    assert set(fleet.lost_at) == {"n003", "n041"}
    # The last beat was at most 5 s before 100; 5 intervals is the limit.
    assert all(100 < at <= 95 + 25 for at in fleet.lost_at.values())


@pytest.mark.parametrize("spread", [0, 4, 7])
def test_a_third_at_once_is_held_back_to_the_last(spread: int) -> None:
    fleet = Fleet(100)
    for number in range(30):
        fleet.ends[fleet.names[number]] = 100 + number * spread // 30
    fleet.run(400)
    assert fleet.observer.held == set(fleet.names[:30])
    assert fleet.observer.verdict.lost == {}
    assert set(fleet.lost_at) == set()


def test_those_published_just_before_are_taken_back() -> None:
    fleet = Fleet(100)
    for number in range(30):
        fleet.ends[fleet.names[number]] = 100 + number // 2
    fleet.run(200)
    assert fleet.observer.held == set(fleet.names[:30])
    assert fleet.observer.verdict.lost == {}


def test_three_of_four_are_lost_four_of_five_are_not() -> None:
    for nodes, silent, held in ((4, 3, False), (5, 4, True), (20, 4, False), (19, 4, True)):
        fleet = Fleet(nodes)
        for number in range(silent):
            fleet.ends[fleet.names[number]] = 100
        fleet.run(200)
        names = set(fleet.names[:silent])
        assert fleet.observer.held == (names if held else NO_NODES)
        assert set(fleet.lost_at) == (NO_NODES if held else names)


def test_one_more_is_lost_while_the_alarm_lasts() -> None:
    fleet = Fleet(100)
    for number in range(30):
        fleet.ends[fleet.names[number]] = 100
    fleet.ends["n050"] = 200
    fleet.run(300)
    assert fleet.observer.held == set(fleet.names[:30])
    assert set(fleet.lost_at) == {"n050"}


def test_brake_releases_beating_nodes_and_a_small_rest_is_lost_a_threshold_later() -> None:
    fleet = Fleet(100)
    for number in range(30):
        fleet.ends[fleet.names[number]] = 100
    for number in range(12, 30):
        fleet.begins[fleet.names[number]] = 300
    fleet.run(311)
    assert fleet.observer.held == set(fleet.names[:12])
    assert fleet.lost_at == {}
    fleet.run(330)
    assert fleet.observer.held == NO_NODES
    assert set(fleet.lost_at) == set(fleet.names[:12])


@pytest.mark.slow
def test_after_ten_minutes_a_third_is_lost_and_more_than_half_never() -> None:
    for silent, lost in ((30, True), (50, True), (51, False), (100, False)):
        fleet = Fleet(100)
        for number in range(silent):
            fleet.ends[fleet.names[number]] = 100
        fleet.run(100 + 20 + 595)
        assert fleet.lost_at == {}
        fleet.run(100 + 30 + 620)
        assert set(fleet.lost_at) == (set(fleet.names[:silent]) if lost else NO_NODES)
        fleet.run(800)
        assert fleet.observer.held == (NO_NODES if lost else set(fleet.names[:silent]))


def test_while_nothing_can_be_read_the_brake_holds() -> None:
    fleet = Fleet(100)
    for number in range(30):
        fleet.ends[fleet.names[number]] = 100
    fleet.run(200)
    fleet.observer.fail()
    fleet.second = 5000
    fleet.run(5015)
    assert fleet.lost_at == {}
    assert fleet.observer.held == NO_NODES  # everybody has a fresh threshold
    fleet.run(5100)
    assert fleet.observer.held == set(fleet.names[:30])


def test_lost_ones_from_before_a_restart_are_no_part_of_a_new_silence() -> None:
    fleet = Fleet(100)
    fleet.observer = Observer(lost=fleet.names[:30])
    for number in range(30):
        fleet.ends[fleet.names[number]] = -100
    fleet.ends["n050"] = 3
    fleet.run(60)
    assert set(fleet.observer.verdict.lost) == {*fleet.names[:30], "n050"}


def test_the_first_silent_node_is_noticed_at_once() -> None:
    listing = listed(HeartbeatListing(), [beat("n1", 1), beat("n2", 1)], 0, ())
    assert next_ms([listing], 0) == 5000
    listing = listed(listing, [beat("n1", 2), beat("n2", 1)], 5000, ())
    listing = listed(listing, [beat("n1", 3), beat("n2", 1)], 10_000, ())
    assert next_ms([listing], 10_000) == 15_001  # not a listing at 15,000 and one for it
    assert next_ms([listing], 9000) == 14_000
    listing = listed(listing, [beat("n1", 4), beat("n2", 1)], 14_900, ())
    assert next_ms([listing], 14_900) == 15_900  # 15,001, but five listings in a period at most
    assert next_ms([listing], 13_000) == 15_001
    assert next_ms([listing], 15_900) == 20_900  # n2 is silent already


# Stores that receive beats as events.


def received_beat(at: int, age: float, *, broken: bool = False, interval: float = 5.0) -> Beat:
    return Beat("n1", "host", interval, at, age_ms=int(age * 1000), is_broken=broken)


@pytest.mark.parametrize("interval", [1.0, 5.0, 15.0, 60.0])
@pytest.mark.parametrize("late", [0.0, 0.3, 0.9])
def test_a_silent_node_is_found_within_a_second(interval: float, late: float) -> None:
    """``late``: where in a period of listings its last beat comes."""
    last = 100.0 + late * interval
    observer, at_ms = Observer(), 100_000
    while not observer.verdict.lost:
        at = at_ms / 1000
        beaten = 1 if at < last else 2
        age = at - 99.0 if at < last else at - last
        observer.list(at, received_beat(beaten, age, interval=interval))
        assert at < last + 3 * interval + 1
        assert not observer.verdict.lost or at > last + 3 * interval, "too early"
        at_ms = next_ms(observer.listing, at_ms)


def test_when_a_beat_came_is_when_it_changed() -> None:
    listing = listed(HeartbeatListing(), [received_beat(1, 3.0)], 10_000, ())
    assert listing.heartbeats["n1"].changed_at_ms == 7000
    listing = listed(listing, [received_beat(2, 1.5)], 15_000, ())
    assert listing.heartbeats["n1"].changed_at_ms == 13_500
    listing = listed(listing, [received_beat(2, 6.5)], 20_000, ())
    assert listing.heartbeats["n1"].changed_at_ms == 13_500


def test_a_broken_connection_is_silent_after_one_interval() -> None:
    observer = Observer()
    observer.list(0, received_beat(1, 0.0))
    observer.list(4, received_beat(1, 1.0, broken=True))
    assert observer.list(8, received_beat(1, 5.0, broken=True)) == NO_NODES
    assert next_ms(observer.listing, 7_500) == 8_001
    assert observer.list(8.002, received_beat(1, 5.002, broken=True)) == LOST
    assert observer.list(9, received_beat(2, 0.0)) == NO_NODES


def test_node_that_beats_again_within_the_threshold_is_never_lost() -> None:
    observer = Observer()
    observer.list(0, received_beat(1, 0.0))
    observer.list(4, received_beat(1, 1.0, broken=True))
    for second in range(7, 22):
        assert observer.list(second, received_beat(2, second - 6.5)) == NO_NODES
    assert observer.list(22, received_beat(2, 15.5)) == LOST


def test_a_will_that_comes_late_is_no_reprieve() -> None:
    observer = Observer()
    for second in range(16):
        assert observer.list(second, received_beat(1, float(second))) == NO_NODES
    assert observer.list(16, received_beat(1, 1.0, broken=True)) == LOST


def retained_will(at: int, age: float) -> Beat:
    return msgspec.structs.replace(received_beat(at, age, broken=True), is_retained=True)


def test_a_will_from_before_we_listened_is_no_news() -> None:
    """A broker that ended sent the will of every node, and they come back one by one."""
    observer = Observer()
    for second in range(16):
        assert observer.list(second, retained_will(1, second)) == NO_NODES
    assert observer.list(16, retained_will(1, 16.0)) == LOST
    # It was received, and then the broker ended, for so short a time that no listing failed.
    observer = Observer()
    observer.list(0, received_beat(1, 0.0))
    observer.list(4, received_beat(1, 1.0, broken=True))
    for second in range(5, 16):
        assert observer.list(second, retained_will(1, second - 3)) == NO_NODES
    assert observer.list(16, retained_will(1, 13.0)) == LOST


def test_node_lost_by_a_will_stays_lost_when_the_broker_comes_back() -> None:
    observer = Observer()
    observer.list(0, received_beat(1, 0.0))
    observer.list(1, received_beat(1, 0.5, broken=True))
    assert observer.list(6, received_beat(1, 5.5, broken=True)) == LOST
    for second in range(7, 30):
        assert observer.list(second, retained_will(1, second - 0.5)) == LOST


def test_node_whose_connection_broke_before_its_first_beat_is_unknown() -> None:
    observer = Observer()
    will = Beat("n1", "", 5.0, 0, age_ms=0, is_broken=True)
    for second in range(100):
        assert observer.list(second, will) == NO_NODES
    assert observer.listing[0].heartbeats == {}


def test_a_broker_that_lets_all_connections_go_loses_no_node_at_once() -> None:
    observer = Observer()
    names = [f"n{number}" for number in range(20)]
    for second in range(8):
        broken = second >= 2
        observer.list(
            second,
            *(Beat(name, "h", 5.0, 1, second * 1000, is_broken=broken) for name in names),
        )
    assert observer.verdict.lost == {}
    # Time in which nothing could be received does not count for wills either.
    observer = Observer()
    observer.list(0, received_beat(1, 0.0))
    observer.fail()
    for second in range(20, 26):
        assert observer.list(second, received_beat(1, float(second), broken=True)) == NO_NODES
    assert observer.list(26, received_beat(1, 26.0, broken=True)) == LOST
