"""Nodes, pods and PodGroups of an API server, and the labels of pods.

PodGroups of Volcano have what a job asks for (``docs/spec/clusterd.md#1.8``, 3.3, 3.5 and 6).
"""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec
from typing_extensions import override

from contract.errors import StoreNotFound
from contract.kubernetes import KubernetesObject, Member
from stores.cluster import Cluster, JobState, Texts
from stores.document_names import check_names
from stores.kubernetes_api import wire
from stores.kubernetes_api.cluster_pods import PODS, controller, pods_on
from stores.kubernetes_api.feed import Feed, WatchedKind, follow_if_installed, kept, key_of
from stores.kubernetes_api.node_signals import (
    last_spec_manager,
    read_node_signals,
    write_conditions,
    write_taints,
)
from stores.kubernetes_api.nodes import NODES
from stores.kubernetes_api.watch import ListPage, listed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from contract.node_signals import NodeCondition, NodeSignals, NodeTaint
    from stores.cluster import (
        JobsEvent,
        KindUnavailable,
        NodeStatesEvent,
        ObjectKind,
        PodsEvent,
        SharedReader,
        Snapshot,
        Update,
        Value,
    )
    from stores.interruption import Interrupted
    from stores.kubernetes_api.client.connection import ApiConnection


_NONE: Texts = {}


class _PodGroupAnnotations(msgspec.Struct, omit_defaults=True):
    codes: str = msgspec.field(default="", name="huawei.com/schedule.filter.faultCode")
    levels: str = msgspec.field(default="", name="huawei.com/schedule.filter.faultLevel")
    strategy: str = msgspec.field(default="", name="recover-strategy")


class _PodGroupLabels(msgspec.Struct, omit_defaults=True):
    app: str = ""
    framework: str = ""
    job_id: str = msgspec.field(default="", name="jobID")
    sub_healthy: str = msgspec.field(default="", name="subHealthyStrategy")
    recovers: str = msgspec.field(default="", name="process-recover-enable")


_annotations = Member("metadata.annotations", _PodGroupAnnotations)
_labels = Member("metadata.labels", _PodGroupLabels)
_created: Member[datetime | None] = Member("metadata.creationTimestamp", datetime | None)
_spec: Member[object] = Member("spec", object)


def _read(item: KubernetesObject) -> JobState | None:
    annotations, labels, created = _annotations(item), _labels(item), _created(item)
    owner = controller(item)
    if owner is None:
        return None
    return JobState(
        key=owner.uid,
        namespace=item.metadata.namespace,
        name=owner.name,
        annotations=kept(annotations) or _NONE,
        labels=kept(labels) or _NONE,
        created_at_ms=0 if created is None else int(created.timestamp() * 1000),
        size=_size(_spec(item)),
    )


def _size(spec: object) -> int:
    """Return how many pods make the job complete; 0 where the PodGroup does not state it."""
    number = spec.get("minMember") if isinstance(spec, dict) else None
    return max(0, number) if isinstance(number, int) else 0


POD_GROUPS = WatchedKind[JobState](
    name="PodGroups",
    path="/apis/scheduling.volcano.sh/v1beta1/podgroups",
    query={},
    key=lambda metadata: metadata.uid,
    read=_read,
)


class _Identity(msgspec.Struct):
    """Less than ``ObjectMetadata``: all objects of a kind are asked for it at a time."""

    uid: str = ""
    version: str = msgspec.field(default="", name="resourceVersion")


class _Identified(msgspec.Struct):
    metadata: _Identity


_read_page = msgspec.json.Decoder(ListPage[_Identified]).decode


class KubernetesCluster(Cluster):
    """Nodes, pods and jobs, read and followed at the API server."""

    def __init__(self, connection: ApiConnection, manager: str = wire.FIELD_MANAGER) -> None:
        """Make it; ``manager`` is the query that names the writer of taints."""
        self._connection = connection
        self._manager = manager

    @override
    def pods(self, *others: SharedReader[Any], node: str | None = None) -> AsyncIterator[PodsEvent]:
        pods = PODS if node is None else pods_on(node)
        return Feed(pods, *others).follow(self._connection)

    @override
    def nodes(self, *others: SharedReader[Any]) -> AsyncIterator[NodeStatesEvent]:
        return Feed(NODES, *others).follow(self._connection)

    @override
    def jobs(self, *others: SharedReader[Any]) -> AsyncIterator[JobsEvent]:
        """See ``Cluster``. Until Volcano is installed, jobs are known by their pods."""
        return follow_if_installed(self._connection, Feed(POD_GROUPS, *others))

    @override
    def objects(
        self, kind: ObjectKind[Value]
    ) -> AsyncIterator[Snapshot[Value] | Update[Value] | KindUnavailable | Interrupted]:
        watched = WatchedKind(
            name=kind.name,
            path=kind.path,
            query=kind.query,
            key=key_of(kind),
            read=kind.read,
            pause_seconds=kind.pause_seconds,
        )
        return follow_if_installed(self._connection, Feed(watched))

    @override
    async def versions(self, kind: ObjectKind[Value]) -> dict[str, str]:
        """See ``Cluster``. A list without a resourceVersion has what is stored, not a cache."""
        items, _ = await listed(
            self._connection, kind.path, kind.query, _read_page, kind.name, only_metadata=True
        )
        return {item.metadata.uid: item.metadata.version for item in items}

    @override
    async def label_pod(
        self, namespace: str, name: str, labels: Mapping[str, str | None], uid: str | None = None
    ) -> None:
        """See ``Cluster``. By way of the status: the right to write pods would be far more.

        A program that may write a pod may put another program into it.
        """
        check_names(namespace, name)
        path = wire.object_path("/api/v1", "pods", namespace, name)
        # The uid of a pod cannot be changed: a patch with another one is refused.
        metadata = {"labels": labels} | ({} if uid is None else {"uid": uid})
        answer = await self._connection.request(
            "PATCH",
            f"{path}/status?{wire.FIELD_MANAGER}",
            msgspec.json.encode({"metadata": metadata}),
            headers=wire.MERGE_PATCH_HEADERS | wire.ONLY_METADATA,
        )
        is_other = answer.status in (HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY)
        if uid is not None and is_other:
            raise StoreNotFound(f"{namespace}/{name} is another pod now")
        wire.accepted(answer, f"write labels of pod {namespace}/{name}")

    @override
    async def node_signals(self, node: str) -> NodeSignals:
        return await read_node_signals(self._connection, node)

    @override
    async def set_conditions(
        self,
        node: str,
        seen: NodeSignals,
        conditions: Iterable[NodeCondition],
        removed: Iterable[str],
    ) -> NodeSignals:
        return await write_conditions(self._connection, node, seen, conditions, removed)

    @override
    async def set_taints(
        self, node: str, seen: NodeSignals, taints: Iterable[NodeTaint]
    ) -> NodeSignals:
        return await write_taints(self._connection, node, seen, taints, self._manager)

    @override
    async def last_taint_manager(self, node: str) -> str | None:
        return await last_spec_manager(self._connection, node)
