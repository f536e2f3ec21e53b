"""A follower and its leader, as pipelines: what the next leader writes is what it must be."""

from __future__ import annotations

from contract.names import CLUSTER_LABEL, CLUSTER_NAMESPACE
from stores.base import Changed, Document
from tests.aggregator.merge.test_pipeline import NAME, Bench, gone, listed
from tests.aggregator.nodes import T0, faulty, healthy, instant, published, report, unhealthy


class Both:
    """Two pipelines that read the same; the leader's documents are what is stored."""

    def __init__(self) -> None:
        self.leader, self.follower = Bench(), Bench()

    def observe(self, at: float, *events: object) -> None:
        self.leader.observe(instant(at), *events)  # type: ignore[arg-type]
        self.follower.observe(instant(at), *events)  # type: ignore[arg-type]

    def publish(self, at: float) -> None:
        self.leader.write(instant(at))
        for one in self.stored():
            self.follower.pipeline.follow(one, instant(at))

    def stored(self) -> tuple[Document, ...]:
        return tuple(
            Document(CLUSTER_NAMESPACE, name, {name: text}, dict([CLUSTER_LABEL]))
            for name, text in self.leader.outputs.items()
        )

    def take_over(self, at: float) -> set[str]:
        """Make the follower the leader; return the names of the documents that it then changes."""
        before = dict(self.leader.outputs)
        self.follower.pipeline.restore_documents(self.stored())
        self.follower.pipeline.step(instant(at))
        self.follower.write(instant(at))
        after = self.follower.outputs
        return {
            name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
        }


def test_new_leader_with_the_same_values_writes_nothing() -> None:
    both = Both()
    both.observe(0, listed(n1=healthy(), n2=healthy()))
    both.publish(0)
    both.observe(1, Changed(report("n1", faulty(3, T0 + 1))))
    both.publish(1)
    assert both.take_over(2) == set()


def test_stamps_go_on_from_those_of_the_leader() -> None:
    both = Both()
    both.observe(0, listed(n1=healthy()))
    both.publish(0)
    # The leader saw three changes in a second, the follower one.
    for chip in (1, 2, 3):
        both.leader.observe(instant(1), Changed(report("n1", faulty(chip, T0))))
        both.leader.write(instant(1))
    last = both.leader.shown()["n1"]["UpdateTime"]
    both.follower.observe(instant(1), Changed(report("n1", faulty(4, T0))))
    both.publish(1)
    assert both.take_over(1.5) == {NAME}
    entry = both.follower.shown()["n1"]
    assert unhealthy(entry) == "Ascend910-4"
    assert entry["UpdateTime"] > last


def test_entry_of_the_leader_stays_until_the_follower_knows_its_document() -> None:
    both = Both()
    both.observe(0, listed(n1=healthy()))
    both.publish(0)
    both.leader.observe(instant(1), Changed(report("n1", faulty(3, T0 + 1))))
    both.publish(1)
    both.follower.observe(instant(1.1), Changed(report("n1", faulty(3, T0 + 1))))
    assert both.take_over(2) == set()


def test_change_while_no_replica_led_is_written() -> None:
    both = Both()
    both.observe(0, listed(n1=healthy(), n2=healthy()))
    both.publish(0)
    both.follower.observe(instant(1), Changed(report("n2", faulty(3, T0 + 1))))
    assert both.take_over(2) == {NAME}
    assert unhealthy(both.follower.shown()["n2"]) == "Ascend910-3"


def test_a_node_that_the_leader_dropped_does_not_come_back_and_its_stamp_grows() -> None:
    both = Both()
    both.observe(0, listed(n1=faulty(3), n2=healthy()))
    both.publish(0)
    both.observe(1, gone("n1"))
    both.publish(1)
    stamp = both.leader.shown()["n1"]["UpdateTime"]
    both.leader.pipeline.step(instant(47))
    both.publish(47)
    assert set(both.leader.shown()) == {"n2"}
    assert both.take_over(47) == set()
    assert set(both.follower.shown()) == {"n2"}
    both.follower.observe(instant(48), Changed(report("n1", healthy(T0 - 100))))
    both.follower.write(instant(48))
    assert both.follower.shown()["n1"]["UpdateTime"] > stamp


def test_a_deleted_node_that_is_still_shown_is_dropped_by_the_next_leader() -> None:
    both = Both()
    both.observe(0, listed(n1=faulty(3), n2=healthy()))
    both.publish(0)
    both.observe(1, gone("n1"))
    both.publish(1)
    assert both.take_over(10) == set()
    assert unhealthy(both.follower.shown()["n1"]) == ""
    both.follower.pipeline.step(instant(50))
    both.follower.write(instant(50))
    both.follower.pipeline.step(instant(60))
    both.follower.write(instant(60))
    assert set(both.follower.shown()) == {"n2"}


def test_a_follower_forgets_a_node_that_is_gone_by_itself() -> None:
    both = Both()
    both.observe(0, listed(n1=faulty(3), n2=healthy()))
    both.publish(0)
    both.observe(1, gone("n1"))
    both.publish(1)
    both.leader.pipeline.step(instant(47))
    both.publish(47)
    both.follower.pipeline.step(instant(60))
    assert set(both.follower.pipeline.device.entries) == {"n2"}


def test_nodes_keep_the_document_that_the_leader_gave_them() -> None:
    """They arrived in another order for the follower."""
    both = Both()
    both.leader.observe(instant(0), listed())
    both.follower.observe(instant(0), listed())
    nodes = [f"n{number:04}" for number in range(700)]
    for node in nodes:
        both.leader.observe(instant(1), Changed(report(node, healthy())))
    for node in reversed(nodes):
        both.follower.observe(instant(1), Changed(report(node, healthy())))
    both.publish(1)
    homes = {node: name for name, text in both.leader.outputs.items() for node in published(text)}
    assert len(set(homes.values())) == 3
    assert both.take_over(2) == set()


def test_one_that_led_before_and_follows_again_takes_over_again() -> None:
    both = Both()
    both.observe(0, listed(n1=healthy()))
    both.publish(0)
    for turn in range(1, 5):
        both.observe(turn * 10, Changed(report("n1", faulty(turn, T0 + turn))))
        assert both.take_over(turn * 10) == {NAME}
        both.leader, both.follower = both.follower, both.leader
        both.publish(turn * 10)
    assert unhealthy(both.leader.shown()["n1"]) == "Ascend910-4"
