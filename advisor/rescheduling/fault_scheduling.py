"""Whether a job with faults is acted on, and how (``docs/spec/consumers.md#2.5``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from advisor.report import Action
from advisor.rescheduling.fault_pods import PRE_SEPARATE, reason_of
from advisor.scheduler_view.state import FaultType
from contract import scheduling
from contract.sentences import sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.jobs import SchedulerJob
    from advisor.rescheduling.fault_pods import JudgedPod


class Gate(NamedTuple):
    """What the scheduler does with a job, by which row and rules, and why.

    ``action`` is ``None`` where the gate is open: pods are deleted, and the selection has the row.
    """

    action: Action | None
    row: str
    rules: tuple[str, ...]
    why: str
    reason: FaultType | None = None


def has_platform_marker(judged: Sequence[JudgedPod]) -> bool:
    """Whether a platform has to restart something: software, or a pre-separated card.

    Source: docs/spec/consumers.md#2.5.
    """
    return any(
        judged_pod.pod.labels.get(scheduling.FAULT_TYPE) == scheduling.FAULT_TYPE_SOFTWARE
        or any(reason.fault_handling == PRE_SEPARATE for reason in judged_pod.reasons)
        for judged_pod in judged
    )


def gate(
    job: SchedulerJob,
    value: str,
    judged: Sequence[JudgedPod],
    *,
    retry_times: int,
    retries_left: int,
    corrected: bool,
) -> Gate:
    """Return what is done with a job whose ``fault-scheduling`` is ``value``.

    It has pods at fault, or a marker for the platform.
    """
    on_values = (scheduling.FAULT_SCHEDULING_GRACE, scheduling.FAULT_SCHEDULING_FORCE)
    has_fault = any(judged_pod.type is not None for judged_pod in judged)
    if value in scheduling.FAULT_SCHEDULING_EXTERNAL:
        if not has_fault:
            return Gate(
                Action.NONE, "D6", ("R24",), sentence("an external platform acts, not Volcano")
            )
        text = sentence(
            "{value}: Volcano annotates the pods at fault and deletes nothing", value=value
        )
        return Gate(Action.ANNOTATE, "D6", ("R24",), text, reason_of(judged))
    if value not in on_values:
        rest = (
            sentence("it counts as off")
            if corrected
            else sentence("it is an error in each session, nothing is deleted")
        )
        text = sentence(
            "fault-scheduling {value} is not a supported value: {rest}",
            value=repr(value),
            rest=rest,
        )
        return Gate(Action.NONE, "D5", ("R23",), text)
    if not has_fault:
        text = sentence(
            "no pod is at fault; software or PreSeparateNPU asks the platform to restart"
        )
        return Gate(Action.PLATFORM_RESTART, "D4", ("R25",), text)
    if scheduling.PROCESS_RECOVER_STRATEGY in job.annotations:
        text = sentence("the annotation ProcessRecoverStrategy keeps Volcano from deleting")
        return Gate(Action.NONE, "D7", ("R26",), text)
    reason = reason_of(judged)
    if reason == FaultType.POD_FAILED and (retry_times == 0 or retries_left <= 0):
        text = sentence(
            "pods failed by themselves, retries left: {count}", count=max(retries_left, 0)
        )
        return Gate(Action.NONE, "D8", ("R27",), text, reason)
    return Gate(None, "", ("R27",), "", reason)
