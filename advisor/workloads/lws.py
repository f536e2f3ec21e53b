"""LeaderWorkerSets of OME: one PodGroup per group (``docs/spec/consumers.md#2.9``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.jobs import SchedulerJob
    from advisor.report import Deletion


def follow_up(job: SchedulerJob, pods: Sequence[Deletion]) -> str:
    """Return what the LWS controller does once a pod of a group is deleted."""
    gone = {pod.uid for pod in pods}
    others = [pod.name for pod in job.pods if pod.uid not in gone]
    rest = f" and deletes {', '.join(others)}" if others else ""
    return f"the LWS controller makes the whole group anew{rest}"
