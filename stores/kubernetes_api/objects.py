"""What only an API server has: Events, and the labels and annotations of Nodes."""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import quote

import msgspec
from typing_extensions import override

from contract.kubernetes import KubernetesObject, Member, decode_object
from stores.base import ClusterObjects, NodeObject
from stores.cluster import Snapshot, Update
from stores.document_names import check_node_name
from stores.kubernetes_api import wire
from stores.kubernetes_api.admission_dry_runs import is_own_node_only
from stores.kubernetes_api.pods_with_chips import ALIVE
from stores.kubernetes_api.watch import ListPage, read_objects, watched

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from stores.base import KubernetesEvent, NodesEvent, ObjectOwner
    from stores.interruption import Interrupted
    from stores.kubernetes_api.client.connection import ApiConnection

_NODES = "/api/v1/nodes"
_NOT_THERE = NodeObject({}, {})


_Texts: TypeAlias = dict[str, str]
_labels: Member[_Texts] = Member("metadata.labels", _Texts)
_annotations: Member[_Texts] = Member("metadata.annotations", _Texts)


class _Commanded(msgspec.Struct):
    command: list[str] = []
    args: list[str] = []


class _CommandedSpec(msgspec.Struct, rename="camel"):
    containers: list[_Commanded] = []
    service_account_name: str = "default"


_spec = Member("spec", _CommandedSpec)


class _PodList(msgspec.Struct):
    items: list[KubernetesObject] = []


class _ApiKind(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool = False


class _ApiKinds(msgspec.Struct):
    resources: list[_ApiKind] = []


_kinds = msgspec.json.Decoder(_ApiKinds)
_pods = msgspec.json.Decoder(_PodList)


class KubernetesObjects(ClusterObjects):
    """Events and Nodes at the API server."""

    def __init__(self, connection: ApiConnection) -> None:
        self._connection = connection

    @override
    async def record(self, event: KubernetesEvent) -> None:
        answer = await self._connection.request(
            "POST",
            f"{wire.object_path('/api/v1', 'events', event.namespace)}?{wire.FIELD_MANAGER}",
            msgspec.json.encode(event_body(event, await self._uid(event))),
            headers=wire.ONLY_METADATA,
        )
        wire.accepted(answer, f"write Event {event.namespace}/{event.name}", HTTPStatus.CONFLICT)

    async def _uid(self, event: KubernetesEvent) -> str:
        """Return the uid by which ``kubectl describe`` finds the Events about an object; empty
        where unknown.
        """
        involved = event.involved
        if involved.uid or involved.kind != "ConfigMap":
            return involved.uid
        path = wire.object_path("/api/v1", "configmaps", involved.namespace, involved.name)
        answer = await self._connection.request("GET", path, headers=wire.ONLY_METADATA)
        # An Event without the uid is better than none.
        if answer.status != HTTPStatus.OK:
            return ""
        try:
            return decode_object(answer.body).metadata.uid
        except msgspec.DecodeError:
            return ""

    @override
    async def get_node(self, node: str) -> NodeObject:
        answer = await self._connection.request("GET", _path(node), headers=wire.ONLY_METADATA)
        body = wire.accepted(answer, f"read node {node}")
        return wire.decoded(_read_node, body, f"the answer for node {node} is not a Node")

    @override
    async def set_node(
        self,
        node: str,
        labels: Mapping[str, str | None],
        annotations: Mapping[str, str | None],
        *,
        expected: str | None = None,
    ) -> None:
        """See ``ClusterObjects``. By way of the status, which is all that the right allows."""
        metadata = {"labels": labels, "annotations": annotations, "resourceVersion": expected}
        answer = await self._connection.request(
            "PATCH",
            f"{_path(node)}/status?{wire.FIELD_MANAGER}",
            msgspec.json.encode(
                {"metadata": {key: value for key, value in metadata.items() if value}}
            ),
            headers=wire.MERGE_PATCH_HEADERS | wire.ONLY_METADATA,
        )
        wire.accepted(answer, f"write labels and annotations of node {node}")

    @override
    async def commands(self, node: str) -> tuple[tuple[str, str, str], ...]:
        """See ``ClusterObjects``. Asked of the API server's cache, as the node's kubelet does."""
        check_node_name(node)
        selector = quote(f"{ALIVE}={node}", safe="")
        path = f"/api/v1/pods?fieldSelector={selector}&resourceVersion=0"
        answer = await self._connection.request("GET", path)
        pods = _pods.decode(wire.accepted(answer, f"read the pods of node {node}")).items
        return tuple(
            (
                f"{pod.metadata.namespace}/{pod.metadata.name}",
                " ".join((*container.command, *container.args)),
                f"{pod.metadata.namespace}/{spec.service_account_name}",
            )
            for pod in pods
            for spec in (_spec(pod),)
            for container in spec.containers
        )

    @override
    async def missing_owners(
        self, namespace: str, owners: tuple[ObjectOwner, ...]
    ) -> frozenset[str]:
        """See ``ClusterObjects``. As garbage collection, it asks by name and compares the uid."""
        missing = set()
        for owner in owners:
            path = await self._owner_path(namespace, owner)
            if path is None:
                continue  # garbage collection does nothing about a kind that it cannot read, either
            answer = await self._connection.request("GET", path, headers=wire.ONLY_METADATA)
            if answer.status == HTTPStatus.FORBIDDEN:
                continue
            action = f"read {owner.kind} {owner.name}"
            body = wire.accepted(answer, action, HTTPStatus.NOT_FOUND)
            if answer.status != HTTPStatus.NOT_FOUND:
                owner_object = wire.decoded(
                    decode_object, body, f"the answer to {action} is not a valid object"
                )
                if owner_object.metadata.uid == owner.uid:
                    continue
            missing.add(owner.uid)
        return frozenset(missing)

    async def _owner_path(self, namespace: str, owner: ObjectOwner) -> str | None:
        """Return the path of an object that is known by its kind; ``None`` for an unknown kind."""
        group = owner.api_version
        api = f"/apis/{group}" if "/" in group else f"/api/{group}"
        answer = await self._connection.request("GET", quote(api))
        if answer.status in (HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN):
            return None
        body = wire.accepted(answer, f"read which kinds are in {group}")
        kinds = wire.decoded(
            _kinds.decode, body, f"the answer about {group} lists no kinds"
        ).resources
        for kind in kinds:
            # Subresources such as ``pods/status`` are listed with the same kind.
            if kind.kind == owner.kind and "/" not in kind.name:
                place = namespace if kind.namespaced else None
                return wire.object_path(api, kind.name, place, owner.name)
        return None

    @override
    async def is_own_node_only(self, node: str) -> bool | None:
        check_node_name(node)
        return await is_own_node_only(self._connection, node)

    @override
    def watch_node(self, node: str) -> AsyncIterator[NodeObject | Interrupted]:
        """See ``ClusterObjects``. Only metadata travels, not the status that kubelets write."""
        check_node_name(node)
        query = {"fieldSelector": f"metadata.name={node}"}
        return watched(
            self._connection,
            _NODES,
            query,
            _read_nodes,
            f"node {node}",
            _everything,
            _one,
            only_metadata=True,
        )

    @override
    def watch_nodes(self, label: tuple[str, str]) -> AsyncIterator[NodesEvent]:
        """See ``ClusterObjects``. The API server leaves the other Nodes out."""
        return watched(
            self._connection,
            _NODES,
            {"labelSelector": "=".join(label)},
            _read_nodes,
            "nodes",
            _all_nodes,
            _one_of_all,
            only_metadata=True,
        )


def event_body(event: KubernetesEvent, uid: str = "") -> dict[str, object]:
    """Return the Event as core/v1 has it; ``eventTime`` makes the server demand an action and a
    reporter.

    Time stamps of an Event that stands for several are those of its first and last. ``uid`` is that
    of the object it is about, where it is known.
    """
    involved = event.involved
    where = {"namespace": involved.namespace} if involved.namespace else {}
    which = {"uid": uid} if uid else {}
    return {
        "metadata": {"name": event.name, "namespace": event.namespace},
        "involvedObject": {
            "apiVersion": involved.api_version,
            "kind": involved.kind,
            "name": involved.name,
            **where,
            **which,
        },
        "type": "Normal" if event.normal else "Warning",
        "reason": event.reason,
        "action": event.action,
        "message": event.message,
        "eventTime": _time(event.first_ms, "microseconds"),
        "firstTimestamp": _time(event.first_ms, "seconds"),
        "lastTimestamp": _time(event.last_ms, "seconds"),
        "count": event.count,
        "source": {"component": event.component, "host": event.host},
        "reportingComponent": event.component,
        "reportingInstance": event.instance or event.host or event.component,
    }


def _time(at_ms: int, precision: str) -> str:
    text = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec=precision)
    return text.replace("+00:00", "Z")


def _path(node: str) -> str:
    check_node_name(node)
    return wire.object_path("/api/v1", "nodes", None, node)


def _object(node: KubernetesObject) -> NodeObject:
    return NodeObject(_labels(node), _annotations(node), node.metadata.resource_version)


def _read_node(content: msgspec.Raw | bytes) -> NodeObject:
    return _object(decode_object(content))


def _read_nodes(body: bytes) -> ListPage[tuple[str, NodeObject]]:
    page = read_objects(body)
    nodes = [(node.metadata.name, _object(node)) for node in page.items or ()]
    return ListPage(page.metadata, nodes)


def _everything(nodes: list[tuple[str, NodeObject]]) -> NodeObject:
    return nodes[0][1] if nodes else _NOT_THERE


def _one(kind: str, content: msgspec.Raw) -> tuple[NodeObject, str]:
    node = _read_node(content)
    return _NOT_THERE if kind == "DELETED" else node, node.version


def _all_nodes(nodes: list[tuple[str, NodeObject]]) -> NodesEvent:
    return Snapshot(dict(nodes))


def _one_of_all(kind: str, content: msgspec.Raw) -> tuple[NodesEvent, str]:
    node = decode_object(content)
    seen = _object(node)
    return Update(node.metadata.name, None if kind == "DELETED" else seen), seen.version
