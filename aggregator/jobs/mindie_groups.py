"""MindIE's inference services: the jobs that share a ``jobID`` (``consumers#4.1``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from aggregator.inputs.node_context import JobState, PodState

GROUP_LABEL = "jobID"
APP_LABEL = "app"
_NO_CHIPS: frozenset[str] = frozenset()


class Groups:
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
        left = self.drop(job)
        if not group:
            return left
        self._of[job] = (group, app)
        self._members.setdefault(group, set()).add(job)
        return left | {group}

    def drop(self, job: str) -> frozenset[str]:
        """Remove a job; return the groups that changed."""
        known = self._of.pop(job, None)
        if known is None:
            return _NO_CHIPS
        group = known[0]
        members = self._members[group]
        members.discard(job)
        if not members:
            del self._members[group]
        return frozenset({group})

    def of(self, job: str) -> str | None:
        """Return the group of a job; ``None`` where it has none."""
        known = self._of.get(job)
        return None if known is None else known[0]

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
