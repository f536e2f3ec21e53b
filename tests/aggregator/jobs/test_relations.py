"""What follows when faults of one job come together (``docs/spec/clusterd.md#3.10``)."""

from __future__ import annotations

import pytest

from aggregator.jobs.relations import SHIPPED, RelationRow
from tests.aggregator.jobs.scene import (
    CQE,
    LINK_DOWN,
    MAKES_SUB_HEALTHY,
    PORT_DOWN,
    SEPARATES,
    Scene,
    fault,
    switch,
)

WINDOW_MS = 300_000
LINK = fault(0, "NotHandleFault", LINK_DOWN)


def scene_of_two() -> Scene:
    scene = Scene(nodes=2)
    scene.wait(1000)
    scene.pod("a", "n0", "job", "0 1")
    scene.pod("b", "n1", "job", "0 1")
    scene.wait(1000)
    return scene


def healths(scene: Scene) -> dict[str, str]:
    message = scene.job_view.message("job")
    assert message is not None
    return {node.node_name: node.fault_level for node in message.nodes}


def test_shipped_tables_are_those_of_upstream() -> None:
    assert SHIPPED.rows[0] == RelationRow("8C1F8609", ("81078603",), "SubHealth")
    assert set(SHIPPED.windows_ms.values()) == {300_000}


@pytest.mark.parametrize("link_first", [True, False])
@pytest.mark.parametrize(
    ("code", "label", "health"),
    [
        (SEPARATES, "Separate", "UnHealthy"),
        (MAKES_SUB_HEALTHY, "SubHealth", "SubHealthy"),
        (CQE, "Separate", "UnHealthy"),
    ],
)
def test_both_on_different_nodes_in_any_order(
    code: str, label: str, health: str, link_first: bool
) -> None:
    scene = scene_of_two()
    steps = [("n0", LINK), ("n1", fault(1, "NotHandleFault", code))]
    first, second = steps if link_first else reversed(steps)
    scene.chips(first[0], first[1])
    assert scene.labels() == {}
    scene.wait(WINDOW_MS - 1)
    scene.chips(second[0], second[1])
    assert scene.labels() == {"a": label}
    assert healths(scene) == {"n0": health, "n1": "Healthy"}


def test_of_other_jobs_and_of_idle_chips_nothing_follows() -> None:
    scene = scene_of_two()
    scene.pod("c", "n1", "other", "4 5")
    scene.chips("n0", LINK, fault(9, "NotHandleFault", SEPARATES))
    scene.chips("n1", fault(4, "NotHandleFault", SEPARATES))
    assert scene.labels() == {}
    scene.wait(2 * WINDOW_MS)
    assert scene.labels() == {}


def test_a_strategy_stays_while_the_relation_fault_lasts() -> None:
    """Cover defect B43."""
    scene = scene_of_two()
    scene.chips("n0", LINK)
    scene.chips("n1", fault(1, "NotHandleFault", SEPARATES))
    scene.chips("n1")
    assert healths(scene) == {"n0": "UnHealthy"}
    scene.wait(2 * WINDOW_MS)
    assert healths(scene) == {"n0": "UnHealthy"}
    scene.chips("n0")
    assert healths(scene) == {}
    assert scene.labels() == {}


def test_sub_health_becomes_separate_and_never_the_other_way_round() -> None:
    scene = scene_of_two()
    scene.chips("n0", LINK)
    scene.chips("n1", fault(1, "NotHandleFault", MAKES_SUB_HEALTHY))
    assert scene.labels() == {"a": "SubHealth"}
    scene.pod("a", "n0", "job", "0 1", labels={"fault-type": "SubHealth"})
    assert scene.labels() == {}, "it has it"
    scene.chips("n1", fault(1, "NotHandleFault", SEPARATES))
    assert scene.labels() == {"a": "Separate"}
    scene.pod("a", "n0", "job", "0 1", labels={"fault-type": "Separate"})
    scene.chips("n0")
    scene.chips("n1", fault(1, "NotHandleFault", MAKES_SUB_HEALTHY))
    scene.chips("n0", LINK)
    assert healths(scene)["n0"] == "SubHealthy"
    assert scene.labels() == {}


def test_a_port_of_a_switch_whose_time_is_over_makes_its_node_sub_healthy() -> None:
    """Cover defect B43: upstream shows it for a second only."""
    scene = scene_of_two()
    scene.publish("n0", switch=switch("Healthy", "NotHandle", (PORT_DOWN, 1, 2)))
    scene.wait(WINDOW_MS - 1)
    assert healths(scene) == {"n0": "Healthy"}
    scene.job_view.pop_changed_jobs()
    scene.wait(1)
    assert scene.job_view.pop_changed_jobs() == {"job"}
    assert healths(scene) == {"n0": "SubHealthy"}
    assert scene.labels() == {"a": "SubHealth"}
    message = scene.job_view.message("job")
    assert message is not None
    ((device,),) = (node.devices for node in message.nodes)
    assert device.fault_levels == ("SubHealth",)
    (event,) = device.switch_faults
    assert (event.fault_level, event.fault_time) == ("SubHealth", "1760000000")
    scene.wait(10 * WINDOW_MS)
    assert healths(scene) == {"n0": "SubHealthy"}
    scene.chips("n1", fault(1, "NotHandleFault", SEPARATES))
    assert healths(scene)["n0"] == "SubHealthy", "too late"


def test_a_link_whose_time_is_over_is_let_go() -> None:
    scene = scene_of_two()
    scene.chips("n0", LINK)
    scene.wait(WINDOW_MS)
    scene.chips("n1", fault(1, "NotHandleFault", SEPARATES))
    assert scene.labels() == {}
    scene.chips("n0")
    scene.chips("n0", LINK)
    assert scene.labels() == {"a": "Separate"}, "it is another one"


@pytest.mark.parametrize("comes_after", [True, False])
def test_in_a_super_pod_a_cqe_trigger_counts_when_the_time_is_over(comes_after: bool) -> None:
    scene = scene_of_two()
    if not comes_after:
        scene.chips("n1", fault(1, "NotHandleFault", CQE), super_pod=0)
        scene.wait(1)
    scene.chips("n0", LINK, super_pod=0)
    scene.wait(10)
    if comes_after:
        scene.chips("n1", fault(1, "NotHandleFault", CQE), super_pod=0)
        scene.wait(10)
        scene.chips("n1", super_pod=0)
    assert scene.labels() == {}
    scene.wait(WINDOW_MS)
    assert scene.labels() == ({"a": "Separate"} if comes_after else {})


def test_a_cqe_trigger_finds_a_link_that_is_well_again() -> None:
    scene = scene_of_two()
    scene.chips("n0", LINK)
    scene.chips("n0")
    scene.wait(WINDOW_MS - 1)
    scene.chips("n1", fault(1, "NotHandleFault", SEPARATES))
    assert scene.labels() == {}, "only those do"
    scene.chips("n1", fault(1, "NotHandleFault", CQE))
    assert scene.labels() == {"a": "Separate"}
    scene.wait(1)
    assert scene.labels() == {}


def test_nothing_follows_from_time_alone_for_a_job_that_began_later() -> None:
    scene = Scene(nodes=1)
    scene.publish(
        "n0",
        switch=switch("Healthy", "NotHandle", (PORT_DOWN, 1, 2)),
        events_received_ms={f"{PORT_DOWN}_1_2": scene.instant().wall_ms},
    )
    scene.wait(1000)
    scene.pod("a", "n0", "job", "0 1")
    scene.wait(2 * WINDOW_MS)
    assert healths(scene) == {"n0": "Healthy"}


def test_a_pod_that_comes_later_is_not_marked_by_what_was_before_it() -> None:
    scene = scene_of_two()
    scene.chips("n0", LINK)
    scene.chips("n1", fault(1, "NotHandleFault", SEPARATES))
    assert scene.labels() == {"a": "Separate"}
    scene.chips("n1")
    scene.end("a", "n0")
    scene.pod("a-again", "n0", "job", "0 1")
    assert scene.labels() == {}
    assert healths(scene) == {"n0": "Healthy"}
    scene.chips("n1", fault(1, "NotHandleFault", SEPARATES))
    assert scene.labels() == {"a-again": "Separate"}


def test_of_two_pods_on_the_node_the_one_with_the_chip_is_marked() -> None:
    scene = scene_of_two()
    scene.pod("a2", "n0", "job", "4 5")
    scene.chips("n0", fault(4, "NotHandleFault", LINK_DOWN))
    scene.chips("n1", fault(1, "NotHandleFault", SEPARATES))
    assert scene.labels() == {"a2": "Separate"}
    scene.publish("n0", switch=switch("Healthy", "NotHandle", (PORT_DOWN, 1, 2)))
    assert scene.labels() == {"a": "Separate", "a2": "Separate"}


def test_on_a_node_whose_switch_is_unhealthy_nothing_follows() -> None:
    scene = scene_of_two()
    scene.publish("n0", switch=switch("UnHealthy", "Separate", (PORT_DOWN, 1, 2)))
    scene.chips("n0", LINK)
    scene.chips("n1", fault(1, "NotHandleFault", SEPARATES))
    assert scene.labels() == {}


@pytest.mark.parametrize("after_it_was_received", [True, False])
def test_a_clock_that_is_set_back_delays_nothing(after_it_was_received: bool) -> None:
    scene = scene_of_two()
    real = scene.instant
    received = {f"{PORT_DOWN}_1_2": real().wall_ms}
    down = switch("Healthy", "NotHandle", (PORT_DOWN, 1, 2))
    if not after_it_was_received:
        scene.publish("n0", switch=down, events_received_ms=received)
    scene.instant = lambda: real()._replace(wall_ms=real().wall_ms - 86_400_000)  # type: ignore[method-assign]
    if after_it_was_received:
        scene.publish("n0", switch=down, events_received_ms=received)
    scene.wait(WINDOW_MS)
    assert scene.labels() == {"a": "SubHealth"}
