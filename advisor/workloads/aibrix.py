"""StormServices of AIBrix: a PodGroup per instance, or one for all roles (consumers#2.9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.counted import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.jobs import SchedulerJob
    from advisor.report import Deletion


def follow_up(job: SchedulerJob, pods: Sequence[Deletion]) -> str:
    """Return what the AIBrix controllers do once pods are deleted."""
    whole = "the instance" if len(pods) == len(job.pods) else counted(len(pods), "pod")
    return f"the AIBrix controllers make {whole} anew"
