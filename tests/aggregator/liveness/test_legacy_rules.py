"""Heartbeats of old releases: the timeline and the cases of ``docs/spec/noded.md#7.11``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aggregator.liveness import persisted
from aggregator.liveness.legacy_rules import (
    LegacyNodes,
    Seen,
    observed,
)
from aggregator.liveness.lost_nodes import (
    LONG_AGO_MS,
    HeartbeatListing,
    LostNodes,
    judge,
    listed,
)
from aggregator.liveness.persisted import PersistedHeartbeats
from aggregator.liveness.persisted_row import LastSeen, remembered
from contract.documents.node_info import (
    Generation,
    NodeBeat,
    NodeRecord,
    decode_node_info,
    encode_beating_node_info,
    encode_node_beat,
)
from service.clock import Instant
from stores.base import Beat, NodeObject
from stores.cluster import Snapshot, Update
from stores.interruption import Interrupted

if TYPE_CHECKING:
    from collections.abc import Mapping

ON = {"nodeDEnable": "on"}
MODERN = NodeRecord((), "Healthy", 0)


def node(heartbeat: str | None, interval: str | None = "5", label: str | None = "on") -> NodeObject:
    given = {"noded/heartbeat": heartbeat, "noded/heartbeat-interval": interval}
    annotations = {name: text for name, text in given.items() if text is not None}
    return NodeObject({} if label is None else {"nodeDEnable": label}, annotations, "1")


def document(heartbeat: int, interval: int = 5) -> NodeRecord:
    return NodeRecord((), "Healthy", 0, Generation.C, NodeBeat(heartbeat, interval))


class Scheduler:
    """Judges every second, as a session of the old one did."""

    def __init__(self) -> None:
        self.seen = Seen()
        self.listing = HeartbeatListing()
        self.verdict = LostNodes()
        self.own: set[str] = set()

    def session(
        self, at: float, nodes: Mapping[str, NodeObject], records: Mapping[str, NodeRecord]
    ) -> bool:
        """Return whether ``n1`` is healthy after one session of the legacy rules."""
        labelled = LegacyNodes()
        labelled.observe_nodes(Snapshot(dict(nodes)))
        lost, now_ms = self.verdict.lost, int(at * 1000)

        def is_silent(node: str) -> bool:
            return now_ms > self.listing.heartbeats[node].silent_at_ms

        own = self.own.__contains__
        self.seen, beats = observed(self.seen, labelled.beats, records.get, own, is_silent, lost)
        self.listing = listed(self.listing, beats, now_ms, lost)
        self.verdict = judge(self.verdict, [self.listing], now_ms)
        return "n1" not in self.verdict.lost

    def annotated(self, at: float, heartbeat: str | None, **how: str | None) -> bool:
        return self.session(at, {"n1": node(heartbeat, **how)}, {})

    def written(self, at: float, record: NodeRecord | None) -> bool:
        return self.session(at, {"n1": node(None)}, {} if record is None else {"n1": record})


def timeline(seconds: int) -> int | None:
    """Return the table's heartbeat at a second; ``None`` where it was deleted."""
    if seconds >= 131:
        return None
    return 900 if seconds >= 130 else 1005 if seconds >= 105 else 1000


@pytest.mark.parametrize("way", ["annotation", "document"])
def test_the_acceptance_timeline(way: str) -> None:
    scheduler, verdicts = Scheduler(), {}
    for second in range(100, 150):
        value = timeline(second)
        verdicts[second] = (
            scheduler.annotated(second, None if value is None else str(value))
            if way == "annotation"
            else scheduler.written(second, None if value is None else document(value))
        )
    unhealthy = {second for second, healthy in verdicts.items() if not healthy}
    assert unhealthy == {*range(121, 130), *range(147, 150)}


def beaten_once(**how: str | None) -> Scheduler:
    """Return a reader that has seen two heartbeats, at 0 and 1."""
    scheduler = Scheduler()
    assert scheduler.annotated(0, "1000", **how)
    assert scheduler.annotated(1, "1001", **how)
    return scheduler


def first_unhealthy(scheduler: Scheduler, value: str | None, **how: str | None) -> int | None:
    seconds = (second for second in range(1, 1000) if not scheduler.annotated(second, value, **how))
    return next(seconds, None)


@pytest.mark.parametrize("interval", ["0", "301", "5.0", "9" * 30, None])
def test_an_interval_that_makes_no_sense_is_5(interval: str | None) -> None:
    scheduler = beaten_once(interval=interval)
    assert first_unhealthy(scheduler, "1001", interval=interval) == 17


@pytest.mark.parametrize(("interval", "limit"), [("1", 3), ("+7", 21), ("300", 900), ("010", 30)])
def test_an_interval_that_does_is_the_limit(interval: str, limit: int) -> None:
    scheduler = beaten_once(interval=interval)
    assert first_unhealthy(scheduler, "1001", interval=interval) == 1 + limit + 1


@pytest.mark.parametrize("label", ["On", None])
def test_without_the_label_a_node_is_always_healthy(label: str | None) -> None:
    scheduler = beaten_once(label=label)
    assert first_unhealthy(scheduler, "1001", label=label) is None
    # Who takes it away lets the node go at once, and who sets it begins anew.
    scheduler = beaten_once()
    assert first_unhealthy(scheduler, "1001") == 17
    assert scheduler.annotated(1000, "1001", label=label)
    assert first_unhealthy(scheduler, "1001") is None


def test_a_heartbeat_that_is_no_number_is_0() -> None:
    nodes = LegacyNodes()
    texts = ("abc", "", "1.5", "1e3", " 1", "-", "0x10", "9" * 19, "+5", "-7", "007")
    nodes.observe_nodes(Snapshot({text: node(text, text) for text in texts}))
    numbers = [beat.at_seconds for beat in nodes.beats.values() if beat is not None]
    assert numbers == [*([0] * 8), 5, -7, 7]
    scheduler = beaten_once()
    assert scheduler.annotated(10, "abc"), "0 is a change"
    assert first_unhealthy(scheduler, "xyz") == 26, "and abc is not another one than xyz"


def test_a_heartbeat_that_never_changed_proves_nothing() -> None:
    """Upstream: unhealthy in the first evaluation, or 15 s after what is left of years ago."""
    assert first_unhealthy(Scheduler(), None) is None
    assert first_unhealthy(Scheduler(), "1703836707") is None
    scheduler = Scheduler()
    assert all(scheduler.written(second, document(1703836707)) for second in range(100))
    assert all(scheduler.written(second, None) for second in range(100, 200))


def test_a_node_that_is_deleted_is_let_go() -> None:
    scheduler = beaten_once()
    assert first_unhealthy(scheduler, "1001") == 17
    assert scheduler.session(1001, {}, {})


def test_the_end_of_an_old_beat_is_nothing_where_the_store_has_one() -> None:
    scheduler = beaten_once()
    scheduler.own.add("n1")
    assert first_unhealthy(scheduler, "1001") is None
    # Nor is what stands there: neither from the start, nor where the node was published lost.
    scheduler = Scheduler()
    scheduler.own.add("n1")
    scheduler.verdict = LostNodes({"n1": LONG_AGO_MS})
    assert scheduler.annotated(1, "1001"), "here the store's own beat is not asked"
    assert first_unhealthy(scheduler, "1001") is None


def test_a_node_that_went_back_to_an_old_release_is_alive_by_it() -> None:
    """What is left of our beat in the store is silent for ever."""
    scheduler = Scheduler()
    scheduler.own.add("n1")
    ours = [Beat("n1", "host", 5.0, 1)]
    listing, verdict, lost_at = HeartbeatListing(), LostNodes(), []
    for second in range(100):
        value = 1000 + min(second, 60) // 5 * 5
        scheduler.annotated(second, str(value))
        listing = listed(listing, ours, second * 1000, verdict.lost)
        verdict = judge(verdict, [listing, scheduler.listing], second * 1000)
        if verdict.lost:
            lost_at.append(second)
    assert lost_at == list(range(76, 100)), "60 s, 3 intervals, and it is strict"


def test_a_release_without_heartbeats_takes_over_from_an_annotation() -> None:
    # It cannot take it from the Node, and has a document while there are faults.
    scheduler = beaten_once()
    nodes, records = {"n1": node("1001")}, {"n1": MODERN}
    assert all(scheduler.session(second, nodes, records) for second in range(2, 100))
    assert all(scheduler.session(second, nodes, {}) for second in range(100, 200))


def test_a_release_without_heartbeats_takes_over() -> None:
    scheduler = Scheduler()
    assert scheduler.written(0, document(1))
    assert scheduler.written(5, document(2))
    assert all(scheduler.written(second, MODERN) for second in range(10, 100))
    # What it left on the Node has no owner any more.
    assert first_unhealthy(scheduler, None) is None


def test_a_bad_hash_changes_nothing_and_the_rest_ages() -> None:
    """The intake keeps the last good document of a node; here it is what is read of it."""
    good = decode_node_info("n", encode_beating_node_info([], "Healthy", NodeBeat(2, 5)))
    assert good.beat == NodeBeat(2, 5)
    older = decode_node_info("n", encode_node_beat(NodeBeat(1, 5)))
    scheduler = Scheduler()
    assert scheduler.written(0, older)
    verdicts = [scheduler.written(second, good) for second in range(1, 30)]
    assert verdicts.index(False) == 16


def test_the_brake_holds_for_old_heartbeats_too() -> None:
    scheduler = Scheduler()
    names = [f"n{number}" for number in range(20)]
    for second in range(60):
        value = str(1000 + min(second, 20))
        scheduler.session(second, dict.fromkeys(names, node(value)), {})
    assert scheduler.verdict.lost == {}
    assert scheduler.verdict.brake is not None
    assert set(scheduler.verdict.brake.nodes) == set(names)


def test_nodes_are_followed() -> None:
    nodes = LegacyNodes()
    nodes.observe_nodes(Interrupted("away"))
    assert (nodes.listed, nodes.beats) == (False, {})
    nodes.observe_nodes(Snapshot({"a": node("5"), "b": node("6", label=None), "c": node(None)}))
    assert nodes.listed
    assert nodes.beats == {"a": NodeBeat(5, 5), "c": None}
    nodes.observe_nodes(Update("b", node("7", "9")))
    nodes.observe_nodes(Update("a", node("5", label="off")))
    nodes.observe_nodes(Update("c", None))
    assert nodes.beats == {"b": NodeBeat(7, 9)}
    nodes.observe_nodes(Snapshot({}))
    assert nodes.beats == {}


# What the next run knows.


def restarted(heartbeat: int, lost: tuple[str, ...] = (), changed_at: int = -50) -> Scheduler:
    scheduler = Scheduler()
    scheduler.seen = Seen(proven=frozenset({"n1"}))
    row = LastSeen("n1", heartbeat, 1000 + changed_at)
    scheduler.listing = remembered([row], Instant(1_000_000, 0))
    scheduler.verdict = LostNodes(dict.fromkeys(lost, LONG_AGO_MS))
    return scheduler


def test_a_restart_is_a_fresh_threshold() -> None:
    scheduler = restarted(1001)
    assert first_unhealthy(scheduler, "1001") == 17
    assert scheduler.listing.heartbeats["n1"].changed_at_ms == -50_000, "its age is the true one"
    assert first_unhealthy(restarted(1001), None) == 17, "it was deleted meanwhile"
    assert first_unhealthy(restarted(7, ()), "1001") == 17


def test_lost_node_stays_lost_over_a_restart() -> None:
    scheduler = restarted(1001, ("n1",))
    assert not scheduler.annotated(1, "1001")
    assert scheduler.annotated(2, "1002")
    # Also where what was remembered is gone; but not by a heartbeat that is not there.
    scheduler = Scheduler()
    scheduler.verdict = LostNodes({"n1": LONG_AGO_MS})
    assert not scheduler.annotated(1, "1001")
    assert not scheduler.annotated(100, "1001")
    assert scheduler.annotated(101, "1002")


def test_the_document_has_the_shape_of_its_first_reader() -> None:
    example = '[{"NodeName":"node-1","HeartbeatTime":1710907679,"UpdateTime":1710907680}]'
    (one,) = persisted.decode(example)
    assert (one.node, one.heartbeat_seconds, one.changed_at_seconds) == (
        "node-1",
        1710907679,
        1710907680,
    )
    assert persisted.encode([one]) == example


@pytest.mark.parametrize("content", ["", "{", "{}", '[{"NodeName":3}]', "[null]"])
def test_a_document_that_is_none_is_left_and_the_others_count(content: str) -> None:
    memory = PersistedHeartbeats((), lambda: Instant(0, 0))
    silent = persisted.encode([LastSeen("n1", 0, 5, "host", 7)])
    (problem,) = memory.restore({"0": content, "1": silent}, Instant(0, 0))
    assert problem.startswith("0: ")
    assert [one.node for one in memory.restored] == ["n1"]
