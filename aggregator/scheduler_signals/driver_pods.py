"""Pods of DaemonSets that nodes need for their chips, as far as they do not tolerate our taint.

Ascend's Device Plugin tolerates taints of its own alone, and the vendor's DRA driver none. Our
``NoExecute`` would evict them and so take the chips away from all pods; ``NoSchedule`` keeps a new
one from coming back. So do the agents of this project, without which a node is blind.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from aggregator.scheduler_signals.node_taints import TaintToleration, tolerates
from contract.kubernetes import Member
from contract.node_signals import NO_EXECUTE, NO_SCHEDULE, TAINT_KEY
from stores.cluster import ObjectKind, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from contract.kubernetes import KubernetesObject
    from stores.cluster import Update

_OF_CHIPS = re.compile(r"ascend|npu|huawei", re.IGNORECASE)
_KUBELET = re.compile(r"^/var/lib/kubelet/(device-plugins|plugins|plugins_registry)(/|$)")
"""Where drivers of devices register with a kubelet."""
_NODE_TOLERATION = "node.kubernetes.io/"
"""Tolerations that the controller of DaemonSets adds to each pod begin so."""


class _DriverPodOwner(msgspec.Struct):
    kind: str = ""
    name: str = ""


class _DriverPodContainer(msgspec.Struct):
    image: str = ""
    command: list[str] = []
    args: list[str] = []


class _HostPath(msgspec.Struct):
    path: str = ""


class _Volume(msgspec.Struct, rename="camel"):
    host_path: _HostPath | None = None


class _DriverPodSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    containers: list[_DriverPodContainer] = []
    volumes: list[_Volume] = []
    tolerations: list[TaintToleration] = []


_owners: Member[list[_DriverPodOwner]] = Member("metadata.ownerReferences", list[_DriverPodOwner])
_labels: Member[dict[str, Any]] = Member("metadata.labels", dict[str, Any])
_spec = Member("spec", _DriverPodSpec)


class DriverPod(msgspec.Struct, frozen=True):
    """A pod of a DaemonSet with a driver of chips that does not tolerate every value of our taint.

    ``daemon_set`` is ``NAMESPACE/NAME``.
    """

    node: str
    daemon_set: str
    tolerations: tuple[TaintToleration, ...]

    @property
    def patch(self) -> str:
        """The command that adds the toleration to its DaemonSet."""
        namespace, _, name = self.daemon_set.partition("/")
        value = f'{{"key":"{TAINT_KEY}","operator":"Exists"}}'
        path = "/spec/template/spec/tolerations"
        # A patch cannot add to a list that is not there.
        if any(not toleration.key.startswith(_NODE_TOLERATION) for toleration in self.tolerations):
            path += "/-"
        else:
            value = f"[{value}]"
        body = f'[{{"op":"add","path":"{path}","value":{value}}}]'
        return f"kubectl -n {namespace} patch daemonset {name} --type=json -p '{body}'"


def _read(item: KubernetesObject) -> DriverPod | None:
    owner = next((owner for owner in _owners(item) if owner.kind == "DaemonSet"), None)
    if owner is None:
        return None
    spec, labels = _spec(item), _labels(item)
    words = [owner.name]
    for container in spec.containers:
        words += (container.image, *container.command, *container.args)
    registers = any(
        volume.host_path is not None and _KUBELET.match(volume.host_path.path)
        for volume in spec.volumes
    )
    is_driver = registers and any(_OF_CHIPS.search(word) for word in words)
    is_agent = (
        labels.get("app.kubernetes.io/name") == "npu-vigil"
        and labels.get("app.kubernetes.io/component") == "agent"
    )
    if not spec.node_name or not (is_driver or is_agent):
        return None
    tolerations = tuple(spec.tolerations)
    # An empty value is none of ours, so only a toleration of all values tolerates it.
    if all(tolerates(tolerations, "", effect) for effect in (NO_SCHEDULE, NO_EXECUTE)):
        return None
    return DriverPod(spec.node_name, f"{item.metadata.namespace}/{owner.name}", tolerations)


KIND: ObjectKind[DriverPod] = ObjectKind(
    "pods with drivers of chips",
    "/api/v1/pods",
    _read,
    {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed,spec.nodeName!="},
)


class DriverPods:
    """The pods that do not tolerate our taint, by node. ``on_change`` gets the nodes concerned."""

    def __init__(self, on_change: Callable[[set[str]], None]) -> None:
        self.is_listed = False
        self._on_change = on_change
        self._pods: dict[str, DriverPod] = {}
        self._of: dict[str, set[str]] = {}

    def apply_pod_event(self, event: Snapshot[DriverPod] | Update[DriverPod]) -> None:
        """Apply an event of the watch of pods."""
        nodes: set[str] = set()
        if isinstance(event, Snapshot):
            for uid in self._pods.keys() - event.items.keys() - event.unreadable:
                nodes |= self._set(uid, None)
            for uid, pod in event.items.items():
                nodes |= self._set(uid, pod)
            if not self.is_listed:
                # Until now no taint could be written anywhere.
                self.is_listed = True
                self._on_change(set())
        else:
            nodes = self._set(event.key, event.value)
        if nodes:
            self._on_change(nodes)

    def _set(self, uid: str, pod: DriverPod | None) -> set[str]:
        before = self._pods.pop(uid, None)
        if before is not None:
            self._of[before.node].discard(uid)
            if not self._of[before.node]:
                del self._of[before.node]
        if pod is not None:
            self._pods[uid] = pod
            self._of.setdefault(pod.node, set()).add(uid)
        return set() if pod == before else {p.node for p in (before, pod) if p is not None}

    def lacking(self, node: str, value: str, effect: str) -> DriverPod | None:
        """Return a pod on ``node`` that does not tolerate our taint; ``None`` where all do."""
        for uid in sorted(self._of.get(node, ())):
            if not tolerates(self._pods[uid].tolerations, value, effect):
                return self._pods[uid]
        return None

    def daemon_sets(self) -> Iterator[tuple[DriverPod, int]]:
        """Yield a pod of each DaemonSet that has such pods, and on how many nodes they are."""
        by_set: dict[str, list[DriverPod]] = {}
        for pod in self._pods.values():
            by_set.setdefault(pod.daemon_set, []).append(pod)
        for _, pods in sorted(by_set.items()):
            yield pods[0], len({pod.node for pod in pods})
