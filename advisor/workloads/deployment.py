"""Deployments of OME: one PodGroup per ReplicaSet (``docs/spec/consumers.md#2.9``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.counted import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.jobs import SchedulerJob
    from advisor.report import Deletion


def follow_up(_job: SchedulerJob, pods: Sequence[Deletion]) -> str:
    """Return what the ReplicaSet controller does once pods are deleted."""
    return f"the ReplicaSet controller makes {counted(len(pods), 'replacement')} with new names"
