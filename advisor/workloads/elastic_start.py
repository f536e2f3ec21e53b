"""Whether ``vigil elastic`` starts a vcjob again after a fault deleted its pods (R35, R60).

The daemon judges the live object by the same conditions (``elastic/conditions.py``). Sources:
``docs/spec/consumers.md#2.9`` and 5.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.jobs import npu_request, npu_resource
from contract import scheduling
from contract.documents.elastic_job import (
    END_ACTIONS,
    EVICTED_EVENTS,
    OFF,
    RESTART_ACTION,
    SHORTEST_TTL_SECONDS,
    SWITCH,
    read_ending,
    read_kept,
)
from contract.scheduling import go_integer

if TYPE_CHECKING:
    from advisor.snapshot import SchedulerPod, VcJob


def elastic_start(job: VcJob) -> str:
    """Return with which sizes a vcjob is started again; empty where a condition does not hold."""
    pod = job.template
    if pod is None or not (_is_asked_for(job) and _ends(job) and _fits_terms(job)):
        return ""
    size = _original(job, pod)
    least = go_integer(job.annotations.get(scheduling.MIN_REPLICAS, ""))
    if size is None or least is None or "-" in npu_resource(pod).partition("/")[2]:
        return ""
    replicas, cards = size
    success = job.terms.min_success
    if not 1 <= least <= replicas or (success is not None and success > replicas):
        return ""
    if replicas == 1 and (cards == 1 or job.terms.containers > 1):
        return ""
    least = max(least, success or 0)
    sizes = f"1 to {cards} chips" if replicas == 1 else f"{least} to {replicas} pods"
    return f"vigil elastic, where it acts, then starts the job again in place, with {sizes}"


def _is_asked_for(job: VcJob) -> bool:
    labels = job.labels
    return (
        labels.get(scheduling.ELASTIC_SCHEDULING) == "on"
        and labels.get(scheduling.FAULT_SCHEDULING) == scheduling.FAULT_SCHEDULING_GRACE
        and labels.get(scheduling.PROCESS_RECOVER) in (None, "off")
        and scheduling.PROCESS_RECOVER_STRATEGY not in job.annotations
        and job.annotations.get(SWITCH) != OFF
    )


def _ends(job: VcJob) -> bool:
    """Whether the controller ends the job; policies of its task go first."""
    ordered = sorted(job.policies, key=lambda one: not one.task)
    action = next(
        (one.action for one in ordered if any(e in EVICTED_EVENTS for e in one.events)), ""
    )
    return action in END_ACTIONS or (action == RESTART_ACTION and job.max_retry == 0)


def _fits_terms(job: VcJob) -> bool:
    terms = job.terms
    is_kept = terms.ttl_seconds is None or terms.ttl_seconds >= SHORTEST_TTL_SECONDS
    return terms.tasks == 1 and not terms.is_owned and not terms.is_partitioned and is_kept


def _original(job: VcJob, pod: SchedulerPod) -> tuple[int, int] | None:
    """Return pods and chips of each as the owner gave them; ``None`` where that is not known."""
    size = job.replicas, npu_request(pod)
    try:
        kept, _ = read_kept(job.annotations), read_ending(job.annotations)
    except ValueError:
        return None
    if kept is not None and size == (kept.size.replicas, kept.size.cards):
        return kept.original.replicas, kept.original.cards
    return size
