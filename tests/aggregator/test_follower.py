"""A follower and its leader, as pipelines: what the next leader writes is what it must be."""

from __future__ import annotations

import pytest

from stores.base import Changed
from tests.aggregator.nodes import T0, faulty, healthy, instant, published, report, unhealthy
from tests.aggregator.pipelines import DEVICES, LeaderAndFollower, gone, listed


def test_new_leader_with_the_same_values_writes_nothing() -> None:
    both = LeaderAndFollower()
    both.observe(0, listed(n1=healthy(), n2=healthy()))
    both.publish(0)
    both.observe(1, Changed(report("n1", faulty(3, T0 + 1))))
    both.publish(1)
    assert both.take_over(2) == set()


def test_stamps_go_on_from_those_of_the_leader() -> None:
    both = LeaderAndFollower()
    both.observe(0, listed(n1=healthy()))
    both.publish(0)
    # The leader saw three changes in a second, the follower one.
    for chip in (1, 2, 3):
        both.leader.observe(instant(1), Changed(report("n1", faulty(chip, T0))))
        both.leader.write(instant(1))
    last = both.leader.shown()["n1"]["UpdateTime"]
    both.follower.observe(instant(1), Changed(report("n1", faulty(4, T0))))
    both.publish(1)
    assert both.take_over(1.5) == {DEVICES}
    entry = both.follower.shown()["n1"]
    assert unhealthy(entry) == "Ascend910-4"
    assert entry["UpdateTime"] > last


def test_entry_of_the_leader_stays_until_the_follower_knows_its_document() -> None:
    both = LeaderAndFollower()
    both.observe(0, listed(n1=healthy()))
    both.publish(0)
    both.leader.observe(instant(1), Changed(report("n1", faulty(3, T0 + 1))))
    both.publish(1)
    both.follower.observe(instant(1.1), Changed(report("n1", faulty(3, T0 + 1))))
    assert both.take_over(2) == set()


def test_change_while_no_replica_led_is_written() -> None:
    both = LeaderAndFollower()
    both.observe(0, listed(n1=healthy(), n2=healthy()))
    both.publish(0)
    both.follower.observe(instant(1), Changed(report("n2", faulty(3, T0 + 1))))
    assert both.take_over(2) == {DEVICES}
    assert unhealthy(both.follower.shown()["n2"]) == "Ascend910-3"


def test_a_node_that_the_leader_dropped_does_not_come_back_and_its_stamp_grows() -> None:
    both = LeaderAndFollower()
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
    both = LeaderAndFollower()
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
    both = LeaderAndFollower()
    both.observe(0, listed(n1=faulty(3), n2=healthy()))
    both.publish(0)
    both.observe(1, gone("n1"))
    both.publish(1)
    both.leader.pipeline.step(instant(47))
    both.publish(47)
    both.follower.pipeline.step(instant(60))
    assert set(both.follower.pipeline.device.entries) == {"n2"}


@pytest.mark.slow
def test_nodes_keep_the_document_that_the_leader_gave_them() -> None:
    """They arrived in another order for the follower."""
    both = LeaderAndFollower()
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
    both = LeaderAndFollower()
    both.observe(0, listed(n1=healthy()))
    both.publish(0)
    for turn in range(1, 5):
        both.observe(turn * 10, Changed(report("n1", faulty(turn, T0 + turn))))
        assert both.take_over(turn * 10) == {DEVICES}
        both.leader, both.follower = both.follower, both.leader
        both.publish(turn * 10)
    assert unhealthy(both.leader.shown()["n1"]) == "Ascend910-4"
