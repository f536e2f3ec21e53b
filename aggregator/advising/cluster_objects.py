"""The objects that the advisor needs, followed in one store, as a snapshot of now.

Of ConfigMaps these are the cluster documents and what the scheduler has and writes
(``docs/spec/consumers.md#1.1``, 1.2, 1.14). AscendJobs and scaling rules are not read.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from advisor import objects
from advisor.snapshot import ConfigMap, Pod, Snapshot
from contract import scheduling
from contract.errors import DocumentError
from contract.names import CLUSTER_LABEL, CLUSTER_NAMESPACE
from stores.base import Interrupted
from stores.cluster import NotThere, ObjectKind
from stores.cluster import Snapshot as Listed
from stores.touch import TOUCHED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from advisor.snapshot import PodGroup
    from stores.cluster import Update

_LONGEST_ANNOTATION = 4096
"""Of a pod are kept; what decisions read is shorter."""


def _readable(read: Callable[[msgspec.Raw], Any]) -> Callable[[msgspec.Raw], Any]:
    def one(raw: msgspec.Raw) -> Any:
        try:
            return read(raw)
        except DocumentError as error:
            raise ValueError(str(error)) from None

    return one


def _pod(raw: msgspec.Raw) -> Pod:
    pod = objects.pod(raw)
    for key in [key for key, text in pod.annotations.items() if len(text) > _LONGEST_ANNOTATION]:
        del pod.annotations[key]
    return pod


def _named(namespace: str, name: str) -> ObjectKind[ConfigMap]:
    return ObjectKind(
        f"ConfigMap {namespace}/{name}",
        f"/api/v1/namespaces/{namespace}/configmaps",
        _readable(objects.configmap),
        {"fieldSelector": f"metadata.name={name}"},
    )


_SCHEDULER = _named(scheduling.SCHEDULER_NAMESPACE, scheduling.SCHEDULER_CONFIGMAP)
_RETRIES = _named(scheduling.SCHEDULER_NAMESPACE, scheduling.FAULT_CONFIGMAP)
_REASONS = _named(scheduling.RESCHEDULE_NAMESPACE, scheduling.RESCHEDULE_CONFIGMAP)
_DOCUMENTS: ObjectKind[ConfigMap] = ObjectKind(
    "cluster documents",
    f"/api/v1/namespaces/{CLUSTER_NAMESPACE}/configmaps",
    _readable(objects.configmap),
    {"labelSelector": "=".join(CLUSTER_LABEL)},
)
KINDS: dict[str, ObjectKind[Any]] = {
    "nodes": ObjectKind("Nodes", "/api/v1/nodes", _readable(objects.node)),
    "pods": ObjectKind("pods", "/api/v1/pods", _readable(_pod)),
    "podgroups": ObjectKind(
        "PodGroups",
        "/apis/scheduling.volcano.sh/v1beta1/podgroups",
        _readable(objects.pod_group),
    ),
    "vcjobs": ObjectKind(
        "Jobs of Volcano", "/apis/batch.volcano.sh/v1alpha1/jobs", _readable(objects.vcjob)
    ),
    "replicasets": ObjectKind(
        "ReplicaSets", "/apis/apps/v1/replicasets", _readable(objects.replica_set)
    ),
    "documents": _DOCUMENTS,
    "scheduler": _SCHEDULER,
    "retries": _RETRIES,
    "reasons": _REASONS,
}
"""What is followed, by a name of one word."""


def _seen(one: ConfigMap, now_ms: int) -> ConfigMap:
    """``one`` as touched now."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds")
    annotations = {**one.annotations, TOUCHED: now.replace("+00:00", "Z")}
    return msgspec.structs.replace(one, annotations=annotations)


def _plain(found: dict[str, Any]) -> dict[str, Any]:
    """``found`` without what each touch of a document changes."""
    return {
        uid: (one.name, one.data, one.labels) if isinstance(one, ConfigMap) else one
        for uid, one in found.items()
    }


_NEVER_READ = "ascendjobs"
_OF_SCHEDULER = ("scheduler", "retries", "reasons")
_OPTIONAL = ("vcjobs", "replicasets", "podgroups")
"""What a missing right or a missing kind leaves unknown; the advisor knows these names."""


class ClusterObjects:
    """Objects by kind and uid."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, Any]] = {name: {} for name in KINDS}
        self._unknown: dict[str, str] = dict.fromkeys(KINDS, "it was not listed yet")

    @property
    def unknown(self) -> dict[str, str]:
        """The kinds that could not be read, and why."""
        return dict(self._unknown)

    @property
    def is_answered(self) -> bool:
        """Whether everything that advice needs was listed."""
        return not self._unknown.keys() - {*_OPTIONAL, *_OF_SCHEDULER}

    def observe(
        self, name: str, event: Listed[Any] | Update[Any] | NotThere | Interrupted, now_ms: int
    ) -> bool:
        """Take in an event about a kind; returns whether anything is another now.

        ``now_ms`` (wall) is noted on documents: their age is that of their last event
        (consumers#1.5, item 3).
        """
        found = self._found[name]
        match event:
            case Interrupted(reason=reason):
                # What was known goes on until it is listed again.
                if name in self._unknown:
                    self._unknown[name] = reason
                return False
            case NotThere(reason=reason):
                changed = bool(found) or name not in self._unknown
                self._unknown[name] = reason
                found.clear()
                return changed
            case Listed(items=items, unreadable=unreadable):
                if name == "documents":
                    items = {uid: _seen(one, now_ms) for uid, one in items.items()}
                kept = {uid: found[uid] for uid in unreadable if uid in found}
                changed = name in self._unknown or _plain(found) != _plain(items | kept)
                self._unknown.pop(name, None)
                self._found[name] = items | kept
                return changed
        if event.value is None:
            return found.pop(event.key, None) is not None
        value = _seen(event.value, now_ms) if name == "documents" else event.value
        before = {event.key: found[event.key]} if event.key in found else {}
        found[event.key] = value
        return _plain(before) != _plain({event.key: value})

    def snapshot(self, now_ms: int) -> Snapshot:
        """Return what there is now."""
        maps = [one for name in ("documents", *_OF_SCHEDULER) for one in self._all(name)]
        maps.sort(key=lambda one: scheduling.go_integer(one.resource_version) or 0)
        return Snapshot(
            now_ms,
            nodes=tuple(self._all("nodes")),
            pods=tuple(self._all("pods")),
            podgroups=tuple(self._all("podgroups")),
            vcjobs=tuple(self._all("vcjobs")),
            replica_sets=tuple(self._all("replicasets")),
            configmaps=tuple(maps),
            unread=frozenset({_NEVER_READ, *self._unknown.keys() & set(_OPTIONAL)}),
        )

    def podgroup(self, namespace: str, name: str) -> tuple[PodGroup, frozenset[str]] | None:
        """Return a PodGroup and the uids of its pods; ``None`` where there is none."""
        for one in self._all("podgroups"):
            if (one.namespace, one.name) == (namespace, name):
                pods = (pod for pod in self._all("pods") if pod.group == name)
                return one, frozenset(pod.uid for pod in pods if pod.namespace == namespace)
        return None

    def _all(self, name: str) -> Iterator[Any]:
        return iter(self._found[name].values())
