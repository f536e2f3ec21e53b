"""What keeps old heartbeats from being judged: what they are read from cannot be read."""

from __future__ import annotations

from aggregator.liveness import persisted
from aggregator.liveness import rules as liveness
from aggregator.liveness.legacy_watch import LegacyHeartbeatWatch
from aggregator.liveness.persisted import PersistedHeartbeats
from aggregator.liveness.persisted_row import LastSeen
from aggregator.liveness.rules import HeartbeatListing, LostNodes
from contract.documents.node_info import Generation, NodeBeat, NodeRecord
from service.clock import Instant
from stores.base import NodeObject, NodesListed
from stores.interruption import Interrupted

LABELLED = NodeObject({"nodeDEnable": "on"}, {}, "1")


class World:
    """A node of generation C, whose node-info is watched; the watch of Nodes is played."""

    def __init__(self) -> None:
        self.at = 0
        self.beat = 1000
        self.trouble: str | None = None
        self.verdict = LostNodes()
        objects = None  # it is asked for its watch only
        self.listener = LegacyHeartbeatWatch(
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
            self.listener.listen(self.now(), lambda _: False, lost, None)
            self.verdict = liveness.judge(self.verdict, [self.listener.heard], self.at * 1000)


def is_listed(heard: HeartbeatListing) -> bool:
    return heard.listed_at_ms is not None


def test_while_node_info_cannot_be_read_nobody_falls_silent() -> None:
    world = World()
    world.listener.nodes.observe(NodesListed({"n1": LABELLED}))
    world.listen(5, beats=True)
    world.trouble = "away"
    world.listen(100, beats=False)
    assert world.verdict.lost == {}
    world.trouble = None
    world.listen(115, beats=False)
    assert world.verdict.lost == {}, "and then it has its whole time again"
    world.listen(117, beats=False)
    assert set(world.verdict.lost) == {"n1"}


def test_before_it_was_read_once_nothing_is_taken_for_deleted() -> None:
    world = World()
    world.trouble = "it was not listed yet"
    world.listener.remember([LastSeen("n1", 1000, 999)])
    world.listener.nodes.observe(NodesListed({"n1": LABELLED}))
    world.listen(25, beats=False)
    assert not is_listed(world.listener.heard), "who was lost before stays so"
    # It is not waited for for ever: the other stores' heartbeats are to be judged.
    world.listen(40, beats=False)
    assert world.listener.heard == HeartbeatListing(listed_at_ms=40_000)
    assert [one.heartbeat_seconds for one in world.listener.last_seen()] == [1000]
    world.trouble = None
    world.listen(55, beats=False)
    assert world.verdict.lost == {}
    world.listen(58, beats=False)
    assert set(world.verdict.lost) == {"n1"}


def test_who_is_gone_is_forgotten_in_what_is_kept_too() -> None:
    """Else a later run would know of a heartbeat that changed, and take its silence for a loss."""
    world = World()
    memory = PersistedHeartbeats([world.listener], world.now)
    kept = {"3": persisted.encode([LastSeen("n1", 1000, 999)])}
    assert memory.restore(kept, world.now()) == []
    assert memory.take_changed() == frozenset()
    world.listener.nodes.observe(NodesListed({}))
    world.listen(1, beats=False)
    memory.note(())
    assert memory.take_changed() == {"3"}
    assert memory.text("3") is None


def test_nothing_is_written_while_heartbeats_go_on_and_silence_once() -> None:
    world = World()
    memory = PersistedHeartbeats([world.listener], world.now)
    memory.restore({}, world.now())
    world.listener.nodes.observe(NodesListed({"n1": LABELLED}))
    written = []
    for until in range(5, 200, 5):
        world.listen(until, beats=until < 50)
        memory.note(())
        written += [(until, memory.text(bucket)) for bucket in memory.take_changed()]
    assert written == [
        (5, '[{"NodeName":"n1"}]'),
        (65, '[{"NodeName":"n1","HeartbeatTime":1045,"UpdateTime":1045}]'),
    ]
    later = World()
    later.at = 500
    PersistedHeartbeats([later.listener], later.now).restore(
        {"x": written[-1][1] or ""}, later.now()
    )
    assert later.listener.heard.pulses["n1"].changed_at_ms == 45_000


def test_nodes_that_cannot_be_listed_are_the_same() -> None:
    world = World()
    world.listener.nodes.observe(NodesListed({"n1": LABELLED}))
    world.listen(5, beats=True)
    world.listener.nodes.observe(Interrupted("away"))
    world.listen(100, beats=False)
    assert world.verdict.lost == {}
