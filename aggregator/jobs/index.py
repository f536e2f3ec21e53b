"""Which jobs are on which nodes, with all of their pods there.

Two pods of one job on one node both count (B41). Only what changed is looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from aggregator.facts import Pod

_NOBODY: tuple[Pod, ...] = ()
_NOWHERE: frozenset[str] = frozenset()


class Index:
    """Pods by node, nodes by job."""

    def __init__(self) -> None:
        self._on: dict[str, tuple[Pod, ...]] = {}
        self._at: dict[str, set[str]] = {}

    def put(self, node: str, pods: Iterable[Pod]) -> frozenset[str]:
        """These, and no others, are the pods of a node now; returns jobs whose pods changed."""
        now = tuple(sorted((pod for pod in pods if pod.job), key=lambda pod: pod.uid))
        before = self._on.get(node, _NOBODY)
        if now == before:
            return _NOWHERE
        if now:
            self._on[node] = now
        else:
            del self._on[node]
        left = {pod.job for pod in before} - {pod.job for pod in now}
        for job in left:
            nodes = self._at[job]
            nodes.discard(node)
            if not nodes:
                del self._at[job]
        for pod in now:
            self._at.setdefault(pod.job, set()).add(node)
        same = {pod.uid: pod for pod in before}
        moved = left | {pod.job for pod in now if same.get(pod.uid) != pod}
        stay = {pod.uid for pod in now}
        return frozenset(moved | {pod.job for pod in before if pod.uid not in stay})

    def jobs_on(self, node: str) -> frozenset[str]:
        """The jobs that have a pod there."""
        return frozenset(pod.job for pod in self._on.get(node, _NOBODY))

    def pods(self, job: str, node: str) -> tuple[Pod, ...]:
        """The pods of a job on a node, by uid."""
        return tuple(pod for pod in self._on.get(node, _NOBODY) if pod.job == job)

    def nodes_of(self, job: str) -> Collection[str]:
        """The nodes of a job."""
        return self._at.get(job, _NOWHERE)
