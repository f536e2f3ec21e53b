"""Cache of Nodes, pods and jobs of all stores (``docs/spec/clusterd.md#1.8``, 3.8 and 6).

No I/O and no clock. Pods and jobs of all stores are counted together.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from aggregator.inputs.multi_store_cache import MultiStoreCache
from aggregator.inputs.node_context import JobState, NodeContext, NodeState, PodState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from aggregator.inputs.multi_store_cache import StoreCache
    from stores.cluster import JobsEvent, NodeStatesEvent, PodsEvent

V = TypeVar("V")

_NONE: frozenset[str] = frozenset()

_JobFields: TypeAlias = tuple[str, str, str, str]
"""What a pod has of its job: namespace, name, label ``app``, label ``jobID``."""


class _PodsOfJob:
    """The pods that have one controlling owner."""

    __slots__ = ("_fields", "pods", "shown")

    def __init__(self) -> None:
        self.pods: dict[str, PodState] = {}
        # Counted, so that the last pod with other labels takes them with it.
        self._fields: dict[_JobFields, int] = {}
        self.shown = JobState("")
        """The job as its pods show it; they are made of one template, so mostly all show
        the same.
        """

    def change(self, pod: PodState, by: int) -> bool:
        """Add (1) or remove (-1) a pod; return whether the job that the pods show changed."""
        fields = (
            pod.namespace,
            pod.job_name,
            pod.labels.get("app", ""),
            pod.labels.get("jobID", ""),
        )
        if by > 0:
            self.pods[pod.uid] = pod
        else:
            del self.pods[pod.uid]
        count = self._fields.get(fields, 0) + by
        if count:
            self._fields[fields] = count
        else:
            del self._fields[fields]
        if not self.pods:
            return True
        # The smallest, so that the order in which pods arrive does not matter.
        namespace, name, app, job_id = min(self._fields)
        labels = {key: text for key, text in (("app", app), ("jobID", job_id)) if text}
        before, self.shown = self.shown, JobState(pod.job, namespace, name, {}, labels)
        return before != self.shown


class ClusterState:
    """Cache of Nodes, pods and jobs.

    ``followed`` has for each store, in their order, whether it has such objects at all. Each
    ``observe_`` method returns the nodes about which something changed, ``None`` for all of them.
    """

    def __init__(self, followed: Sequence[bool]) -> None:
        self._pods = MultiStoreCache[PodState](followed)
        self._nodes = MultiStoreCache[NodeState](followed)
        self._groups = MultiStoreCache[JobState](followed)
        self._jobs: dict[str, JobState] = {}
        self._pods_on: dict[str, tuple[PodState, ...]] = {}
        self._pods_of: dict[str, _PodsOfJob] = {}
        self._groups_of: dict[str, tuple[tuple[int, str, JobState], ...]] = {}
        """PodGroups by their owner, each with when it was made and its uid, the oldest first."""
        self._last_node: dict[str, str] = {}
        """Where the last pod of a job was that has a PodGroup and no pods."""
        self._numbered: dict[str, str] = {}
        self.shared_serial_numbers: dict[str, set[str]] = {}
        """Those that several Nodes have, with the names of these: such a number names none."""

    def observe_pods(self, source: int, event: PodsEvent) -> frozenset[str] | None:
        """Apply a pod event of the store with this number; return the nodes that changed."""
        was_known = self._pods.caches[source].known
        dirty: set[str] = set()
        for _, before, after in self._pods.observe_objects(source, event):
            # A pod that moved is removed where it was and added where it is; both nodes are judged.
            for pod, by in ((before, -1), (after, 1)):
                if pod is not None:
                    dirty.add(pod.node)
                    self._place(pod, by)
                    if pod.job and self._count(pod, by) and self._settle(pod.job):
                        dirty |= self._nodes_of(pod.job)
        return self._changed(self._pods, source, was_known, dirty)

    def observe_nodes(self, source: int, event: NodeStatesEvent) -> frozenset[str]:
        """Apply a Node event of the store with this number; return the nodes that changed.

        The first list returns no nodes: no ``NodeContext`` is made of Node objects, and callers
        that need these read ``nodes_known``.
        """
        was_known = self._nodes.caches[source].known
        dirty: set[str] = set()
        for _, before, after in self._nodes.observe_objects(source, event):
            for node, by in ((before, -1), (after, 1)):
                if node is not None:
                    dirty.add(node.name)
                    self._number(node, by)
        # The first list would otherwise judge 10,000 nodes for no change in what is published.
        return frozenset(dirty) if was_known else _NONE

    def observe_jobs(self, source: int, event: JobsEvent) -> frozenset[str] | None:
        """Apply a PodGroup event of the store with this number; return the nodes that changed."""
        was_known = self._groups.caches[source].known
        dirty: set[str] = set()
        for key, before, after in self._groups.observe_objects(source, event):
            for job, by in ((before, -1), (after, 1)):
                if job is not None:
                    self._group(key, job, by)
                    if self._settle(job.key):
                        dirty |= self._nodes_of(job.key)
            # The job is gone altogether, and with it the reason to remember its node.
            if before is not None and before.key not in self._jobs:
                self._last_node.pop(before.key, None)
        return self._changed(self._groups, source, was_known, dirty)

    def _changed(
        self, caches: MultiStoreCache[V], source: int, was_known: bool, dirty: set[str]
    ) -> frozenset[str] | None:
        if caches.caches[source].known and not was_known:
            return None
        return frozenset(dirty) if dirty else _NONE

    def _place(self, pod: PodState, by: int) -> None:
        # A tuple of few pods is rebuilt: it is shared with ``NodeContext`` values, which must not
        # change.
        others = [other for other in self._pods_on.get(pod.node, ()) if other.uid != pod.uid]
        if by > 0:
            others.append(pod)
        if others:
            others.sort(key=_order)
            self._pods_on[pod.node] = tuple(others)
        else:
            self._pods_on.pop(pod.node, None)

    def _count(self, pod: PodState, by: int) -> bool:
        pods = self._pods_of.setdefault(pod.job, _PodsOfJob())
        differs = pods.change(pod, by)
        if not pods.pods:
            del self._pods_of[pod.job]
        if by < 0 and not pods.pods and pod.job in self._groups_of:
            self._last_node[pod.job] = pod.node
        else:
            self._last_node.pop(pod.job, None)
        return differs

    def _settle(self, key: str) -> bool:
        """Choose the job of an owner again, return whether it changed.

        Of several PodGroups of one owner the oldest counts.
        """
        groups, pods = self._groups_of.get(key), self._pods_of.get(key)
        # A PodGroup has the annotations of its job; pods show only names and labels.
        job = groups[0][2] if groups is not None else None if pods is None else pods.shown
        if self._jobs.get(key) == job:
            return False
        if job is None:
            del self._jobs[key]
        else:
            self._jobs[key] = job
        return True

    def _nodes_of(self, job: str) -> set[str]:
        """Return the nodes of a job's pods; of a job that has none any more, the node of the last
        one.
        """
        pods = self._pods_of.get(job)
        if pods is not None:
            return {pod.node for pod in pods.pods.values()}
        return {self._last_node[job]} if job in self._last_node else set()

    def _number(self, node: NodeState, by: int) -> None:
        number, sharing = node.serial_number, self.shared_serial_numbers
        if not number:
            return
        # Both books are emptied for the number and filled anew: it may change from one to several
        # nodes and back.
        names = sharing.pop(number, set())
        names |= {name for name in (self._numbered.pop(number, None),) if name is not None}
        if by > 0:
            names.add(node.name)
        else:
            names.discard(node.name)
        if len(names) == 1:
            self._numbered[number] = names.pop()
        elif names:
            sharing[number] = names

    def _group(self, uid: str, job: JobState, by: int) -> None:
        groups = [group for group in self._groups_of.pop(job.key, ()) if group[1] != uid]
        if by > 0:
            groups.append((job.created_at_ms, uid, job))
            groups.sort(key=lambda group: group[:2])
        if groups:
            self._groups_of[job.key] = tuple(groups)

    def node_context(self, node: str) -> NodeContext:
        """Return what the processors need of a node besides its documents and heartbeats."""
        if not self._pods.known:
            # Unknown use, not none: a chip that a pod uses must not look free.
            return NodeContext()
        pods = self._pods_on.get(node)
        if pods is None:
            return NodeContext(_NONE)
        used = frozenset(chip for pod in pods for chip in pod.chips)
        jobs = {pod.job: self._jobs[pod.job] for pod in pods if pod.job}
        return NodeContext(used, pods=pods, jobs=jobs)

    def pods_on(self, node: str) -> tuple[PodState, ...]:
        """Return the pods of a node, in order of namespace and name."""
        return self._pods_on.get(node, ())

    def jobs(self) -> Mapping[str, JobState]:
        """Return a live view of all jobs that have a PodGroup or a pod, by key."""
        return MappingProxyType(self._jobs)

    @property
    def places(self) -> set[str]:
        """Names of all Nodes, and of those that pods name as theirs."""
        return {*self._nodes, *self._pods_on}

    def node(self, name: str) -> NodeState | None:
        """Return the Node of the first store that has it; see ``nodes_known``."""
        return self._nodes.get(name)

    def nodes(self) -> Iterator[str]:
        """Iterate over the names of all Nodes."""
        return iter(self._nodes)

    def node_by_serial_number(self, serial_number: str) -> NodeState | None:
        """Return the one Node that has this number; see ``shared_serial_numbers``."""
        name = self._numbered.get(serial_number)
        return None if name is None else self._nodes.get(name)

    def pods_of(self, source: int) -> StoreCache[PodState]:
        """Return the cached pods of one store, by uid."""
        return self._pods.caches[source]

    def nodes_of_store(self, source: int) -> StoreCache[NodeState]:
        """Return the cached Nodes of one store, by name."""
        return self._nodes.caches[source]

    def groups_of(self, source: int) -> StoreCache[JobState]:
        """Return the cached PodGroups of one store, by uid."""
        return self._groups.caches[source]

    def answered(self, source: int) -> bool:
        """Return whether this store has listed pods and PodGroups, or has refused to.

        Nodes are not in ``NodeContext``, and take longest: nothing else waits for them.
        """
        return self._pods.caches[source].answered and self._groups.caches[source].answered

    @property
    def nodes_known(self) -> bool:
        """Whether every store with Nodes has listed them; before that no Node counts as missing."""
        # A broker has no Nodes; without any store that has them no node can be missing.
        caches = [cache for cache in self._nodes.caches if cache.is_followed]
        return bool(caches) and all(cache.known for cache in caches)

    @property
    def pods_known(self) -> bool:
        """Whether any store has listed its pods; before that it is not known which chips
        are used.
        """
        return self._pods.known


def _order(pod: PodState) -> tuple[str, str, str]:
    return pod.namespace, pod.name, pod.uid
