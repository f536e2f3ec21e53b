"""The objects of a snapshot by the keys that decisions use, updated from snapshot to snapshot.

What did not change keeps its identity, and what changed is named: so a session is computed from the
changes. Two snapshots share the objects that did not change between them.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import compress
from operator import is_not
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from advisor.jobs import SchedulerJob, replicas_of
from contract import scheduling

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from advisor.snapshot import (
        ClusterSnapshot,
        PodGroup,
        ReplicaSet,
        SchedulerNode,
        SchedulerPod,
        VcJob,
        WorkloadObject,
    )

T = TypeVar("T")
_Name = tuple[str, str]
"""A namespace and a name."""


class SnapshotChanges(NamedTuple):
    """Names of nodes, of which the object or a pod is another, keys of jobs, and uids of pods
    that are gone."""

    nodes: frozenset[str]
    jobs: frozenset[str]
    gone: frozenset[str] = frozenset()


class SnapshotIndex:
    """What there is. ``serial`` counts the snapshots, ``changes`` are those of the last one."""

    def __init__(self) -> None:
        self.serial = 0
        self.changes = SnapshotChanges(frozenset(), frozenset())
        self.nodes: dict[str, SchedulerNode] = {}
        self.names: tuple[str, ...] = ()
        """Of all nodes, in order."""
        self.pods: dict[str, tuple[SchedulerPod, ...]] = {}
        """By node, in any phase."""
        self.jobs: dict[str, SchedulerJob] = {}
        """By ``<namespace>/<PodGroup>``, in the order of both."""
        self.vcjobs: dict[_Name, VcJob] = {}
        self.elastic: dict[_Name, VcJob] = {}
        """Those that go on with another size after a fault."""
        self.workloads: dict[tuple[str, str, str], WorkloadObject] = {}
        """By kind, namespace and name."""
        self._snapshot: ClusterSnapshot | None = None
        self.apart: dict[str, SchedulerPod] = {}
        """Pods with a required anti-affinity, by uid."""
        self._groups_of_lws: dict[tuple[str, str, str], tuple[SchedulerPod, ...]] | None = None
        self._given_nodes: Sequence[SchedulerNode] = ()
        self._given_pods: Sequence[SchedulerPod] = ()
        """The objects themselves that are in the tables."""
        self._members: dict[_Name, tuple[SchedulerPod, ...]] = {}
        self._groups: dict[_Name, PodGroup] = {}
        self._sizes: dict[_Name, ReplicaSet] = {}

    def update(self, snapshot: ClusterSnapshot) -> None:
        """Update the tables to ``snapshot``; the same one again changes nothing."""
        before = self._snapshot
        if before is snapshot:
            return
        self._snapshot = snapshot
        self._groups_of_lws = None
        self.serial += 1
        others: Iterable[str] = ()
        nodes = self._update_nodes(snapshot.nodes)
        members: set[_Name] = set()
        gone = self._update_pods(snapshot.pods, nodes, members)
        if before is None or is_other(before.podgroups, snapshot.podgroups):
            groups = {
                (pod_group.namespace, pod_group.name): pod_group for pod_group in snapshot.podgroups
            }
            for name in groups.keys() | self._groups.keys():
                if groups.get(name) != self._groups.get(name):
                    members.add(name)
            self._groups = groups
        if before is None or is_other(before.replica_sets, snapshot.replica_sets):
            self._sizes = {
                (replica_set.namespace, replica_set.name): replica_set
                for replica_set in snapshot.replica_sets
            }
            # Any job may belong to a ReplicaSet whose size is another now.
            members.update(self._groups)
        if before is None or is_other(before.vcjobs, snapshot.vcjobs):
            vcjobs = {(vcjob.namespace, vcjob.name): vcjob for vcjob in snapshot.vcjobs}
            others = self._jobs_of(
                name
                for name in vcjobs.keys() | self.vcjobs.keys()
                if vcjobs.get(name) != self.vcjobs.get(name)
            )
            self.vcjobs = vcjobs
            self.elastic = {
                name: job
                for name, job in self.vcjobs.items()
                if scheduling.ELASTIC_SCHEDULING in job.labels
            }
        if before is None or is_other(before.workloads, snapshot.workloads):
            self.workloads = {
                (workload.kind, workload.namespace, workload.name): workload
                for workload in snapshot.workloads
            }
            others = tuple(self.jobs)
        jobs = self._update_jobs(members)
        # What a controller does about its pods may be another.
        jobs.update(key for key in others if key in self.jobs)
        self.changes = SnapshotChanges(frozenset(nodes), frozenset(jobs), gone)

    def _jobs_of(self, vcjobs: Iterable[_Name]) -> list[str]:
        """Return the keys of the jobs whose PodGroup, or else a pod, one of ``vcjobs`` owns."""
        names = frozenset(vcjobs)
        jobs = []
        for key, job in self.jobs.items():
            owners = [job.group.owner] if job.group.owner else [pod.owner for pod in job.pods]
            if any(owner and (job.group.namespace, owner.name) in names for owner in owners):
                jobs.append(key)
        return jobs

    def group_of_lws(self, pod: SchedulerPod) -> tuple[SchedulerPod, ...]:
        """Return the pods of the group of a LeaderWorkerSet that ``pod`` is in, by name.

        Its pods may be in several PodGroups: LWS without gang scheduling makes none.
        """
        if self._groups_of_lws is None:
            groups: dict[tuple[str, str, str], list[SchedulerPod]] = defaultdict(list)
            for given_pod in self._given_pods:
                if scheduling.LWS_NAME in given_pod.labels:
                    groups[_lws_key(given_pod)].append(given_pod)
            self._groups_of_lws = {
                key: tuple(sorted(pods, key=_order)) for key, pods in groups.items()
            }
        return self._groups_of_lws.get(_lws_key(pod), ())

    def _update_nodes(self, now: Sequence[SchedulerNode]) -> set[str]:
        removed, added = changed(self._given_nodes, now)
        names = {node.name for node in (*removed, *added)}
        if not names:
            return set()
        self._given_nodes = now
        # Of several of one name the last one counts.
        nodes = {node.name: node for node in now}
        changed_names = {name for name in names if self.nodes.get(name) != nodes.get(name)}
        if nodes.keys() != self.nodes.keys():
            self.names = tuple(sorted(nodes))
        self.nodes = nodes
        return changed_names

    def _update_pods(
        self, now: Sequence[SchedulerPod], nodes: set[str], members: set[_Name]
    ) -> frozenset[str]:
        """Update the pods, and add changed nodes and groups to ``nodes`` and ``members``.

        Returns the uids of pods that are gone.
        """
        removed, added = changed(self._given_pods, now)
        if not removed and not added:
            return frozenset()
        self._given_pods = now
        gone = {id(pod) for pod in removed}
        for pod in removed:
            self.apart.pop(pod.uid, None)
        self.apart.update((pod.uid, pod) for pod in added if pod.anti_affinity)
        on_nodes: dict[str, list[SchedulerPod]] = defaultdict(list)
        in_groups: dict[_Name, list[SchedulerPod]] = defaultdict(list)
        for pods, is_there in ((removed, False), (added, True)):
            for pod in pods:
                if pod.node:
                    on_node = on_nodes[pod.node]
                    if is_there:
                        on_node.append(pod)
                if name := pod.group:
                    on_node = in_groups[pod.namespace, name]
                    if is_there:
                        on_node.append(pod)
        _replace(self.pods, on_nodes, gone, nodes)
        _replace(self._members, in_groups, gone, members)
        # A pod that has changed is removed and added; it is not gone.
        return frozenset(pod.uid for pod in removed) - {pod.uid for pod in added}

    def _update_jobs(self, members: Iterable[_Name]) -> set[str]:
        """Replace jobs of which the PodGroup, a pod or the size has changed; return their keys."""
        keys: set[str] = set()
        is_reordered = False
        for name in members:
            key, group = "/".join(name), self._groups.get(name)
            if group is None:
                if self.jobs.pop(key, None) is not None:
                    keys.add(key)
                continue
            pods = self._members.get(name, ())
            replicas = replicas_of(group, pods, self._sizes)
            before = self.jobs.get(key)
            if before is None or not before.is_of(group, pods, replicas):
                is_reordered = is_reordered or before is None
                self.jobs[key] = SchedulerJob(group, pods, replicas)
                keys.add(key)
        if is_reordered:
            self.jobs = {"/".join(name): self.jobs["/".join(name)] for name in sorted(self._groups)}
        return keys


def _lws_key(pod: SchedulerPod) -> tuple[str, str, str]:
    labels = pod.labels
    return (
        pod.namespace,
        labels.get(scheduling.LWS_NAME, ""),
        labels.get(scheduling.LWS_GROUP_INDEX, ""),
    )


def _order(pod: SchedulerPod) -> tuple[str, str, str]:
    return pod.name, pod.namespace, pod.uid


def _replace(
    book: dict[T, tuple[SchedulerPod, ...]],
    added: dict[T, list[SchedulerPod]],
    gone: set[int],
    changes: set[T],
) -> None:
    """Take pods out of ``book`` and put others in, and note where it is another then."""
    for place, new in added.items():
        before = book.get(place, ())
        now = tuple(sorted([*(pod for pod in before if id(pod) not in gone), *new], key=_order))
        if now:
            book[place] = now
        else:
            book.pop(place, None)
        if now != before:
            changes.add(place)


def is_other(before: Sequence[T], now: Sequence[T]) -> bool:
    """Whether objects are others than before. The same sequence is not looked at."""
    return before is not now and before != now


def changed(before: Sequence[T], now: Sequence[T]) -> tuple[list[T], list[T]]:
    """Return the objects that are not there any more, and those that were not there.

    None where all are equal, though they may be others.
    """
    if not is_other(before, now):
        return [], []
    # Mostly few objects differ, so the equal ones at both ends are skipped first.
    first = _equal(before, now)
    last = _equal(before[first:][::-1], now[first:][::-1])
    old, new = before[first : len(before) - last], now[first : len(now) - last]
    # Mostly objects are replaced in their places, and only these are others then.
    if len(old) == len(new):
        others = list(map(is_not, old, new))
        old, new = list(compress(old, others)), list(compress(new, others))
    removed, added = {id(value): value for value in old}, {id(value): value for value in new}
    return (
        [value for key, value in removed.items() if key not in added],
        [value for key, value in added.items() if key not in removed],
    )


def _equal(before: Sequence[T], now: Sequence[T]) -> int:
    """Return how many objects at the beginning are the same."""
    try:
        return list(map(is_not, before, now)).index(True)
    except ValueError:
        return min(len(before), len(now))
