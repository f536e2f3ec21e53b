"""The pods of a whole cluster that have chips or belong to a job (``clusterd#1.8``, 6).

The server leaves out pods that are done, failed or on no node: one that ends looks deleted. A pod
belongs to a job if it has a controlling owner and one of the keys that Volcano, the operators and
MindIE give to pods of jobs (``consumers#1.15``, 4.1): those of a DaemonSet, of which each
node has several, are not kept.
"""

from __future__ import annotations

from functools import lru_cache
from sys import intern
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from contract.kubernetes import Member
from stores.cluster import PodState, Texts
from stores.kubernetes_api.feed import WatchedKind, check_lengths, kept
from stores.kubernetes_api.pods_with_chips import ALIVE, PATH, chip_names

if TYPE_CHECKING:
    from contract.kubernetes import KubernetesObject

_REAL = "huawei.com/AscendReal"
_GROUP = "scheduling.k8s.io/group-name"
_MINDIE = "mindie-ms-"
_OVER = ("Succeeded", "Failed")
_NONE: Texts = {}


class OwnerReference(msgspec.Struct):
    """A reference to what made an object."""

    uid: str = ""
    name: str = ""
    controller: bool = False


class _JobPodAnnotations(msgspec.Struct, omit_defaults=True):
    real: str = msgspec.field(default="", name=_REAL)
    rank: str = msgspec.field(default="", name="hccl/rankIndex")
    group: str = msgspec.field(default="", name=_GROUP)
    ascend910: str = msgspec.field(
        default="", name="ascend.kubectl.kubernetes.io/ascend-910-configuration"
    )
    npu: str = msgspec.field(
        default="", name="ascend.kubectl.kubernetes.io/ascend-npu-configuration"
    )


class _JobPodLabels(msgspec.Struct, frozen=True, omit_defaults=True):
    app: str = ""
    job_id: str = msgspec.field(default="", name="jobID")
    fault_type: str = msgspec.field(default="", name="fault-type")


class _JobPodSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _JobPodStatus(msgspec.Struct):
    phase: object = None
    ip: str = msgspec.field(default="", name="podIP")
    host_ip: str = msgspec.field(default="", name="hostIP")


_annotations = Member("metadata.annotations", _JobPodAnnotations)
_labels = Member("metadata.labels", _JobPodLabels)
_owners: Member[list[OwnerReference]] = Member("metadata.ownerReferences", list[OwnerReference])
_spec = Member("spec", _JobPodSpec)
_status = Member("status", _JobPodStatus)


def controller(item: KubernetesObject) -> OwnerReference | None:
    """Return the owner that controls an object, if one does. Raises ``msgspec.DecodeError``."""
    return next((owner for owner in _owners(item) if owner.controller and owner.uid), None)


def _read(item: KubernetesObject) -> PodState | None:
    metadata, given = item.metadata, _annotations(item)
    owner, labels = controller(item), _labels(item)
    node, status = _spec(item).node_name, _status(item)
    # The server selects by these, unless another reader of the watch needs all pods.
    if not node or status.phase in _OVER:
        return None
    annotations = kept(given)
    # It stays as ``chips``; pods without it must not count as those of a job.
    annotations.pop(_REAL, None)
    if given.group:
        # All pods of a job name the same group, so the text is kept once for all of them.
        annotations[_GROUP] = intern(given.group)
    is_of_job = owner is not None and bool(
        annotations or labels.job_id or labels.fault_type or labels.app.startswith(_MINDIE)
    )
    if not (given.real or is_of_job):
        return None
    return PodState(
        uid=metadata.uid,
        node=intern(node),
        namespace=intern(metadata.namespace),
        name=metadata.name,
        job="" if owner is None else intern(owner.uid),
        chips=_chips(given.real),
        annotations=annotations or _NONE,
        labels=_kept_labels(labels),
        job_name="" if owner is None else intern(owner.name),
        ip=status.ip,
        host_ip=intern(status.host_ip),
    )


@lru_cache(1024)
def _chips(text: str) -> tuple[str, ...]:
    """Return the shared tuple of chips: most pods have chips that others have, too, on
    other nodes.
    """
    check_lengths(text)
    return tuple(map(intern, chip_names(text)))


@lru_cache(1024)
def _kept_labels(labels: _JobPodLabels) -> Texts:
    return kept(labels) or _NONE


PODS = WatchedKind[PodState](
    name="pods",
    path=PATH,
    query={"fieldSelector": f"{ALIVE}!="},
    key=lambda metadata: metadata.uid,
    read=_read,
)


def pods_on(node: str) -> WatchedKind[PodState]:
    """Return the pods of one node, in place of ``PODS``."""
    return replace(PODS, query={"fieldSelector": f"spec.nodeName={node}"})
