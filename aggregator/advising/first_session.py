"""What sessions begin with where nothing is known of an earlier one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.checks.written_retries import written_retries
from advisor.inputs.scheduler_options import scheduler_options
from advisor.options import AdvisorOptions
from advisor.scheduler_view.state import SchedulerState

if TYPE_CHECKING:
    from advisor.snapshot import ClusterSnapshot


def options_of(snapshot: ClusterSnapshot) -> AdvisorOptions:
    """Return the switches of the scheduler, its defaults where it has no ConfigMap."""
    read = scheduler_options(snapshot.configmaps)
    return AdvisorOptions() if read is None else read[0]


def first_state(snapshot: ClusterSnapshot) -> SchedulerState:
    """Return the state before the first session: the retries that the scheduler has written."""
    return SchedulerState(retries=written_retries(snapshot.configmaps) or {})
