"""Nodes, pods and PodGroups of a real API server."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pytest
from msgspec.structs import replace

from contract.errors import StoreForbidden, StoreNotFound, StoreRefused
from stores.address import open_store
from stores.cluster import JobState, KindUnavailable, NodeState, PodState, Snapshot, Update
from stores.interruption import Interrupted
from stores.kubernetes_api import feed
from tests.parts import pod_groups, pods
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from stores.base import Store
    from stores.cluster import Cluster
    from tests.parts.controlplane import ControlPlane

NODES = "/api/v1/nodes"
JOB = pods.owned_by("11111111-1111-4111-8111-111111111111", "train")
CONFIGURATION = "ascend.kubectl.kubernetes.io/ascend-910-configuration"
V = TypeVar("V")


@pytest.fixture
def cluster(kubernetes: Store) -> Cluster:
    assert kubernetes.cluster is not None
    return kubernetes.cluster


@pytest.fixture
def volcano(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Start an API server on which a test may install Volcano; remove Volcano afterwards."""
    yield control_plane
    pod_groups.uninstall(control_plane)


class Following(Generic[V]):
    """The events of a feed."""

    def __init__(
        self, events: AsyncIterator[Snapshot[V] | Update[V] | KindUnavailable | Interrupted]
    ) -> None:
        self._events = events
        self.seen: list[object] = []
        self.now: dict[str, V] = {}

    async def until(self, happened: Callable[[dict[str, V]], bool]) -> None:
        """Read events until it is so."""
        try:
            async with asyncio.timeout(patience(30)):
                while not self.seen or not happened(self.now):
                    self._take(await anext(self._events))
        except TimeoutError:
            raise AssertionError(f"did not happen: {self.now}, {self.seen[-5:]}") from None

    def _take(self, event: Snapshot[V] | Update[V] | KindUnavailable | Interrupted) -> None:
        self.seen.append(event)
        match event:
            case Snapshot(items, _):
                self.now = dict(items)
            case Update(key, value):
                self.now.pop(key, None)
                if value is not None:
                    self.now[key] = value
            case KindUnavailable():
                self.now = {}


@contextlib.asynccontextmanager
async def following(events: AsyncIterator[Any]) -> AsyncIterator[Following[Any]]:
    async with contextlib.aclosing(events):  # type: ignore[type-var]  # all are generators
        yield Following(events)


def named(found: dict[str, PodState]) -> dict[str, PodState]:
    return {pod.name: pod for pod in found.values()}


def names(*wanted: str) -> Callable[[dict[str, PodState]], bool]:
    return lambda found: sorted(named(found)) == sorted(wanted)


@pytest.mark.apiserver
async def test_pods_of_jobs_and_with_chips_are_reported_until_they_end(
    control_plane: ControlPlane, cluster: Cluster
) -> None:
    text = '{"pod_name":"a","devices":[{"device_id":"0"}]}'
    pods.make(
        control_plane,
        "a",
        "n1",
        " Ascend910-0,Ascend910-1, ",
        annotations={
            "hccl/rankIndex": "0",
            "scheduling.k8s.io/group-name": "pg",
            CONFIGURATION: text,
            "else": "x",
        },
        labels={"app": "pytorch", "jobID": "id", "fault-type": "Separate", "else": "y"},
        owner=JOB,
    )
    pods.make(control_plane, "chips-only", "n1", "Ascend910-2")
    pods.make(control_plane, "nothing", "n1")
    daemon_set = pods.owned_by("22222222-2222-4222-8222-222222222222", "calico", "DaemonSet")
    pods.make(control_plane, "of-a-daemon-set", "n1", labels={"app": "calico"}, owner=daemon_set)
    pods.make(control_plane, "server", "n2", labels={"app": "mindie-ms-controller"}, owner=JOB)
    pods.make(control_plane, "waiting", None, "Ascend910-7")
    pods.make(control_plane, "over", "n1", "Ascend910-6")
    pods.end(control_plane, "over", "Failed")
    async with following(cluster.pods()) as seen:
        await seen.until(names("a", "chips-only", "server"))
        assert len(seen.seen) == 1
        found = named(seen.now)
        assert replace(found["a"], uid="") == PodState(
            uid="",
            node="n1",
            namespace="default",
            name="a",
            job="11111111-1111-4111-8111-111111111111",
            chips=("Ascend910-0", "Ascend910-1"),
            annotations={
                "hccl/rankIndex": "0",
                "scheduling.k8s.io/group-name": "pg",
                CONFIGURATION: text,
            },
            labels={"app": "pytorch", "jobID": "id", "fault-type": "Separate"},
            job_name="train",
        )
        assert found["chips-only"].job == ""
        assert found["server"].labels == {"app": "mindie-ms-controller"}
        address = {"status": {"podIP": "10.2.0.7", "podIPs": [{"ip": "10.2.0.7"}]}}
        where = {"hostIP": "10.0.0.7", "hostIPs": [{"ip": "10.0.0.7"}], "phase": "Running"}
        path = "/api/v1/namespaces/default/pods/server/status"
        control_plane.request("PATCH", path, {"status": {**address["status"], **where}})
        await seen.until(lambda now: named(now)["server"].ip == "10.2.0.7")
        assert named(seen.now)["server"].host_ip == "10.0.0.7"
        pods.annotate(control_plane, "nothing", "Ascend910-4")
        await seen.until(names("a", "chips-only", "server", "nothing"))
        pods.end(control_plane, "a", "Succeeded")
        await seen.until(names("chips-only", "server", "nothing"))
        pods.delete(control_plane, "nothing")
        await seen.until(names("chips-only", "server"))


@pytest.mark.apiserver
async def test_changes_during_an_outage_are_known_afterwards(
    control_plane: ControlPlane, cluster: Cluster
) -> None:
    pods.make(control_plane, "a", "n1", "Ascend910-0")
    async with following(cluster.pods()) as seen:
        await seen.until(names("a"))
        control_plane.stop_apiserver()
        control_plane.start_apiserver()
        pods.delete(control_plane, "a")
        pods.make(control_plane, "b", "n2", "Ascend910-1")
        await seen.until(names("b"))


def a_node(name: str, serial_number: str, address: str, ready: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "annotations": {"product-serial-number": serial_number}},
        "status": {
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": ready},
            ],
            "addresses": [
                {"type": "Hostname", "address": name},
                {"type": "InternalIP", "address": address},
                {"type": "InternalIP", "address": "fd00::1"},
            ],
        },
    }


@pytest.mark.apiserver
async def test_nodes_are_reported_with_address_serial_number_and_readiness(
    control_plane: ControlPlane, cluster: Cluster
) -> None:
    control_plane.request("POST", NODES, a_node("n1", "SN-1", "10.0.0.1", "True"))
    control_plane.request("POST", NODES, {"metadata": {"name": "n2"}})
    ready = NodeState("n1", "10.0.0.1", "SN-1", is_ready=True)
    async with following(cluster.nodes()) as seen:
        await seen.until(lambda now: len(now) == 2)
        # One that was never reported ready is not.
        assert seen.now == {"n1": ready, "n2": NodeState("n2", is_ready=False)}
        conditions = [{"type": "Ready", "status": "Unknown"}]
        change = {"status": {"conditions": conditions}}
        control_plane.request("PATCH", f"{NODES}/n1/status", change)
        await seen.until(lambda now: not now["n1"].is_ready)
        control_plane.request("DELETE", f"{NODES}/n1")
        await seen.until(lambda now: set(now) == {"n2"})


@pytest.mark.apiserver
async def test_pod_groups_come_when_volcano_is_installed(
    volcano: ControlPlane, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "_RETRY_SECONDS", 0.2)
    async with following(cluster.jobs()) as seen:
        await seen.until(lambda now: not now)
        assert [type(event) for event in seen.seen] == [KindUnavailable]
        pod_groups.install(volcano)
        annotations = {
            "huawei.com/schedule.filter.faultCode": "80E21007:30",
            "huawei.com/schedule.filter.faultLevel": "RestartNPU",
            "recover-strategy": "retry",
            "sp-block": "16",
        }
        labels = {"framework": "pytorch", "subHealthyStrategy": "ignore", "a": "b"}
        pod_groups.make(volcano, "pg", JOB, annotations=annotations, labels=labels)
        await seen.until(lambda now: len(now) == 1)
        (job,) = seen.now.values()
        assert job.created_at_ms > 1_700_000_000_000
        assert replace(job, created_at_ms=0) == JobState(
            key="11111111-1111-4111-8111-111111111111",
            namespace="default",
            name="train",
            annotations={key: text for key, text in annotations.items() if key != "sp-block"},
            labels={"framework": "pytorch", "subHealthyStrategy": "ignore"},
            size=1,
        )
        pod_groups.make(volcano, "nobodys", {**JOB, "controller": False})
        pod_groups.annotate(volcano, "pg", {"recover-strategy": "dump"})
        await seen.until(lambda now: any("dump" in j.annotations.values() for j in now.values()))
        assert len(seen.now) == 1
        pod_groups.delete(volcano, "pg")
        await seen.until(lambda now: not now)
        pod_groups.make(volcano, "pg", JOB)
        await seen.until(lambda now: len(now) == 1)
        pod_groups.uninstall(volcano)
        await seen.until(lambda now: isinstance(seen.seen[-1], KindUnavailable))
        assert seen.now == {}


@pytest.mark.apiserver
async def test_a_pod_is_labelled(control_plane: ControlPlane, cluster: Cluster) -> None:
    pods.make(control_plane, "a", "n1", "Ascend910-0", labels={"app": "x", "old": "1"})
    async with following(cluster.pods()) as seen:
        await seen.until(names("a"))
        await cluster.label_pod("default", "a", {"fault-type": "Separate", "old": None})
        await seen.until(lambda now: "fault-type" in named(now)["a"].labels)
        assert named(seen.now)["a"].labels == {"app": "x", "fault-type": "Separate"}
    stored = control_plane.request("GET", "/api/v1/namespaces/default/pods/a")["metadata"]
    assert stored["labels"] == {"app": "x", "fault-type": "Separate"}
    with pytest.raises(StoreNotFound, match='pods "b" not found'):
        await cluster.label_pod("default", "b", {"fault-type": "Separate"})
    with pytest.raises(StoreRefused, match="namespace"):
        await cluster.label_pod("../x", "b", {})
    uid = stored["uid"]
    await cluster.label_pod("default", "a", {"fault-type": "SubHealth"}, uid)
    other = f"{(int(uid[0], 16) + 1) % 16:x}{uid[1:]}"
    with pytest.raises(StoreNotFound, match="another pod"):
        await cluster.label_pod("default", "a", {"fault-type": "Separate"}, other)
    stored = control_plane.request("GET", "/api/v1/namespaces/default/pods/a")["metadata"]
    assert stored["labels"] == {"app": "x", "fault-type": "SubHealth"}


@pytest.mark.apiserver
async def test_without_rights_each_feed_reports_it_and_waits(control_plane: ControlPlane) -> None:
    store = open_store("kubernetes:", control_plane.kubeconfig_of("stranger-token"))
    cluster = store.cluster
    assert cluster is not None
    for events in (cluster.pods(), cluster.nodes(), cluster.jobs()):
        async with following(events) as seen:
            await seen.until(lambda _: True)
            assert isinstance(seen.seen[0], Interrupted)
            assert "forbidden" in seen.seen[0].reason
    with pytest.raises(StoreForbidden):
        await cluster.label_pod("default", "a", {"fault-type": "Separate"})
    await store.close()
