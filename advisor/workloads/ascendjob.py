"""Jobs of the Ascend Operator (``docs/spec/consumers.md#2.9`` and 3.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.counted import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.jobs import SchedulerJob
    from advisor.report import Deletion


def follow_up(_job: SchedulerJob, pods: Sequence[Deletion]) -> str:
    """Return what the operator does once pods are deleted."""
    return (
        f"the Ascend Operator makes {counted(len(pods), 'pod')} anew and counts one restart (3.6)"
    )
