"""What has to hold so that a vcjob is started again, with what to write where it does not.

Sources: ``docs/spec/consumers.md#2.9``, 5.3 and 7.5. ``vigil lint`` judges the manifest by the same
conditions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from contract import scheduling
from contract.documents.elastic_job import (
    END_ACTIONS,
    EVICTED_EVENTS,
    KEPT,
    MIN_TTL_SECONDS,
    OFF,
    RESTART_ACTION,
    SWITCH,
    Size,
    read_kept,
)
from contract.plural import plural
from contract.scheduling import go_integer
from contract.sentences import sentence

if TYPE_CHECKING:
    from collections.abc import Callable

    from advisor.snapshot import VcJob
    from contract.documents.elastic_job import PersistedJob

_DEFAULT_RETRIES = 3
"""What a job without ``maxRetry`` gets (consumers#2.9)."""


class Condition(NamedTuple):
    """A condition: ``problem`` returns what is wrong and what to write; ``None`` where it holds."""

    name: str
    problem: Callable[[VcJob], str | None]


class Unmet(NamedTuple):
    """A condition that does not hold, with what is wrong and what to write."""

    name: str
    text: str


def kept_of(job: VcJob) -> PersistedJob | None:
    """Return what is kept on the job; ``None`` where that is nothing, or cannot be read."""
    try:
        return read_kept(job.annotations)
    # The condition ``state`` reports it; here it counts as nothing kept.
    except ValueError:
        return None


def run_of(job: VcJob) -> tuple[int, int]:
    """Return which run of the job this is: the number of the start of ours that began it, 0 for
    none, and when a Command of its owner began it.
    """
    persisted = kept_of(job)
    return (0 if persisted is None else persisted.start, job.resumed_ms)


def original_of(job: VcJob) -> Size | None:
    """Return the size that the owner gave the job; ``None`` where it has not one task.

    A size that is not the one written last is the owner's from then on.
    """
    size, persisted = job.size, kept_of(job)
    if size is None or persisted is None:
        return size
    # A size other than the one written last was written by the owner (decision 34).
    is_ours = (size.replicas, size.cards) == (persisted.size.replicas, persisted.size.cards)
    return persisted.original if is_ours else size


def min_replicas(job: VcJob) -> int:
    """Return ``minReplicas``, 1 where it is not a number."""
    return go_integer(job.annotations.get(scheduling.MIN_REPLICAS, "")) or 1


def fewest_pods(job: VcJob) -> int:
    """Return with how many pods the job may start at least: with fewer it could not succeed."""
    # With fewer pods than ``minSuccess`` the job controller could never call it completed.
    return max(min_replicas(job), job.min_success or 0)


def unmet(job: VcJob) -> tuple[Unmet, ...]:
    """Return all conditions that do not hold, in the order of the table."""
    problems = ((condition.name, condition.problem(job)) for condition in CONDITIONS)
    return tuple(Unmet(name, text) for name, text in problems if text is not None)


def _kept(job: VcJob) -> str | None:
    try:
        read_kept(job.annotations)
    except ValueError as error:
        return f"{error}; set the original size and remove the annotation {KEPT}"
    return None


def _grace(job: VcJob) -> str | None:
    value = job.labels.get(scheduling.FAULT_SCHEDULING)
    if value == scheduling.FAULT_SCHEDULING_GRACE:
        return None
    return f'label fault-scheduling {_shown(value)}; write fault-scheduling: "grace"'


def _elastic(job: VcJob) -> str | None:
    value = job.labels.get(scheduling.ELASTIC_SCHEDULING)
    if value == "on":
        return None
    return f'label elastic-scheduling {_shown(value)}; write elastic-scheduling: "on"'


def _switched_off(job: VcJob) -> str | None:
    if job.annotations.get(SWITCH) != OFF:
        return None
    return f"annotation {SWITCH} is off; run vigil elastic on {job.key}"


def _one_task(job: VcJob) -> str | None:
    count = len(job.tasks)
    return None if count == 1 else f"it has {count} tasks; write one task with all pods"


def _minimum(job: VcJob) -> str | None:
    original = original_of(job)
    if original is None:
        return None
    text = job.annotations.get(scheduling.MIN_REPLICAS)
    number = None if text is None else go_integer(text)
    if number is not None and 1 <= number <= original.replicas:
        return None
    shown = "is missing" if text is None else f"is {text!r}"
    return (
        f"annotation minReplicas {shown}; write a whole number from 1 to {original.replicas}, "
        f'as in minReplicas: "1"'
    )


def _divisible(job: VcJob) -> str | None:
    original = original_of(job)
    if original is None or original.replicas > 1 or original.cards > 1:
        return None
    return "it has one pod with at most one chip; ask for two pods or two chips"


def _whole_chips(job: VcJob) -> str | None:
    for task in job.tasks:
        if not task.resource:
            return "its pods ask for no chips; ask for chips, as in huawei.com/Ascend910"
        if "," in task.resource:
            return f"its pods ask for {task.resource}; ask for one kind of chips"
        # Virtual chips have a dash in their resource (consumers#2.1).
        if "-" in task.resource.removeprefix(scheduling.RESOURCE_DOMAIN):
            return f"{task.resource} is a part of a chip; ask for whole chips"
    return None


def _one_container(job: VcJob) -> str | None:
    original = original_of(job)
    if original is None or original.replicas > 1:
        return None
    if len({index for index, _ in job.tasks[0].places}) <= 1:
        return None
    return "several containers of its only pod ask for chips; ask for them in one container"


def _policy(job: VcJob) -> str | None:
    action = evicted_action(job)
    instead = "write event: PodEvicted, action: TerminateJob"
    if action is None:
        return f"no policy for PodEvicted: its pods are made anew at full size; {instead}"
    # The stored object has the default, and the manifest mostly does not.
    retries = _DEFAULT_RETRIES if job.max_retry is None else job.max_retry
    if action == RESTART_ACTION and retries != 0:
        return f"action RestartJob with stored maxRetry {retries} starts it at full size; {instead}"
    if action == RESTART_ACTION or action in END_ACTIONS:
        return None
    return f"action {action} does not end the job; {instead}"


def evicted_action(job: VcJob) -> str | None:
    """Return what the controller does once a pod was evicted; ``None`` without a policy.

    Policies of the task go before those of the job.
    """
    # Policies of a task win over those of the job (consumers#2.9).
    own = (policy for task in job.tasks for policy in task.policies)
    for policy in (*own, *job.policies):
        if any(event in EVICTED_EVENTS for event in policy.events):
            return policy.action
    return None


def _owner(job: VcJob) -> str | None:
    if not job.has_owner:
        return None
    return "another object owns it and would start it, too; create the job without an owner"


def _process_recovery(job: VcJob) -> str | None:
    value = job.labels.get(scheduling.PROCESS_RECOVER)
    if value not in (None, "off"):
        return f"label process-recover-enable is {value}, so others recover it; remove the label"
    if scheduling.PROCESS_RECOVER_STRATEGY in job.annotations:
        return "annotation ProcessRecoverStrategy: others recover it; remove the annotation"
    return None


def _success(job: VcJob) -> str | None:
    original = original_of(job)
    if original is None or job.min_success is None or job.min_success <= original.replicas:
        return None
    return (
        f"minSuccess {job.min_success} is more than its {plural(original.replicas, 'pod')}; write "
        f"minSuccess: {original.replicas} or less"
    )


def _partition(job: VcJob) -> str | None:
    if not any(task.is_partitioned for task in job.tasks):
        return None
    return "partitionPolicy fixes the number of pods; remove partitionPolicy"


def _lifetime(job: VcJob) -> str | None:
    seconds = job.ttl_seconds
    if seconds is None or seconds >= MIN_TTL_SECONDS:
        return None
    return (
        f"ttlSecondsAfterFinished {seconds} may delete it before it is started again; remove it, "
        f"or write {MIN_TTL_SECONDS} or more"
    )


def _shown(value: str | None) -> str:
    return "is missing" if value is None else f"is {value!r}"


CONDITIONS = (
    Condition("state", _kept),
    Condition("fault-scheduling", _grace),
    Condition("elastic-scheduling", _elastic),
    Condition("switch", _switched_off),
    Condition("one-task", _one_task),
    Condition("min-replicas", _minimum),
    Condition("divisible", _divisible),
    Condition("whole-chips", _whole_chips),
    Condition("one-container", _one_container),
    Condition("policy", _policy),
    Condition("owner", _owner),
    Condition("process-recovery", _process_recovery),
    Condition("min-success", _success),
    Condition("partition-policy", _partition),
    Condition("lifetime", _lifetime),
)
"""All conditions about what is written in the job."""


def elastic_start(job: VcJob) -> str:
    """Return with which sizes ``vigil elastic`` starts a vcjob again after a fault ended it (R35).

    Empty where a condition does not hold.
    """
    original = original_of(job)
    if unmet(job) or original is None:
        return ""
    replicas, cards = original.replicas, original.cards
    sizes = (
        sentence("1 to {count} chips", count=cards)
        if replicas == 1
        else sentence("{least} to {count} pods", least=fewest_pods(job), count=replicas)
    )
    return sentence(
        "vigil elastic, where it acts, then starts the job again in place, with {sizes}",
        sizes=sizes,
    )
