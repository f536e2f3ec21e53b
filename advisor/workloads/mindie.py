"""MindIE Motor: server instances, controllers and coordinators (``consumers#2.9``, 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.counted import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.jobs import SchedulerJob
    from advisor.report import Deletion


def follow_up_of_server(_job: SchedulerJob, _pods: Sequence[Deletion]) -> str:
    """Return what the operator does once an instance is deleted."""
    return "the Ascend Operator makes the instance anew if the scaling rule allows it (R50)"


def follow_up_of_control(_job: SchedulerJob, pods: Sequence[Deletion]) -> str:
    """Return what the operator does once a controller or coordinator pod is deleted."""
    return f"the Ascend Operator makes {counted(len(pods), 'pod')} anew"
