"""A real aggregator that writes DeviceTaintRules to a real API server.

No scheduler and no controller manager run here: the test answers rules as the controller manager
of Kubernetes 1.36 does.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from contract.documents.device_taints import Device, rule_name
from tests.aggregator.daemon import values
from tests.aggregator.nodes import T0, faulty, healthy, published, report, unhealthy
from tests.aggregator.scheduler_signals.real_aggregator import aggregator
from tests.contract.documents.node_documents import config, fault
from tests.parts import device_objects
from tests.parts.deadlines import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stores.base import Store
    from tests.aggregator.conftest import Make
    from tests.aggregator.daemon import Daemon
    from tests.parts.controlplane import ControlPlane

pytestmark = pytest.mark.apiserver

RULE = rule_name(Device("npu.huawei.com", "n1", "npu-3"))
PATH = f"{device_objects.RULES}/{RULE}"


@pytest.fixture
def kind() -> str:
    return "kubernetes"


@pytest.fixture
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    device_objects.publish(control_plane, "n1", {f"npu-{chip}": chip for chip in range(8)})
    yield control_plane
    device_objects.clean(control_plane)


def effect(plane: ControlPlane) -> str | None:
    status, answer = plane.ask("GET", PATH)
    if status == 404:
        return None
    found: str = answer["spec"]["taint"]["effect"]
    return found


def others(plane: ControlPlane) -> list[str]:
    rules: Any = plane.request("GET", device_objects.RULES)["items"]
    return [rule["metadata"]["name"] for rule in rules if rule["metadata"]["name"] != RULE]


async def is_published_healthy(store: Store) -> bool:
    """Return whether the fault has ended in cluster-info: rules are planned in the same step."""
    (text,) = (await values(store)).values()
    return unhealthy(published(text)["n1"]) == ""


async def test_rules_follow_the_faults_of_chips(
    plane: ControlPlane, store: Store, make: Make
) -> None:
    device_objects.claim(plane, "c1", ["a", "b"], ["npu-3"])
    device_objects.claim(plane, "c2", ["c", "d"], ["npu-5"])
    foreign = {"metadata": {"name": "site"}, "spec": {"taint": {"key": "site", "effect": "None"}}}
    plane.request("POST", device_objects.RULES, foreign)
    await store.put(report("n1", faulty()))
    daemon = aggregator(
        make, plane, DEVICE_TAINTS_ENABLED="true", DEVICE_TAINTS_MAX_PODS_PERCENT="50"
    )
    # Nothing gets stricter for 15 s.
    await until(lambda: effect(plane) == "None", seconds=60)
    made = plane.request("GET", PATH)
    assert made["spec"]["taint"]["key"] == "npu-vigil/fault"
    assert made["spec"]["taint"]["value"] == "RestartNPU"
    selector = {"driver": "npu.huawei.com", "pool": "n1", "device": "npu-3"}
    assert made["spec"]["deviceSelector"] == selector
    device_objects.answer(plane, RULE, 2)
    await until(lambda: effect(plane) == "NoExecute")
    changed = plane.request("GET", PATH)
    assert changed["metadata"]["annotations"]["npu-vigil/evicted-pods"] == "2"
    assert changed["metadata"]["generation"] == 2
    device_objects.answer(plane, RULE, None)

    await store.put(report("n1", config([fault(3, "PreSeparateNPU", "80E18402")])))
    await until(lambda: effect(plane) == "NoSchedule")

    # A person who deletes the rule is obeyed for as long as the fault lasts.
    plane.request("DELETE", PATH)
    await until(lambda: "was deleted" in daemon.log.read_text())
    await store.put(report("n1", healthy(update_time=T0 + 2)))
    await until(lambda: is_published_healthy(store))
    await store.put(report("n1", faulty(update_time=T0 + 3)))
    await until(lambda: effect(plane) == "None")

    await store.put(report("n1", healthy(update_time=T0 + 4)))
    await until(lambda: effect(plane) is None)

    # What is left when the option is switched off is deleted.
    await store.put(report("n1", faulty(update_time=T0 + 5)))
    await until(lambda: effect(plane) == "None")
    daemon.stop()
    daemon.environment = {}
    await asyncio.to_thread(daemon.start)
    await until(lambda: effect(plane) is None)
    await until(lambda: "device_taints is off" in daemon.log.read_text())
    assert others(plane) == ["site"]


@pytest.mark.timeout(120)
async def test_a_tainted_node_takes_the_room_of_chips(
    plane: ControlPlane, store: Store, make: Make
) -> None:
    """Both options share one budget: of two nodes the cap leaves room for the taint alone."""
    device_objects.publish(plane, "n2", {f"npu-{chip}": chip for chip in range(8)})
    for node in ("n1", "n2"):
        plane.ask("POST", "/api/v1/nodes", {"metadata": {"name": node}})
    try:
        await store.put(report("n1", config([fault(3, "SubHealthFault", "80E18402")])))
        await store.put(report("n2", config([fault(3, "SeparateNPU", "80E18402")])))
        daemon = aggregator(
            make,
            plane,
            DEVICE_TAINTS_ENABLED="true",
            DEVICE_TAINTS_MAX_CHIPS_PERCENT="50",
            NODE_TAINTS_ENABLED="true",
            NODE_TAINTS_CHIPS="any",
            NODE_TAINTS_MAX_NODES_PERCENT="50",
        )
        await until(lambda: "npu-vigil/fault" in taints(plane, "n2"), seconds=60)
        await store.put(report("n1", config([fault(3, "PreSeparateNPU", "80E18402")])))
        await until(lambda: waiting(daemon) >= {("device_taints", "cap"), ("node_taints", "cap")})
        assert effect(plane) in (None, "None")
        assert taints(plane, "n1") == ["node.kubernetes.io/not-ready"]
        await store.put(report("n2", healthy(update_time=T0 + 1)))
        await until(lambda: effect(plane) == "NoSchedule")
    finally:
        for node in ("n1", "n2"):
            plane.ask("DELETE", f"/api/v1/nodes/{node}")


def taints(plane: ControlPlane, node: str) -> list[str]:
    """Return the keys of the taints of a Node."""
    spec = plane.request("GET", f"/api/v1/nodes/{node}").get("spec", {})
    return [taint["key"] for taint in spec.get("taints", ())]


def waiting(daemon: Daemon) -> set[tuple[str, str]]:
    """Return which options wait, and for what."""
    signals = daemon.ask("/api/v1/scheduler-signals")[1]["signals"]
    return {(option["option"], item["reason"]) for option in signals for item in option["waiting"]}
