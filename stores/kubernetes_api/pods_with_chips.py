"""Which chips the pods of a node use (``docs/spec/device-plugin.md#1.3``, 2.8).

The annotation ``huawei.com/AscendReal`` names the chips that a pod has, one named after the
resource those that Volcano chose for it. ``huawei.com/kltDev`` is what the kubelet assumes, and
no chip. The server leaves out pods that are done, failed or on no node: one that ends looks
deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from stores.base import PodUsage
from stores.cluster import Snapshot, Update
from stores.document_names import check_node_name
from stores.kubernetes_api.watch import ListPage, watched
from stores.kubernetes_api.wire import Item, ObjectMetadata

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stores.base import UsageEvent
    from stores.kubernetes_api.client.connection import ApiConnection

PATH = "/api/v1/pods"

ALIVE = "status.phase!=Succeeded,status.phase!=Failed,spec.nodeName"
"""Begins a field selector of pods that are neither done nor failed."""

_RESOURCE = "huawei.com/"


class _Annotations(msgspec.Struct):
    real: str = msgspec.field(default="", name="huawei.com/AscendReal")
    ascend910: str = msgspec.field(default="", name="huawei.com/Ascend910")
    npu: str = msgspec.field(default="", name="huawei.com/npu")
    ascend310p: str = msgspec.field(default="", name="huawei.com/Ascend310P")
    ascend310: str = msgspec.field(default="", name="huawei.com/Ascend310")


class _Metadata(ObjectMetadata, rename="camel", kw_only=True):
    uid: str
    resource_version: str
    annotations: _Annotations = msgspec.field(default_factory=_Annotations)


class _Resources(msgspec.Struct):
    limits: dict[str, msgspec.Raw] = {}


class _Container(msgspec.Struct):
    name: str
    resources: _Resources = msgspec.field(default_factory=_Resources)


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    containers: list[_Container] = []


class _Pod(Item):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)


_read_page = msgspec.json.Decoder(ListPage[_Pod]).decode
_pod = msgspec.json.Decoder(_Pod)


def follow_pods(connection: ApiConnection, node: str) -> AsyncIterator[UsageEvent]:
    """See ``Store.usage``. Raises ``StoreRefused`` for a name that no node can have.

    They are asked for as the node's kubelet does: from the server's cache, which has an index of
    nodes. Without that each answer would cost a walk through all pods of the cluster.
    """
    check_node_name(node)
    query = {"fieldSelector": f"{ALIVE}={node}", "resourceVersion": "0"}
    return watched(connection, PATH, query, _read_page, "pods", _everything, _one)


def _one(kind: str, content: msgspec.Raw) -> tuple[UsageEvent, str]:
    pod = _pod.decode(content)
    usage = None if kind == "DELETED" else _usage(pod)
    return Update(pod.metadata.uid, usage), pod.metadata.resource_version


def _everything(pods: list[_Pod]) -> UsageEvent:
    users = (user for pod in pods if (user := _usage(pod)) is not None)
    return Snapshot({user.uid: user for user in users})


def _usage(pod: _Pod) -> PodUsage | None:
    given = pod.metadata.annotations
    chips = chip_names(given.real)
    assigned = chip_names(",".join((given.ascend910, given.npu, given.ascend310p, given.ascend310)))
    if not (chips or assigned) or not pod.spec.node_name:
        return None
    asking = [container.name for container in pod.spec.containers if _asks_for_chips(container)]
    return PodUsage(
        pod.metadata.uid,
        pod.spec.node_name,
        chips,
        assigned,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        container=asking[0] if len(asking) == 1 else "",
    )


def chip_names(text: str) -> tuple[str, ...]:
    """Return the names in an annotation that lists chips."""
    return tuple(name for part in text.split(",") if (name := part.strip()))


def _asks_for_chips(container: _Container) -> bool:
    return any(resource.startswith(_RESOURCE) for resource in container.resources.limits)
