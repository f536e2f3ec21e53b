"""What is wrong with jobs that run, as far as decisions about faults depend on it.

Sources: ``docs/spec/consumers.md#2.1``, 2.2, 2.8 and 7.5 (R10, R12, R23, R36).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.jobs import JOINT, npu_request
from advisor.report import Finding, WorkloadKind
from advisor.workloads.workload_kind import workload_of
from contract import scheduling

if TYPE_CHECKING:
    from collections.abc import Iterator

    from advisor.jobs import SchedulerJob
    from advisor.options import AdvisorOptions


def job_findings(job: SchedulerJob, options: AdvisorOptions) -> Iterator[Finding]:
    """Return the findings about a job."""
    yield from _labels(job)
    # Without fault-scheduling no fault is evaluated, so nothing of this has an effect.
    if not job.is_off:
        yield from _participant(job, options)


def _labels(job: SchedulerJob) -> Iterator[Finding]:
    called = f"PodGroup {job.key}"
    for key, value in job.labels.items():
        if JOINT in value:
            text = f"Its PodGroup and pods disagree on {key}: the scheduler reads {value!r:.80}"
            yield Finding.error("LABEL_CONFLICT", called, text)
    value = job.fault_scheduling
    if value and JOINT not in value and value not in scheduling.FAULT_SCHEDULING_VALUES:
        text = f"fault-scheduling {value!r:.60} is not a supported value: nothing is ever deleted"
        yield Finding.error("FAULT_SCHEDULING_UNSUPPORTED", called, text)


def _participant(job: SchedulerJob, options: AdvisorOptions) -> Iterator[Finding]:
    called = f"PodGroup {job.key}"
    blind = [
        pod.name
        for pod in job.pods
        # The Device Plugin writes it at allocation (M19), so other pods may lack it rightly.
        if pod.phase == "Running"
        and npu_request(pod)
        and not pod.annotations.get(scheduling.ASCEND_REAL)
    ]
    if blind:
        text = f"{', '.join(blind[:3])} run without huawei.com/AscendReal: no card fault matches"
        yield Finding.warning("NO_ASCENDREAL", called, text)
    if job.is_pod_limited and not job.is_pod_rescheduling:
        code = (
            "OME_WITHOUT_POD_RESCHEDULING"
            if scheduling.OME_SERVICE in job.labels
            else "LIMIT_WITHOUT_POD_RESCHEDULING"
        )
        text = "Without pod-rescheduling=on a fault blocks the job's later faults for 1200 s"
        yield Finding.warning(code, called, text)
    if (
        job.is_pod_rescheduling
        and not job.is_pod_limited
        and job.is_distributed
        and workload_of(job) is WorkloadKind.AIBRIX
    ):
        text = "A fault of rank 0 removes all pods of the shared PodGroup"
        yield Finding.warning("SHARED_PG_WITHOUT_RECOVER_PATH", called, text)
    if job.fault_scheduling == scheduling.FAULT_SCHEDULING_GRACE:
        longest = max((pod.termination_grace_seconds for pod in job.pods), default=0)
        if longest > options.grace_over_time:
            text = (
                f"Pods may take {longest} s to end and are deleted by force after"
                f" {options.grace_over_time} s"
            )
            yield Finding.warning("GRACE_SHORTER_THAN_TERMINATION", called, text)
