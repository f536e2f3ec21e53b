"""A real aggregator that writes conditions and taints of Nodes of a real API server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.aggregator.nodes import T0, faulty, healthy, report
from tests.aggregator.scheduler_signals.real_aggregator import aggregator
from tests.parts.api_proxy import ApiProxy, Request, Rule
from tests.parts.deadlines import stays, until
from tests.parts.exposition import listed, scraped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stores.base import Store
    from tests.aggregator.conftest import Make
    from tests.aggregator.daemon import Daemon
    from tests.parts.controlplane import ControlPlane

pytestmark = pytest.mark.apiserver

NODE = "/api/v1/nodes/n1"
TAINTS = {
    "NODE_TAINTS_ENABLED": "true",
    "NODE_TAINTS_CHIPS": "any",
    "NODE_TAINTS_NO_SCHEDULE_LEVELS": "RestartNPU",
}


@pytest.fixture
def kind() -> str:
    return "kubernetes"


@pytest.fixture
def node(control_plane: ControlPlane) -> Iterator[str]:
    control_plane.ask("DELETE", NODE)
    # As of a kubelet: an API server records no managers of an object that is made without fields.
    metadata = {"name": "n1", "labels": {"kubernetes.io/hostname": "n1"}}
    control_plane.request("POST", "/api/v1/nodes", {"metadata": metadata})
    yield "n1"
    control_plane.ask("DELETE", NODE)


def conditions(plane: ControlPlane) -> dict[str, dict[str, Any]]:
    status = plane.request("GET", NODE).get("status", {})
    return {condition["type"]: condition for condition in status.get("conditions", ())}


def signals(daemon: Daemon) -> list[dict[str, Any]]:
    """Return what the API shows of each option."""
    shown: list[dict[str, Any]] = daemon.ask("/api/v1/scheduler-signals")[1]["signals"]
    return shown


async def test_conditions_follow_the_faults_of_a_node(
    control_plane: ControlPlane, store: Store, make: Make, node: str
) -> None:
    await store.put(report(node, healthy()))
    options = {"NODE_CONDITIONS_ENABLED": "true", **TAINTS, "NODE_TAINTS_DRY_RUN": "true"}
    daemon = aggregator(make, control_plane, **options)
    await until(lambda: conditions(control_plane).get("NPUHealthy", {}).get("status") == "True")
    # A new leader turns nothing Unknown for 15 s, and makes no taint. So this is looked at first.
    await until(lambda: [row["reason"] for row in signals(daemon)[0]["waiting"]] == ["brake"])
    assert "NPUWatched" not in conditions(control_plane)
    await store.put(report(node, faulty(update_time=T0 + 1)))
    await until(lambda: conditions(control_plane)["NPUHealthy"]["status"] == "False")
    shown = conditions(control_plane)["NPUHealthy"]
    assert "Ascend910-3" in shown["message"]
    await store.put(report(node, healthy(update_time=T0 + 2)))
    await until(lambda: conditions(control_plane)["NPUHealthy"]["status"] == "True")
    # The API server shows a write before its writer has the answer.
    await until(lambda: signals(daemon)[0]["outcomes"]["written"] >= 3)
    text = daemon.ask("/metrics")[1]
    series = {name: kind for name, kind in scraped(text).items() if "_scheduler_signal" in name}
    assert series.items() <= listed("Aggregator with conditions and taints").items()
    assert len(series) >= 4
    on_conditions, on_taints = signals(daemon)
    assert on_conditions["outcomes"]["written"] == 3
    assert (on_taints["option"], on_taints["dry_run"]) == ("node_taints", True)
    # The option is switched off: what it has written goes.
    daemon.stop()
    daemon.environment = {}
    await asyncio.to_thread(daemon.start)
    daemon.waits_for_text("node_conditions is off: no Node has its conditions any more")
    assert conditions(control_plane) == {}
    assert taints(control_plane) == [("node.kubernetes.io/not-ready", "NoSchedule")]


async def test_no_node_is_written_before_the_first_publication(
    control_plane: ControlPlane, store: Store, make: Make, node: str
) -> None:
    await store.put(report(node, healthy()))
    writes_of_node = Rule("patch", "nodes", node)

    def is_publication(request: Request) -> bool:
        return request.verb != "get" and b"cluster-info-device-0" in request.body

    with ApiProxy(control_plane) as proxy:
        proxy.delay(lambda request: 3.0 if is_publication(request) else 0.0)
        daemon = make("kubernetes:", proxy.kubeconfig)
        daemon.environment = {"VIGIL_NODE_CONDITIONS_ENABLED": "true"}
        await asyncio.to_thread(daemon.start)
        await until(lambda: conditions(control_plane).get("NPUHealthy", {}).get("status") == "True")
        published = next(request for request in proxy.requests() if is_publication(request))
        assert proxy.requests(writes_of_node)[0].at >= published.at + 3.0


OTHER = {"key": "other", "value": "v", "effect": "NoExecute"}


def taints(plane: ControlPlane) -> list[tuple[str, str]]:
    """Return key and effect of each taint."""
    spec = plane.request("GET", NODE).get("spec", {})
    return sorted((taint["key"], taint["effect"]) for taint in spec.get("taints", ()))


def set_taints(plane: ControlPlane, manager: str, *wanted: dict[str, str]) -> None:
    """Replace all taints of the Node, as another program does."""
    path = f"{NODE}?fieldManager={manager}"
    body = {"spec": {"taints": list(wanted) or None}}
    status, answer = plane.ask("PATCH", path, body, "application/merge-patch+json")
    assert status == 200, answer


def other_value(plane: ControlPlane) -> str:
    spec = plane.request("GET", NODE)["spec"]
    return next(str(taint["value"]) for taint in spec["taints"] if taint["key"] == "other")


@contextlib.contextmanager
def another_writer(plane: ControlPlane) -> Iterator[list[str]]:
    """Change the value of the other taint five times a second; yield the stored values."""
    written: list[str] = []
    ends = threading.Event()

    def write() -> None:
        while not ends.wait(0.2):
            node = plane.request("GET", NODE)
            value = str(len(written))
            for taint in node["spec"]["taints"]:
                if taint["key"] == "other":
                    taint["value"] = value
            body = {
                "metadata": {"resourceVersion": node["metadata"]["resourceVersion"]},
                "spec": {"taints": node["spec"]["taints"]},
            }
            path = f"{NODE}?fieldManager=someone"
            if plane.ask("PATCH", path, body, "application/merge-patch+json")[0] == 200:
                written.append(value)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield written
    finally:
        ends.set()
        thread.join()


def kept(plane: ControlPlane) -> list[str]:
    """Return the documents with what the next leader needs of taints."""
    maps = plane.request("GET", "/api/v1/namespaces/mindx-dl/configmaps")["items"]
    names = (item["metadata"]["name"] for item in maps)
    return [name for name in names if name.startswith("npu-vigil-state-scheduler-signals-")]


@pytest.mark.timeout(120)
async def test_a_taint_follows_the_faults_of_a_node_and_a_removal_is_obeyed(
    control_plane: ControlPlane, store: Store, make: Make, node: str
) -> None:
    ours = ("npu-vigil/fault", "NoSchedule")
    set_taints(control_plane, "someone", OTHER)
    await store.put(report(node, faulty()))
    daemon = aggregator(make, control_plane, **TAINTS)
    await until(lambda: ours in taints(control_plane), seconds=40)
    assert taints(control_plane) == [ours, ("other", "NoExecute")]
    with another_writer(control_plane) as writes:
        await store.put(report(node, healthy(update_time=T0 + 1)))
        await until(lambda: ours not in taints(control_plane))
        await store.put(report(node, faulty(update_time=T0 + 2)))
        await until(lambda: ours in taints(control_plane))
        await until(lambda: len(writes) >= 5)
    assert len(taints(control_plane)) == 2, "neither has lost what the other one wrote"
    assert other_value(control_plane) == writes[-1]
    set_taints(control_plane, "kubectl-taint", OTHER)
    daemon.waits_for_text("'kubectl-taint' removed the taint")
    # The next leader obeys, too.
    daemon.stop()
    await asyncio.to_thread(daemon.start)
    await stays(17, because="a new leader makes nothing stricter for 15 s")
    assert taints(control_plane) == [("other", "NoExecute")]
    # Obedience ends with the fault.
    await store.put(report(node, healthy(update_time=T0 + 3)))
    await until(lambda: not kept(control_plane))
    await store.put(report(node, faulty(update_time=T0 + 4)))
    await until(lambda: ours in taints(control_plane))


@pytest.mark.timeout(120)
async def test_a_leader_killed_between_the_two_writes_of_an_eviction_loses_neither(
    control_plane: ControlPlane, store: Store, make: Make, node: str
) -> None:
    """The next leader finishes, although the API server goes away and others write the Node."""
    set_taints(control_plane, "someone", OTHER)
    await store.put(report(node, faulty()))
    writes_of_node = Rule("patch", "nodes", node)

    def seconds(write: Request) -> float:
        return 3600.0 if ours_in(write) == "NoExecute" else 0.0

    with ApiProxy(control_plane) as proxy, another_writer(control_plane) as writes:
        # The second write reaches nobody before its leader ends.
        proxy.delay(seconds, writes_of_node)
        daemon = make("kubernetes:", proxy.kubeconfig)
        options = {**TAINTS, "NODE_TAINTS_NO_EXECUTE_LEVELS": "RestartNPU"}
        daemon.environment = {f"VIGIL_{name}": value for name, value in options.items()}
        await asyncio.to_thread(daemon.start)
        await until(lambda: "NoExecute" in map(ours_in, proxy.requests(writes_of_node)), seconds=40)
        daemon.kill()
        assert taints(control_plane) == [("npu-vigil/fault", "NoSchedule"), ("other", "NoExecute")]
        proxy.relent()
        await asyncio.to_thread(daemon.start)
        proxy.refuse_connections()
        await stays(3, because="the API server is away for so long")
        proxy.accept_connections()
        both = [("npu-vigil/fault", "NoExecute"), ("other", "NoExecute")]
        await until(lambda: taints(control_plane) == both, seconds=40)
        await until(lambda: len(writes) >= 5)
    assert other_value(control_plane) == writes[-1], "the other program has lost no write"
    await until(lambda: signals(daemon)[0]["outcomes"]["written"] >= 2)
    # A new leader writes each taint once more, so that a write of the leader before is late.
    assert signals(daemon)[0]["outcomes"]["written"] == 2


def ours_in(write: Request) -> str:
    """Return the effect of our taint that a write of a Node has; empty without it."""
    wanted = json.loads(write.body)["spec"]["taints"] or ()
    return next((str(t["effect"]) for t in wanted if t["key"] == "npu-vigil/fault"), "")
