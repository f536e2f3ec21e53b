"""Where the pods of jobs are: the pods by node, the places that pods left, and MindIE's groups.

Two pods of one job on one node both count (B41). An update examines only what changed.

A place that a pod has left counts until the job is complete again. A client over gRPC resumes a job
on ``normal``. Therefore a fault of a place hits the job also after the pod has left, until its
replacement has its chips or the job is deleted. Upstream does the same: it takes places from the
last complete rank table (``clusterd#6``). Places are held only where the number of pods is known:
of a job without a PodGroup it is not known whether another pod will come.

The jobs of one MindIE inference service share a ``jobID`` (``consumers#4.1``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aggregator.inputs.node_context import NodeState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from aggregator.inputs.node_context import JobState, PodState

_NO_PODS: tuple[PodState, ...] = ()
_NOWHERE: frozenset[str] = frozenset()
_NONE = (0, 0)


class PodIndex:
    """Pods by node, nodes by job."""

    def __init__(self) -> None:
        self._on: dict[str, tuple[PodState, ...]] = {}
        self._at: dict[str, set[str]] = {}
        self._counts: dict[str, tuple[int, int]] = {}

    def put(self, node: str, pods: Iterable[PodState]) -> Mapping[str, bool]:
        """Replace the pods of a node; return the jobs whose pods changed, and whether a pod is new
        or got its chips.
        """
        now = tuple(sorted((pod for pod in pods if pod.job), key=lambda pod: pod.uid))
        before = self._on.get(node, _NO_PODS)
        if now == before:
            return {}
        if now:
            self._on[node] = now
        else:
            del self._on[node]
        for job in {pod.job for pod in before} - {pod.job for pod in now}:
            nodes = self._at[job]
            nodes.discard(node)
            if not nodes:
                del self._at[job]
        for pod in now:
            self._at.setdefault(pod.job, set()).add(node)
        for pods, by in ((before, -1), (now, 1)):
            for pod in pods:
                self._count(pod, by)
        earlier = {pod.uid: pod for pod in before}
        stay = {(pod.uid, pod.job) for pod in now}
        left_jobs = (pod.job for pod in before if (pod.uid, pod.job) not in stay)
        moved = dict.fromkeys(left_jobs, False)
        for pod in now:
            old = earlier.get(pod.uid)
            if old != pod:
                came = old is None or old.chips != pod.chips or old.job != pod.job
                moved[pod.job] = moved.get(pod.job, False) or came
        return moved

    def _count(self, pod: PodState, by: int) -> None:
        pods, with_chips = self.counts(pod.job)
        counts = (pods + by, with_chips + (by if pod.chips else 0))
        if counts == _NONE:
            del self._counts[pod.job]
        else:
            self._counts[pod.job] = counts

    def counts(self, job: str) -> tuple[int, int]:
        """Return how many pods a job has on nodes, and how many of them have chips."""
        return self._counts.get(job, _NONE)

    def on(self, node: str) -> tuple[PodState, ...]:
        """Return the pods of a node that belong to a job, by uid."""
        return self._on.get(node, _NO_PODS)

    def jobs_on(self, node: str) -> frozenset[str]:
        """Return the jobs that have a pod on a node."""
        return frozenset(pod.job for pod in self._on.get(node, _NO_PODS))

    def pods(self, job: str, node: str) -> tuple[PodState, ...]:
        """Return the pods of a job on a node, by uid."""
        return tuple(pod for pod in self._on.get(node, _NO_PODS) if pod.job == job)

    def nodes_of(self, job: str) -> Collection[str]:
        """Return the nodes of a job."""
        return self._at.get(job, _NOWHERE)


_NO_PLACES: dict[str, LeftPlace] = {}
_NO_JOBS: frozenset[str] = frozenset()


class LeftPlace(msgspec.Struct, frozen=True):
    """A node as it was known when a pod left it, and the chips that pods of the job had there."""

    node: NodeState
    chips: frozenset[str]


class _Incomplete(msgspec.Struct):
    """``without_chips``: how many of its pods had none when it was complete."""

    without_chips: int
    places: dict[str, LeftPlace] = {}


class LeftPlaces:
    """Left places by job."""

    def __init__(self) -> None:
        self._jobs: dict[str, _Incomplete] = {}
        self._on: dict[str, set[str]] = {}

    @property
    def jobs(self) -> Collection[str]:
        """The jobs that have left places."""
        return self._jobs.keys()

    def jobs_on(self, node: str) -> Collection[str]:
        """Return the jobs that have left a place on a node."""
        return self._on.get(node, _NO_JOBS)

    def places(self, job: str) -> Mapping[str, LeftPlace]:
        """Return the left places of a job by name of their node."""
        incomplete = self._jobs.get(job)
        return _NO_PLACES if incomplete is None else incomplete.places

    def leave(
        self,
        node: NodeState,
        pods: Iterable[PodState],
        about: JobState | None,
        counts: tuple[int, int],
    ) -> None:
        """Record that these pods of one job leave a node.

        ``counts``: the job's pods with these, and how many of them have chips. Nothing is held of a
        job that was not complete before.
        """
        if about is None or not about.size:
            return
        incomplete = self._jobs.get(about.key)
        if incomplete is None:
            if counts[0] < about.size:
                return
            incomplete = self._jobs[about.key] = _Incomplete(counts[0] - counts[1])
        before = incomplete.places.get(node.name)
        chips = frozenset(chip for pod in pods for chip in pod.chips)
        incomplete.places[node.name] = LeftPlace(
            node, chips if before is None else chips | before.chips
        )
        self._on.setdefault(node.name, set()).add(about.key)

    def release(self, about: JobState | None, job: str, counts: tuple[int, int]) -> bool:
        """Forget the left places of a job that is complete again, was deleted, or has no known size
        any more; return whether it was one of these.
        """
        size = 0 if about is None else about.size
        incomplete = self._jobs[job]
        if size and (counts[0] < size or counts[1] < size - incomplete.without_chips):
            return False
        for node in self._jobs.pop(job).places:
            jobs = self._on[node]
            jobs.discard(job)
            if not jobs:
                del self._on[node]
        return True


GROUP_LABEL = "jobID"
APP_LABEL = "app"
_NO_CHIPS: frozenset[str] = frozenset()


class MindieGroups:
    """Jobs with pods, by the ``jobID`` that they or their pods are labelled with."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[str, str]] = {}
        self._members: dict[str, set[str]] = {}

    def put(self, job: str, about: JobState | None, pods: Iterable[PodState]) -> frozenset[str]:
        """Set a job's group by its labels; return the groups that changed."""
        group, app = _labelled(about, pods)
        before = self._of.get(job)
        if before == (group, app) or (not group and before is None):
            return _NO_CHIPS
        left_groups = self.drop(job)
        if not group:
            return left_groups
        self._of[job] = (group, app)
        self._members.setdefault(group, set()).add(job)
        return left_groups | {group}

    def drop(self, job: str) -> frozenset[str]:
        """Remove a job; return the groups that changed."""
        labels = self._of.pop(job, None)
        if labels is None:
            return _NO_CHIPS
        group = labels[0]
        members = self._members[group]
        members.discard(job)
        if not members:
            del self._members[group]
        return frozenset({group})

    def of(self, job: str) -> str | None:
        """Return the group of a job; ``None`` where it has none."""
        labels = self._of.get(job)
        return None if labels is None else labels[0]

    def members(self, group: str) -> Collection[str]:
        """Return the jobs of a group."""
        return self._members.get(group, _NO_CHIPS)

    def knows(self, group: str, app: str) -> bool:
        """Return whether the group has a job of this app."""
        return any(self._of[job][1] == app for job in self.members(group))


def _labelled(about: JobState | None, pods: Iterable[PodState]) -> tuple[str, str]:
    of_job = () if about is None else (about.labels,)
    for labels in (*of_job, *(pod.labels for pod in pods)):
        if labels.get(GROUP_LABEL):
            return labels[GROUP_LABEL], labels.get(APP_LABEL, "")
    return "", ""
