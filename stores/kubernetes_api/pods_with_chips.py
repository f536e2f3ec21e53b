"""Which chips the pods of a node use (``docs/spec/device-plugin.md#1.3``, 2.8).

The annotation ``huawei.com/AscendReal`` names the chips that a pod has, one named after the
resource those that Volcano chose for it. ``huawei.com/kltDev`` is what the kubelet assumes, and
no chip. The server leaves out pods that are done, failed or on no node: one that ends looks
deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from contract.kubernetes import Member, decode_object, require_identity
from stores.base import PodUsage
from stores.cluster import Snapshot, Update
from stores.document_names import check_node_name
from stores.kubernetes_api.watch import ListPage, read_objects, watched

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from contract.kubernetes import KubernetesObject
    from stores.base import UsageEvent
    from stores.kubernetes_api.client.connection import ApiConnection

PATH = "/api/v1/pods"

ALIVE = "status.phase!=Succeeded,status.phase!=Failed,spec.nodeName"
"""Begins a field selector of pods that are neither done nor failed."""

_RESOURCE = "huawei.com/"


class _ChipPodAnnotations(msgspec.Struct):
    real: str = msgspec.field(default="", name="huawei.com/AscendReal")
    ascend910: str = msgspec.field(default="", name="huawei.com/Ascend910")
    npu: str = msgspec.field(default="", name="huawei.com/npu")
    ascend310p: str = msgspec.field(default="", name="huawei.com/Ascend310P")
    ascend310: str = msgspec.field(default="", name="huawei.com/Ascend310")


class _ChipPodResources(msgspec.Struct):
    limits: dict[str, msgspec.Raw] = {}


class _ChipPodContainer(msgspec.Struct):
    name: str
    resources: _ChipPodResources = msgspec.field(default_factory=_ChipPodResources)


class _ChipPodSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    containers: list[_ChipPodContainer] = []


_annotations = Member("metadata.annotations", _ChipPodAnnotations)
_spec = Member("spec", _ChipPodSpec)


def follow_pods(connection: ApiConnection, node: str) -> AsyncIterator[UsageEvent]:
    """See ``Store.usage``. Raises ``StoreRefused`` for a name that no node can have.

    They are asked for as the node's kubelet does: from the server's cache, which has an index of
    nodes. Without that each answer would cost a walk through all pods of the cluster.
    """
    check_node_name(node)
    query = {"fieldSelector": f"{ALIVE}={node}", "resourceVersion": "0"}
    return watched(connection, PATH, query, _read_page, "pods", _everything, _one)


def _one(kind: str, content: msgspec.Raw) -> tuple[UsageEvent, str]:
    pod = decode_object(content)
    usage = _usage(pod)
    return (
        Update(pod.metadata.uid, None if kind == "DELETED" else usage),
        pod.metadata.resource_version,
    )


def _read_page(body: bytes) -> ListPage[PodUsage]:
    page = read_objects(body)
    users = [user for pod in page.items or () if (user := _usage(pod)) is not None]
    return ListPage(page.metadata, users)


def _everything(users: list[PodUsage]) -> UsageEvent:
    return Snapshot({user.uid: user for user in users})


def _usage(pod: KubernetesObject) -> PodUsage | None:
    """Return what a pod uses; ``None`` for nothing. Raises ``msgspec.DecodeError``."""
    require_identity(pod)
    given, spec = _annotations(pod), _spec(pod)
    chips = chip_names(given.real)
    assigned = chip_names(",".join((given.ascend910, given.npu, given.ascend310p, given.ascend310)))
    if not (chips or assigned) or not spec.node_name:
        return None
    asking = [container.name for container in spec.containers if _asks_for_chips(container)]
    return PodUsage(
        pod.metadata.uid,
        spec.node_name,
        chips,
        assigned,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        container=asking[0] if len(asking) == 1 else "",
    )


def chip_names(text: str) -> tuple[str, ...]:
    """Return the names in an annotation that lists chips."""
    return tuple(name for part in text.split(",") if (name := part.strip()))


def _asks_for_chips(container: _ChipPodContainer) -> bool:
    return any(resource.startswith(_RESOURCE) for resource in container.resources.limits)
