"""Why a node and its chips are published as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator.beats import Listener
from aggregator.explanation import Around, explain
from aggregator.facts import Facts
from aggregator.last_seen import Memory
from aggregator.status import node_status, node_statuses
from contract.node_info import FaultDevice
from service.stalls import Stalls
from stores.cluster import Snapshot
from tests.aggregator.nodes import T0, faulty, healthy, moment, node_report, report
from tests.aggregator.test_kinds import World
from tests.contract.test_cluster_device import config, fault

if TYPE_CHECKING:
    from aggregator.explanation import Explanation


def explained(world: World, node: str, used: frozenset[str] | None = None) -> Explanation:
    stalls = Stalls(lambda: 0.0)
    memory = Memory((), lambda: moment(0))
    listener = Listener({}, lambda _: None, lambda: moment(0), stalls, {}, memory)
    status = node_status(world.pipeline, listener, node, moment(0))
    assert status is not None
    assert status in tuple(node_statuses(world.pipeline, listener, moment(0)))
    acknowledged = dict.fromkeys(world.pipeline.documents, True)
    return explain(world.pipeline, status, Around(Facts(used)), acknowledged)


def test_a_healthy_node_has_little_to_explain() -> None:
    found = explained(World(report("n1", healthy())), "n1")
    assert found.because == ("its newest device-info counts",)
    assert found.documents == {"cluster-info-device-0": True}
    assert found.chips == ()


def test_a_faulty_chip_is_the_nodes_own_word() -> None:
    (chip,) = explained(World(report("n1", faulty(3))), "n1").chips
    assert (chip.chip, chip.said, chip.published) == (
        "Ascend910-3",
        "unhealthy",
        "unhealthy",
    )
    (one,) = chip.faults
    assert (one.code, one.said, one.published) == ("80E18402", "RestartNPU", "RestartNPU")
    assert one.because == "the node says so"


def test_a_refused_document_is_named_with_its_reason() -> None:
    world = World(report("n1", faulty(3)))
    world.put(report("n1", {"DeviceInfoCfg": "{"}))
    found = explained(world, "n1")
    assert found.because[0].startswith("its newest device-info is refused")
    assert "DeviceInfoCfg" in found.because[1]
    assert [chip.chip for chip in found.chips] == ["Ascend910-3"]


def test_pre_separation_says_what_pods_have_to_do_with_it() -> None:
    world = World(report("n1", config([fault(3, "PreSeparateNPU", "80E18402")], update_time=T0)))
    (idle,) = explained(world, "n1", frozenset()).chips
    assert idle.because[-1] == "PreSeparateNPU: no pod uses it, so it is unhealthy"
    (busy,) = explained(world, "n1", frozenset({"Ascend910-3"})).chips
    assert busy.because[-1].startswith("PreSeparateNPU: a pod uses it")
    assert (idle.used_by_pod, busy.used_by_pod) == (False, True)


def test_a_server_that_is_published_otherwise_says_why() -> None:
    part = FaultDevice("Fan", 4, ["06000025"], "PreSeparateFault")
    world = World(report("n1", healthy()), node_report("n1", [part], "PreSeparate"))
    world.known.observe_pods(0, Snapshot({}))
    world.pipeline.judge_again(["n1"])
    world.step(1)
    found = explained(world, "n1", frozenset())
    assert found.said_status == "PreSeparate"
    assert found.node.node_status == "UnHealthy"
    assert found.because[-1] == (
        "its status PreSeparate is published as UnHealthy: no pod uses its chips"
    )
