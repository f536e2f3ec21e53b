"""The pods of jobs by node, and the nodes by job.

Two pods of one job on one node both count (B41). An update examines only what changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from aggregator.inputs.node_context import PodState

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
        known = {pod.uid: pod for pod in before}
        stay = {(pod.uid, pod.job) for pod in now}
        left = (pod.job for pod in before if (pod.uid, pod.job) not in stay)
        moved = dict.fromkeys(left, False)
        for pod in now:
            old = known.get(pod.uid)
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
