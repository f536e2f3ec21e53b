"""The places that pods of a job have left, until the job is complete again.

A client over gRPC resumes a job on ``normal``. Therefore a fault of a place hits the job also after
the pod has left, until its replacement has its chips or the job is deleted. Upstream does the same:
it takes places from the last complete rank table (``clusterd#6``). Places are held only where the
number of pods is known: of a job without a PodGroup it is not known whether another pod will come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aggregator.inputs.node_context import NodeState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from aggregator.inputs.node_context import JobState, PodState

_NOWHERE: dict[str, LeftPlace] = {}
_NO_PODS: frozenset[str] = frozenset()


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
        return self._on.get(node, _NO_PODS)

    def places(self, job: str) -> Mapping[str, LeftPlace]:
        """Return the left places of a job by name of their node."""
        one = self._jobs.get(job)
        return _NOWHERE if one is None else one.places

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
        one = self._jobs.get(about.key)
        if one is None:
            if counts[0] < about.size:
                return
            one = self._jobs[about.key] = _Incomplete(counts[0] - counts[1])
        before = one.places.get(node.name)
        chips = frozenset(chip for pod in pods for chip in pod.chips)
        one.places[node.name] = LeftPlace(node, chips if before is None else chips | before.chips)
        self._on.setdefault(node.name, set()).add(about.key)

    def release(self, about: JobState | None, job: str, counts: tuple[int, int]) -> bool:
        """Forget the left places of a job that is complete again, was deleted, or has no known size
        any more; return whether it was one of these.
        """
        size = 0 if about is None else about.size
        one = self._jobs[job]
        if size and (counts[0] < size or counts[1] < size - one.without_chips):
            return False
        for node in self._jobs.pop(job).places:
            jobs = self._on[node]
            jobs.discard(job)
            if not jobs:
                del self._on[node]
        return True
