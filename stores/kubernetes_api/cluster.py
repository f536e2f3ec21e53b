"""Nodes, pods and PodGroups of an API server, and the labels of pods.

PodGroups of Volcano have what a job asks for (``docs/spec/clusterd.md#1.8``, 3.3, 3.5 and 6).
"""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 (msgspec reads it)
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec
from typing_extensions import override

from contract.errors import StoreNotFound
from stores.cluster import Cluster, JobState, Texts
from stores.document_names import check_names
from stores.kubernetes_api import wire
from stores.kubernetes_api.cluster_pods import PODS, OwnerReference, controller
from stores.kubernetes_api.feed import Feed, WatchedKind, follow_if_installed, kept, read_raw_page
from stores.kubernetes_api.nodes import NODES
from stores.kubernetes_api.watch import ListPage, listed
from stores.kubernetes_api.wire import Item, ObjectMetadata

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from stores.cluster import (
        JobsEvent,
        KindUnavailable,
        NodeStatesEvent,
        ObjectKind,
        PodsEvent,
        Snapshot,
        Update,
        Value,
    )
    from stores.interruption import Interrupted
    from stores.kubernetes_api.client.connection import ApiConnection


_NONE: Texts = {}


class _Annotations(msgspec.Struct, omit_defaults=True):
    codes: str = msgspec.field(default="", name="huawei.com/schedule.filter.faultCode")
    levels: str = msgspec.field(default="", name="huawei.com/schedule.filter.faultLevel")
    strategy: str = msgspec.field(default="", name="recover-strategy")


class _Labels(msgspec.Struct, omit_defaults=True):
    app: str = ""
    framework: str = ""
    job_id: str = msgspec.field(default="", name="jobID")
    sub_healthy: str = msgspec.field(default="", name="subHealthyStrategy")
    recovers: str = msgspec.field(default="", name="process-recover-enable")


class _GroupMetadata(ObjectMetadata, rename="camel"):
    annotations: _Annotations = msgspec.field(default_factory=_Annotations)
    labels: _Labels = msgspec.field(default_factory=_Labels)
    owner_references: list[OwnerReference] = msgspec.field(default_factory=list)
    creation_timestamp: datetime | None = None


class _PodGroup(Item):
    metadata: _GroupMetadata
    spec: object = None


def _read(item: _PodGroup) -> JobState | None:
    metadata = item.metadata
    owner = controller(metadata.owner_references)
    if owner is None:
        return None
    created = metadata.creation_timestamp
    return JobState(
        key=owner.uid,
        namespace=metadata.namespace,
        name=owner.name,
        annotations=kept(metadata.annotations) or _NONE,
        labels=kept(metadata.labels) or _NONE,
        created_at_ms=0 if created is None else int(created.timestamp() * 1000),
        size=_size(item.spec),
    )


def _size(spec: object) -> int:
    """Return how many pods make the job complete; 0 where the PodGroup does not state it."""
    number = spec.get("minMember") if isinstance(spec, dict) else None
    return max(0, number) if isinstance(number, int) else 0


POD_GROUPS = WatchedKind[_PodGroup, JobState](
    name="PodGroups",
    path="/apis/scheduling.volcano.sh/v1beta1/podgroups",
    query={},
    read_page=msgspec.json.Decoder(ListPage[_PodGroup]).decode,
    read_item=msgspec.json.Decoder(_PodGroup).decode,
    key=lambda metadata: metadata.uid,
    read=_read,
)


class _Identity(msgspec.Struct):
    """Less than ``wire.ObjectMetadata``: all pods of a cluster are asked for it at a time."""

    uid: str = ""
    version: str = msgspec.field(default="", name="resourceVersion")


class _Identified(msgspec.Struct):
    metadata: _Identity


_read_page = msgspec.json.Decoder(ListPage[_Identified]).decode


class _Bytes(wire.Item):
    """An object of which only its identity is read; ``content`` is all of it."""

    content: msgspec.Raw


def _read_item(content: msgspec.Raw) -> _Bytes:
    return _Bytes(wire.item_decoder.decode(content).metadata, msgspec.Raw(content))


def _read_items(body: bytes) -> ListPage[_Bytes]:
    page = read_raw_page(body)
    return ListPage(page.metadata, [_read_item(raw) for raw in page.items or ()])


class KubernetesCluster(Cluster):
    """Nodes, pods and jobs, read and followed at the API server."""

    def __init__(self, connection: ApiConnection) -> None:
        self._connection = connection

    @override
    def pods(self) -> AsyncIterator[PodsEvent]:
        return Feed(PODS).follow(self._connection)

    @override
    def nodes(self) -> AsyncIterator[NodeStatesEvent]:
        return Feed(NODES).follow(self._connection)

    @override
    def jobs(self) -> AsyncIterator[JobsEvent]:
        """See ``Cluster``. Until Volcano is installed, jobs are known by their pods."""
        return follow_if_installed(self._connection, POD_GROUPS)

    @override
    def objects(
        self, kind: ObjectKind[Value]
    ) -> AsyncIterator[Snapshot[Value] | Update[Value] | KindUnavailable | Interrupted]:
        watched: WatchedKind[_Bytes, Value] = WatchedKind(
            name=kind.name,
            path=kind.path,
            query=kind.query,
            read_page=_read_items,
            read_item=_read_item,
            key=lambda metadata: metadata.name if kind.by_name else metadata.uid,
            read=lambda item: kind.read(item.content),
            pause_seconds=kind.pause_seconds,
        )
        return follow_if_installed(self._connection, watched)

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
