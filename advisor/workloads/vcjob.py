"""Volcano Jobs: what their controller does depends on policies and on the stored ``maxRetry``.

Source: ``docs/spec/consumers.md#2.9``, as observed on the controller v1.15.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.workloads.elastic_start import elastic_start
from contract.documents.elastic_job import EVICTED_EVENTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.report import Deletion
    from advisor.snapshot import VcJob


def action_after_eviction(job: VcJob) -> str:
    """Return the action of the policy for evicted pods; empty where there is none."""
    for policy in job.policies:
        if not policy.task and any(event in EVICTED_EVENTS for event in policy.events):
            return policy.action
    return ""


def follow_up(job: VcJob | None, pods: Sequence[Deletion], *, is_fault: bool) -> str:
    """Return what the vcjob controller does once pods are deleted, and who starts the job again.

    After a program that failed it is not started again.
    """
    if job is None:
        return "the vcjob is not in the snapshot: what follows depends on its policies"
    start = elastic_start(job) if is_fault else ""
    ends = _what_the_controller_does(job, pods)
    return f"{ends}; {start}" if start else ends


def _what_the_controller_does(job: VcJob, pods: Sequence[Deletion]) -> str:
    action = action_after_eviction(job)
    if action == "RestartJob":
        if job.max_retry == 0:
            hang = "; other pods keep their grace" if len(pods) > 1 else ""
            return f"RestartJob with maxRetry 0: the job is Failed once the first pod is gone{hang}"
        if job.max_retry is not None and job.retry_count >= job.max_retry:
            return f"RestartJob with {job.retry_count} of {job.max_retry} retries used: Failed"
        return "RestartJob: the vcjob controller ends all pods and makes them anew at the same size"
    if action in ("TerminateJob", "AbortJob"):
        end = "Terminated" if action == "TerminateJob" else "Aborted"
        return f"{action}: the job is {end} when all pods have ended"
    if action:
        return f"{action}: done by the vcjob controller"
    return "no policy for evicted pods: the vcjob controller makes each pod anew at once"
