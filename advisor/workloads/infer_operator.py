"""InferServices: the operator deletes the workload of the instance (``consumers#2.9``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.jobs import SchedulerJob
    from advisor.report import Deletion


def follow_up(_job: SchedulerJob, _pods: Sequence[Deletion]) -> str:
    """Return what the infer-operator does about pods at fault."""
    return "the infer-operator deletes the workload of the instance and makes it anew"
