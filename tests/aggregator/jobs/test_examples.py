"""The worked example of the job view, ``clusterd#E31``: what is found, fault by fault."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from aggregator.inputs.node_context import NodeState
from tests.aggregator.jobs.scene import Scene, fault, part, parts

if TYPE_CHECKING:
    from aggregator.jobs.status import RankRecord
    from contract.pages.aggregator_status import RankFaultDevice

CHIP = ("NPU", "0", "80CD8003", "SubHealthFault", 1_760_000_000_000)
CPU = [
    ("CPU", "1", "00000001", "SeparateFault", 1_767_294_245_000),
    ("CPU", "1", "0000001D", "SeparateFault", 1_767_294_245_000),
]
CHIP_RANK = ("0", "uid-0", "0", "80CD8003", "SubHealthFault", 1_760_000_000_000, "0")


def of_every_rank(codes: str) -> list[Any]:
    return [(rank, "uid-0", "0", codes, "SeparateNPU", 0, "") for rank in ("0", "1")]


def device(one: RankFaultDevice) -> tuple[str, str, str, str, int]:
    return (one.device_type, one.device_id, one.code, one.level, one.time_ms)


def rank(one: RankRecord) -> tuple[str | int, ...]:
    return (one.rank, one.pod_uid, one.pod_rank, one.code, one.level, one.time_ms, one.device_id)


def shown(scene: Scene) -> tuple[str, list[Any], list[Any]]:
    (status,) = scene.status()
    assert status.job == "job1"
    (node,) = status.nodes
    assert (node.node, node.ip) == ("node1", "10.0.0.1")
    return status.health, [rank(one) for one in status.ranks], [device(one) for one in node.faults]


def test_e31() -> None:
    scene = Scene()
    scene.node("node1")
    scene.lookup.nodes["node1"] = NodeState("node1", "10.0.0.1", "SN-node1")
    scene.pod("uid-0", "node1", "job1", "0 1", rank=0)
    scene.chips("node1", fault(0, "SubHealthFault", "80CD8003"))
    assert shown(scene) == ("SubHealthy", [CHIP_RANK], [CHIP])

    cpu = part("CPU", 1, "SeparateFault", "00000001", "0000001D")
    scene.publish("node1", node=parts("UnHealthy", cpu, at_ms=1_767_294_245_000))
    codes = "00000001,0000001D"
    assert shown(scene) == ("UnHealthy", [*of_every_rank(codes), CHIP_RANK], [*CPU, CHIP])

    del scene.lookup.nodes["node1"]
    scene.look("node1")
    node = ("Node", "-1", "", "SeparateNPU", 0)
    ranks = [*of_every_rank(codes), *of_every_rank(""), CHIP_RANK]
    assert shown(scene) == ("UnHealthy", ranks, [node, *CPU, CHIP])
    message = scene.job_view.message("job1")
    assert message is not None
    (info,) = message.nodes
    assert info.node_sn == "SN-node1", "the Node is gone, what it was is remembered"
    assert json.dumps([one.device_type for one in info.devices]) == '["Node", "NPU", "CPU"]'
