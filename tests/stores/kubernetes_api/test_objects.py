"""Events and Nodes on a real API server."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from contract.errors import StoreRefused
from stores.address import open_store
from stores.base import Involved, KubernetesEvent, NodeObject
from stores.cluster import Snapshot, Update
from stores.interruption import Interrupted
from tests.parts.deadlines import patience
from tests.parts.pods import make as make_pod

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from stores.base import ClusterObjects, NodesEvent, Store
    from tests.parts.controlplane import ControlPlane

T = TypeVar("T")
EVENTS = "/api/v1/namespaces/kube-system/events"
POD = Involved("pod", "agent-abcde", "kube-system")


@pytest.fixture
def objects(kubernetes: Store) -> ClusterObjects:
    found = kubernetes.objects
    assert found is not None
    return found


@pytest.fixture
def node(control_plane: ControlPlane) -> str:
    control_plane.request(
        "POST",
        "/api/v1/nodes",
        {"metadata": {"name": "n1", "labels": {"a": "1"}, "annotations": {"b": "2"}}},
    )
    return "n1"


def event(name: str, involved: Involved = POD, message: str = "text") -> KubernetesEvent:
    return KubernetesEvent(
        namespace="kube-system",
        name=name,
        involved=involved,
        normal=False,
        reason="Occur",
        action="SeparateNPU",
        message=message,
        first_ms=1_700_000_100_123,
        last_ms=1_700_000_161_456,
        count=3,
        component="device-plugin",
        host="n1",
        instance="agent-abcde",
    )


def stored(control_plane: ControlPlane, name: str) -> Any:
    return control_plane.request("GET", f"{EVENTS}/{name}")


@pytest.mark.apiserver
async def test_an_event_has_all_fields(
    control_plane: ControlPlane, objects: ClusterObjects
) -> None:
    await objects.record(event("fields.1"))
    got = stored(control_plane, "fields.1")
    assert {key: got[key] for key in got if key not in ("kind", "apiVersion", "metadata")} == {
        "involvedObject": {
            "kind": "pod",
            "namespace": "kube-system",
            "name": "agent-abcde",
            "apiVersion": "v1",
        },
        "type": "Warning",
        "reason": "Occur",
        "action": "SeparateNPU",
        "message": "text",
        "eventTime": "2023-11-14T22:15:00.123000Z",
        "firstTimestamp": "2023-11-14T22:15:00Z",
        "lastTimestamp": "2023-11-14T22:16:01Z",
        "count": 3,
        "source": {"component": "device-plugin", "host": "n1"},
        "reportingComponent": "device-plugin",
        "reportingInstance": "agent-abcde",
    }


@pytest.mark.apiserver
async def test_an_event_that_is_there_already_stays(
    control_plane: ControlPlane, objects: ClusterObjects
) -> None:
    await objects.record(event("twice.1"))
    await objects.record(event("twice.1", message="other"))
    assert stored(control_plane, "twice.1")["message"] == "text"


@pytest.mark.apiserver
@pytest.mark.parametrize(
    "involved",
    [Involved("Node", "n1"), Involved("ConfigMap", "fault-config", "kube-system")],
)
async def test_an_event_may_be_about_other_objects(
    control_plane: ControlPlane, objects: ClusterObjects, involved: Involved
) -> None:
    name = f"about-{involved.kind.lower()}"
    await objects.record(event(name, involved))
    assert stored(control_plane, name)["involvedObject"]["name"] == involved.name


@pytest.mark.apiserver
async def test_an_event_about_a_config_map_names_its_uid(
    control_plane: ControlPlane, objects: ClusterObjects
) -> None:
    """``kubectl describe`` shows no other."""
    config_map = {"metadata": {"name": "described"}}
    path = "/api/v1/namespaces/kube-system/configmaps"
    uid = control_plane.request("POST", path, config_map)["metadata"]["uid"]
    await objects.record(event("about-it", Involved("ConfigMap", "described", "kube-system")))
    assert stored(control_plane, "about-it")["involvedObject"]["uid"] == uid


@pytest.mark.apiserver
async def test_event_with_a_too_long_message_is_refused(objects: ClusterObjects) -> None:
    with pytest.raises(StoreRefused, match="can have at most 1024"):
        await objects.record(event("long.1", message="x" * 1025))


@pytest.mark.apiserver
async def test_labels_and_annotations_are_set_and_others_stay(
    objects: ClusterObjects, node: str
) -> None:
    await objects.set_node(node, {"c": "3", "empty": ""}, {"d": "4"})
    await objects.set_node(node, {}, {"b": None})
    got = await objects.get_node(node)
    assert got.labels == {"a": "1", "c": "3", "empty": ""}
    assert got.annotations == {"d": "4"}


@pytest.mark.apiserver
async def test_a_node_that_is_not_there_is_refused(objects: ClusterObjects) -> None:
    with pytest.raises(StoreRefused, match='nodes "nowhere" not found'):
        await objects.get_node("nowhere")
    with pytest.raises(StoreRefused, match='nodes "nowhere" not found'):
        await objects.set_node("nowhere", {"a": "b"}, {})
    with pytest.raises(StoreRefused, match="node name"):
        await objects.get_node("../pods")


@pytest.mark.apiserver
async def test_a_node_is_followed(
    control_plane: ControlPlane, objects: ClusterObjects, node: str
) -> None:
    control_plane.request("POST", "/api/v1/nodes", {"metadata": {"name": "n2"}})
    seen = objects.watch_node(node)
    async with contextlib.aclosing(_with_patience(seen)) as nodes:
        first = await anext(nodes)
        assert isinstance(first, NodeObject)
        assert (first.labels, first.annotations) == ({"a": "1"}, {"b": "2"})
        await objects.set_node("n2", {"not": "mine"}, {})
        await objects.set_node(node, {"c": "3"}, {})
        second = await anext(nodes)
        assert isinstance(second, NodeObject)
        assert second.labels == {"a": "1", "c": "3"}
        control_plane.request("DELETE", f"/api/v1/nodes/{node}")
        assert await anext(nodes) == NodeObject({}, {})


@pytest.mark.apiserver
async def test_a_node_that_comes_later_is_seen(
    control_plane: ControlPlane, objects: ClusterObjects
) -> None:
    async with contextlib.aclosing(_with_patience(objects.watch_node("late"))) as nodes:
        assert await anext(nodes) == NodeObject({}, {})
        control_plane.request("POST", "/api/v1/nodes", {"metadata": {"name": "late"}})
        came = await anext(nodes)
        assert isinstance(came, NodeObject)
        assert came.version


@pytest.mark.apiserver
async def test_all_nodes_with_a_label_are_followed(
    control_plane: ControlPlane, objects: ClusterObjects, node: str
) -> None:
    def is_about(event: NodesEvent, name: str, **annotations: str) -> bool:
        assert isinstance(event, Update)
        assert event.value is not None
        return (event.key, event.value.annotations) == (name, annotations)

    control_plane.request("POST", "/api/v1/nodes", {"metadata": {"name": "n3"}})
    async with contextlib.aclosing(_with_patience(objects.watch_nodes(("a", "1")))) as nodes:
        first = await anext(nodes)
        assert isinstance(first, Snapshot)
        assert set(first.items) == {node}
        assert (first.items[node].labels, first.items[node].annotations) == ({"a": "1"}, {"b": "2"})
        assert first.items[node].version
        control_plane.request("POST", "/api/v1/nodes", {"metadata": {"name": "n2"}})
        await objects.set_node("n3", {"a": "2"}, {"noded/heartbeat": "4"})
        await objects.set_node("n2", {"a": "1"}, {})
        assert is_about(await anext(nodes), "n2")
        await objects.set_node("n2", {}, {"noded/heartbeat": "5"})
        assert is_about(await anext(nodes), "n2", **{"noded/heartbeat": "5"})
        await objects.set_node("n2", {"a": None}, {})
        assert await anext(nodes) == Update("n2", None)
        await objects.set_node("n2", {"a": "1"}, {})
        assert is_about(await anext(nodes), "n2", **{"noded/heartbeat": "5"})
        control_plane.request("DELETE", "/api/v1/nodes/n2")
        assert await anext(nodes) == Update("n2", None)
        control_plane.kill_apiserver()
        # A connection that is cut is no news; what is there afterwards is listed anew.
        control_plane.start_apiserver()
        change = {"metadata": {"labels": {"c": "3"}}}
        kind = "application/merge-patch+json"
        assert control_plane.ask("PATCH", f"/api/v1/nodes/{node}", change, kind)[0] == 200
        event = await anext(nodes)
        while isinstance(event, Interrupted):
            event = await anext(nodes)
        labels: dict[str, str] = {}
        while labels != {"a": "1", "c": "3"}:
            if isinstance(event, Snapshot):
                assert set(event.items) == {node}
                labels = event.items[node].labels
            elif isinstance(event, Update) and event.value is not None:
                labels = event.value.labels
            if labels != {"a": "1", "c": "3"}:
                event = await anext(nodes)


@pytest.mark.apiserver
async def test_a_missing_right_to_list_nodes_is_reported(control_plane: ControlPlane) -> None:
    store = open_store("kubernetes:", control_plane.kubeconfig_of("stranger-token"))
    assert store.objects is not None
    async with contextlib.aclosing(_with_patience(store.objects.watch_nodes(("a", "1")))) as nodes:
        refused = await anext(nodes)
        assert isinstance(refused, Interrupted)
        assert "forbidden" in refused.reason
    await store.close()


async def _with_patience(events: AsyncIterator[T]) -> AsyncGenerator[T, None]:
    while True:
        async with asyncio.timeout(patience(10)):
            found = await anext(events)
        yield found


@pytest.mark.apiserver
async def test_the_commands_of_a_nodes_pods(
    control_plane: ControlPlane, objects: ClusterObjects, node: str
) -> None:
    spec = {
        "nodeName": node,
        "serviceAccountName": "plugin-sa",
        "containers": [
            {
                "name": "plugin",
                "image": "x",
                "command": ["sh", "-c"],
                "args": ["plugin -hotReset=0"],
            },
            {"name": "other", "image": "x"},
        ],
    }
    pods = "/api/v1/namespaces/kube-system/pods"
    control_plane.request("POST", pods, {"metadata": {"name": "plugin-1"}, "spec": spec})
    make_pod(control_plane, "elsewhere", "another-node")
    name = "kube-system/plugin-1"
    account = "kube-system/plugin-sa"
    assert await objects.commands(node) == (
        (name, "sh -c plugin -hotReset=0", account),
        (name, "", account),
    )
    assert await objects.commands("node-without-pods") == ()
