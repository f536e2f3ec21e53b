"""The objects that the advisor needs, followed in one store, as a snapshot of now.

Of the annotations of Nodes and pods only those that a decision reads are kept: all others would be
most of what the aggregator needs for a pod. Of ConfigMaps these are the cluster documents, what the
scheduler has and writes, and the scaling rules in namespaces of AscendJobs that name one
(``docs/spec/consumers.md#1.1``, 1.2, 1.14, 3.1).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from advisor.inputs import kubernetes_objects
from advisor.inputs.kubernetes_objects import shared
from advisor.scheduler_view.device_lists import without_addresses
from advisor.snapshot import ClusterSnapshot, SchedulerNode, SchedulerPod, StoredConfigMap
from aggregator.advising.outcomes import Watched
from contract import scheduling
from contract.errors import DocumentError
from contract.names import CLUSTER_LABEL, CLUSTER_NAMESPACE
from stores.cluster import KindUnavailable, ObjectKind, Update
from stores.cluster import Snapshot as Listed
from stores.interruption import Interrupted
from stores.touch import TOUCHED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from advisor.snapshot import AscendJob
    from contract.kubernetes import KubernetesObject

_MAX_GRACES = 50_000
"""Pods that begin to end between two computations; of more the grace is not compared."""

_MAX_RULE_NAMESPACES = 100
"""Each one costs a watch."""

_MAX_ANNOTATION_CHARACTERS = 4096
"""Of a pod: what decisions read is shorter."""
_POD_ANNOTATIONS = frozenset(
    {
        scheduling.GROUP_ANNOTATION,
        scheduling.RANK_INDEX,
        scheduling.NEED_VOLCANO_OPE,
        *scheduling.POD_TO_JOB_ANNOTATIONS,
    }
)
"""Beside those of chips (consumers#1.6, 1.15, 2.1)."""


def node_as_decided(node: SchedulerNode) -> SchedulerNode:
    """Return a Node with the annotations that decisions read (consumers#1.6, 1.7)."""
    annotations = {}
    if (own := node.annotations.get(scheduling.NODE_HEALTHY_STATUS)) is not None:
        annotations[scheduling.NODE_HEALTHY_STATUS] = own
    if (cards := node.annotations.get(scheduling.BASE_DEVICE_INFOS)) is not None:
        annotations[scheduling.BASE_DEVICE_INFOS] = without_addresses(cards)
    return msgspec.structs.replace(node, annotations=shared(annotations))


def pod_as_decided(pod: SchedulerPod) -> SchedulerPod:
    """Return a pod with the annotations that decisions read."""
    annotations = {
        key: text
        for key, text in pod.annotations.items()
        if (key in _POD_ANNOTATIONS or key.startswith(scheduling.RESOURCE_DOMAIN))
        and len(text) <= _MAX_ANNOTATION_CHARACTERS
    }
    return msgspec.structs.replace(pod, annotations=annotations)


def _kind(
    name: str,
    path: str,
    read: Callable[[KubernetesObject], Any],
    query: Mapping[str, str] | None = None,
) -> ObjectKind[Any]:
    """Return a kind of objects; one that ``read`` refuses is unreadable, and no error."""

    def checked(item: KubernetesObject) -> Any:
        try:
            return read(item)
        except DocumentError as error:
            raise ValueError(str(error)) from None

    return ObjectKind(name, path, checked, query or {})


def _node(item: KubernetesObject) -> SchedulerNode:
    return node_as_decided(kubernetes_objects.node(item))


def _pod(item: KubernetesObject) -> SchedulerPod:
    return pod_as_decided(kubernetes_objects.pod(item))


def _rule(item: KubernetesObject) -> StoredConfigMap | None:
    """Return a scaling rule; ``None`` for any other ConfigMap of a job's namespace."""
    configmap = kubernetes_objects.configmap(item)
    return configmap if scheduling.SCALING_KEY in configmap.data else None


def _configmap(namespace: str, name: str) -> ObjectKind[StoredConfigMap]:
    query = {"fieldSelector": f"metadata.name={name}"}
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    return _kind(f"ConfigMap {namespace}/{name}", path, kubernetes_objects.configmap, query)


KINDS: dict[str, ObjectKind[Any]] = {
    "nodes": _kind("Nodes", "/api/v1/nodes", _node),
    "pods": _kind("pods", "/api/v1/pods", _pod),
    "podgroups": _kind(
        "PodGroups",
        "/apis/scheduling.volcano.sh/v1beta1/podgroups",
        kubernetes_objects.pod_group,
    ),
    "vcjobs": _kind(
        "Jobs of Volcano", "/apis/batch.volcano.sh/v1alpha1/jobs", kubernetes_objects.vcjob
    ),
    "ascendjobs": _kind(
        "AscendJobs", "/apis/mindxdl.gitee.com/v1/ascendjobs", kubernetes_objects.ascend_job
    ),
    "replicasets": _kind(
        "ReplicaSets", "/apis/apps/v1/replicasets", kubernetes_objects.replica_set
    ),
    "documents": _kind(
        "cluster documents",
        f"/api/v1/namespaces/{CLUSTER_NAMESPACE}/configmaps",
        kubernetes_objects.configmap,
        {"labelSelector": "=".join(CLUSTER_LABEL)},
    ),
    "scheduler": _configmap(scheduling.SCHEDULER_NAMESPACE, scheduling.SCHEDULER_CONFIGMAP),
    "retries": _configmap(scheduling.SCHEDULER_NAMESPACE, scheduling.FAULT_CONFIGMAP),
    "reasons": _configmap(scheduling.RESCHEDULE_NAMESPACE, scheduling.RESCHEDULE_CONFIGMAP),
}
"""What is followed, by a name of one word."""

_RULES = "scalingrules"


def rules_in(namespace: str) -> tuple[str, ObjectKind[StoredConfigMap]]:
    """Return the name and the kind of the scaling rules in a namespace.

    The operator reads a rule in the namespace of its job (consumers#3.1).
    """
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    kind = _kind(f"scaling rules in {namespace}", path, _rule)
    return f"{_RULES} in {namespace}", kind


def _seen(configmap: StoredConfigMap, now_ms: int) -> StoredConfigMap:
    """Return ``configmap`` with the annotation of a touch at ``now_ms`` (wall)."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds")
    annotations = {**configmap.annotations, TOUCHED: now.replace("+00:00", "Z")}
    return msgspec.structs.replace(configmap, annotations=annotations)


def _number(version: str) -> int:
    return scheduling.go_integer(version) or 0


def _plain(objects: dict[str, Any]) -> dict[str, Any]:
    """Return objects by uid without the members that each touch of a document changes."""
    return {
        uid: (item.name, item.data, item.labels) if isinstance(item, StoredConfigMap) else item
        for uid, item in objects.items()
    }


_OF_SCHEDULER = ("scheduler", "retries", "reasons")
_OPTIONAL = ("vcjobs", "ascendjobs", "replicasets", "podgroups")
"""Kinds that may be unknown, for lack of a right or of the kind; the advisor knows the names."""


class AdvisedObjects:
    """Objects by kind and uid."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, Any]] = {name: {} for name in KINDS}
        self._unknown: dict[str, str] = dict.fromkeys(KINDS, "it was not listed yet")
        self._graces: dict[str, int | None] = {}
        self._listed: dict[str, tuple[Any, ...]] = {}
        """The objects of a kind as a tuple, until one changes."""

    @property
    def unknown(self) -> dict[str, str]:
        """The kinds that could not be read, and why."""
        return dict(self._unknown)

    @property
    def is_answered(self) -> bool:
        """Whether everything that advice needs was listed."""
        needed = KINDS.keys() - {*_OPTIONAL, *_OF_SCHEDULER}
        return not self._unknown.keys() & needed

    def want_rules(self) -> frozenset[str]:
        """Return the namespaces whose scaling rules are to be followed; forget all others."""
        named = {
            job.namespace
            for job in self._all("ascendjobs")
            if scheduling.SCALING_RULE in job.labels and not job.is_over
        }
        wanted = frozenset(sorted(named)[:_MAX_RULE_NAMESPACES])
        names = {rules_in(namespace)[0]: namespace for namespace in named}
        for name in [rule for rule in self._found if rule.startswith(_RULES) and rule not in names]:
            del self._found[name]
            self._listed.pop(name, None)
            self._unknown.pop(name, None)
        for name, namespace in names.items():
            if name not in self._found:
                self._found[name] = {}
                too_many = f"more than {_MAX_RULE_NAMESPACES} namespaces have some"
                self._unknown[name] = "it was not listed yet" if namespace in wanted else too_many
        return wanted

    def observe_objects(
        self,
        name: str,
        event: Listed[Any] | Update[Any] | KindUnavailable | Interrupted,
        now_ms: int,
    ) -> bool:
        """Apply an event of a kind; return whether that changed anything.

        ``now_ms`` (wall) is written to documents: their age is that of their last event
        (consumers#1.5, item 3).
        """
        objects = self._found.setdefault(name, {})
        if name == "pods":
            self._note_graces(objects, event)
        match event:
            case Interrupted(reason=reason):
                # The known objects count until they are listed again.
                if name in self._unknown:
                    self._unknown[name] = reason
                return False
            case KindUnavailable(reason=reason):
                changed = bool(objects) or name not in self._unknown
                self._unknown[name] = reason
                objects.clear()
                self._listed.pop(name, None)
                return changed
            case Listed(items=items, unreadable=unreadable):
                if name == "documents":
                    items = {uid: _seen(item, now_ms) for uid, item in items.items()}
                last_readable = {uid: objects[uid] for uid in unreadable if uid in objects}
                changed = name in self._unknown or _plain(objects) != _plain(items | last_readable)
                self._unknown.pop(name, None)
                self._found[name] = items | last_readable
                self._listed.pop(name, None)
                return changed
        before = objects.get(event.key)
        if event.value == before:
            return False
        self._listed.pop(name, None)
        if event.value is None:
            del objects[event.key]
            return True
        value = _seen(event.value, now_ms) if name == "documents" else event.value
        objects[event.key] = value
        return before is None or _plain({"": before}) != _plain({"": value})

    def _note_graces(
        self,
        before: Mapping[str, SchedulerPod],
        event: Listed[SchedulerPod] | Update[SchedulerPod] | KindUnavailable | Interrupted,
    ) -> None:
        """Record the grace with which pods begin to end: the next snapshot may lack them."""
        if isinstance(event, Listed):
            now = event.items
            gone = before.keys() - now.keys() - event.unreadable
            self._graces |= dict.fromkeys(gone)
        elif isinstance(event, Update) and event.value is not None:
            now = {event.key: event.value}
        else:
            return
        for uid, pod in now.items():
            if pod.is_terminating and uid in before and not before[uid].is_terminating:
                self._graces[uid] = pod.deletion_grace_seconds
        while len(self._graces) > _MAX_GRACES:
            del self._graces[next(iter(self._graces))]

    def are_older(self, name: str, versions: Mapping[str, str]) -> bool:
        """Return whether an object is missing here, or older than in ``versions`` (by uid)."""
        objects = self._found[name]
        return any(
            uid not in objects or _number(objects[uid].resource_version) < _number(version)
            for uid, version in versions.items()
        )

    def take_watched(self) -> Watched:
        """Return and reset what no snapshot shows, as observed since the last call."""
        graces, self._graces = self._graces, {}
        return Watched("reasons" not in self._unknown, graces)

    def snapshot(self, now_ms: int) -> ClusterSnapshot:
        """Return the current objects; ``now_ms`` is wall time."""
        rules = [name for name in self._found if name.startswith(_RULES)]
        maps = [
            configmap
            for name in ("documents", *_OF_SCHEDULER, *rules)
            for configmap in self._all(name)
        ]
        maps.sort(key=lambda configmap: _number(configmap.resource_version))
        unread = self._unknown.keys() & set(_OPTIONAL)
        if self._unknown.keys() & set(rules):
            unread.add(_RULES)
        return ClusterSnapshot(
            now_ms,
            nodes=self._all("nodes"),
            pods=self._all("pods"),
            podgroups=self._all("podgroups"),
            vcjobs=self._all("vcjobs"),
            ascend_jobs=tuple(filter(self._is_judged, self._all("ascendjobs"))),
            replica_sets=self._all("replicasets"),
            configmaps=tuple(maps),
            unread=frozenset(unread),
        )

    def _is_judged(self, job: AscendJob) -> bool:
        """Return whether everything is known that decides about the pods of ``job``."""
        if scheduling.SCALING_RULE not in job.labels:
            return True
        return not self._unknown.keys() & {"podgroups", rules_in(job.namespace)[0]}

    def _all(self, name: str) -> tuple[Any, ...]:
        """Return the objects of a kind; the same tuple as before where none has changed."""
        if name not in self._listed:
            self._listed[name] = tuple(self._found[name].values())
        return self._listed[name]
