"""What others than Volcano do about a process that failed (``docs/spec/consumers.md#2.9``).

The kubelet, the controllers of Kubernetes, LWS, AIBrix, Volcano's job controller and the Ascend
Operator act by themselves; Volcano's plugin deletes such a pod only with ``fault-retry-times``.
AIBrix is read at its commit e3e10f9e (``pkg/controller/podset/podset_controller.go``,
``pkg/controller/roleset/rolesyncer.go``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.jobs import npu_request
from advisor.report import Action, FaultPod, JobDecision, PodRef, WorkloadKind
from advisor.scheduler_view.state import FaultType
from advisor.snapshot_index import SnapshotIndex
from advisor.workloads.pod_recreation import FollowUp, after_lws, all_of
from contract import scheduling
from contract.sentences import counted, joined, names_in_short, sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from advisor.snapshot import ClusterSnapshot, SchedulerPod, VcJob

_FAILED_EVENTS = frozenset({"PodFailed", "*"})
_KILLING = frozenset({"RestartJob", "TerminateJob", "AbortJob", "CompleteJob"})
"""Actions of a policy with which the controller of vcjobs ends all pods of the job."""
_MAX_NAMES = 3


def has_failed_process(pod: SchedulerPod) -> bool:
    """Whether a process of a pod has failed, and the pod is not about to go already."""
    # It goes anyway, so nothing follows from the process that failed.
    if pod.is_terminating or pod.phase == "Succeeded":
        return False
    return pod.phase == "Failed" or _is_restarted(pod) or _has_ended_container(pod)


def _is_restarted(pod: SchedulerPod) -> bool:
    return any(container.last_exit_code for container in pod.containers)


def _has_ended_container(pod: SchedulerPod) -> bool:
    """Whether a container has failed for good, and others of its pod may still run."""
    return pod.restart_policy == "Never" and any(
        container.exit_code for container in pod.containers
    )


def after_failure(
    pods: Sequence[SchedulerPod], members: Sequence[SchedulerPod], index: SnapshotIndex
) -> FollowUp:
    """Return what is done about ``pods``, each with a process that failed.

    ``members`` are all pods of the PodGroup.
    """
    follow_ups: list[FollowUp] = []
    partly = [pod for pod in pods if pod.phase != "Failed" and _has_ended_container(pod)]
    if partly:
        text = sentence(
            "a container of {pods} has ended and is not started again (restartPolicy Never), "
            "others of the pod still run",
            pods=_names(partly),
        )
        follow_ups.append(FollowUp(text))
    restarted = [pod for pod in pods if pod.phase != "Failed" and _is_restarted(pod)]
    if restarted:
        policies = sorted({pod.restart_policy for pod in restarted})
        text = sentence(
            "the kubelet restarts the container of {pods} in place (restartPolicy {policies})",
            pods=_names(restarted),
            policies=joined("{before}, {part}", policies),
        )
        follow_ups.append(FollowUp(text))
        of_lws = [pod for pod in restarted if scheduling.LWS_NAME in pod.labels]
        if of_lws:
            follow_ups.append(after_lws(of_lws, index))
    makers: dict[tuple[str, str], list[SchedulerPod]] = {}
    for pod in pods:
        if pod.phase == "Failed":
            key = ("", "") if pod.owner is None else (pod.owner.kind, pod.owner.name)
            makers.setdefault(key, []).append(pod)
    # One answer for each controller, since each acts by its own rules.
    follow_ups += [
        _ended(kind, name, ended, members, index) for (kind, name), ended in makers.items()
    ]
    return FollowUp(
        all_of(follow_up.text for follow_up in follow_ups),
        # Two controllers may delete one pod; it is named once.
        tuple(dict.fromkeys(pod for follow_up in follow_ups for pod in follow_up.deleted)),
        all_of(dict.fromkeys(follow_up.gap for follow_up in follow_ups)),
    )


def lone_failures(
    snapshot: ClusterSnapshot, named: Collection[tuple[str, str]]
) -> list[JobDecision]:
    """Return what is done about failed processes of pods without a PodGroup.

    Volcano does not know them as jobs. ``named`` are pods that assumptions name, by namespace
    and name; of the others only those with chips are of interest.
    """
    failed = [
        pod
        for pod in snapshot.pods
        if not pod.group
        and has_failed_process(pod)
        and (npu_request(pod) or (pod.namespace, pod.name) in named)
    ]
    if not failed:
        return []
    # Only for these few pods: the advisor's own index knows no pods without a PodGroup.
    index = SnapshotIndex()
    index.update(snapshot)
    failures = []
    for pod in failed:
        follows = after_failure([pod], [pod], index)
        fault = FaultPod(pod.namespace, pod.name, pod.uid, FaultType.POD_FAILED.value, pod.node)
        failures.append(
            JobDecision(
                namespace=pod.namespace,
                job=f"{pod.namespace}/{pod.name}",
                workload=WorkloadKind.OTHER,
                action=Action.NONE,
                row="",
                rules=(),
                why=sentence("the pod is in no PodGroup: Volcano does nothing about it"),
                fault_pods=(fault,),
                follow_up=follows.text,
                also_deleted=follows.deleted,
                gap=follows.gap,
            )
        )
    return failures


def _ended(
    kind: str,
    name: str,
    pods: Sequence[SchedulerPod],
    members: Sequence[SchedulerPod],
    index: SnapshotIndex,
) -> FollowUp:
    """Return what the controller ``name`` does about pods of its own that are ``Failed``."""
    names, namespace = _names(pods), pods[0].namespace
    stays = counted(len(pods), "{pods} stays Failed", "{pods} stay Failed", pods=names)
    match kind:
        case "":
            return FollowUp(sentence("{stays}: no controller owns it", stays=stays))
        case "PodSet":
            return _ended_of_pod_set(name, stays, pods, members, index)
        case "RoleSet":
            text = sentence(
                "the RoleSet controller of AIBrix deletes {pods} and makes the pod anew", pods=names
            )
            return FollowUp(text, _refs(pods))
        # A ReplicaSet replaces failed pods and deletes none of them (Kubernetes).
        case "ReplicaSet":
            text = sentence("the ReplicaSet controller makes a pod anew for each")
            return FollowUp(all_of((text, stays)))
        case "StatefulSet" | "DaemonSet":
            text = sentence(
                "the {kind} controller deletes {pods} and makes the pod anew", kind=kind, pods=names
            )
            of_lws = [pod for pod in pods if scheduling.LWS_NAME in pod.labels]
            if not of_lws:
                return FollowUp(text, _refs(pods))
            after = after_lws(of_lws, index, {pod.uid for pod in pods})
            deleted = (*_refs(pods), *after.deleted)
            return FollowUp(all_of((text, after.text)), deleted, after.gap)
        case "Job":
            job = index.vcjobs.get((namespace, name))
            if job is not None:
                return _ended_of_vcjob(job, stays, members)
            called = f"Job {namespace}/{name}"
            return FollowUp(
                sentence(
                    "not known: {object} is not there, and so its policies for PodFailed",
                    object=called,
                ),
                gap=sentence(
                    "{object} is not there: what its controller does about pods that fail",
                    object=called,
                ),
            )
        case "AscendJob":
            return FollowUp(
                sentence(
                    "the Ascend Operator fails {object}, since no retry is left for a pod that "
                    "failed (3.6); {stays} until the operator cleans up",
                    object=f"AscendJob {namespace}/{name}",
                    stays=stays,
                )
            )
    called = f"{kind} {namespace}/{name}"
    return FollowUp(
        sentence(
            "not known: what the controller of {object} does about {pods}",
            object=called,
            pods=names,
        ),
        gap=sentence("{object}: what its controller does about pods that fail", object=called),
    )


def _ended_of_pod_set(
    name: str,
    stays: str,
    pods: Sequence[SchedulerPod],
    members: Sequence[SchedulerPod],
    index: SnapshotIndex,
) -> FollowUp:
    # A StormService gives its PodSets no recoveryPolicy, so one that is not there has the default.
    pod_set = index.workloads.get(("PodSet", pods[0].namespace, name))
    policy = scheduling.POD_SET_REPLACE if pod_set is None else pod_set.policy
    stays = sentence("{stays}: AIBrix makes no pod while one of its name is there", stays=stays)
    if policy != scheduling.POD_SET_RECREATE:
        return FollowUp(stays)
    mine = pods[0].owner
    others = [pod for pod in members if pod.is_live and pod.owner == mine]
    if not others:
        return FollowUp(stays)
    text = sentence(
        "the PodSet controller of AIBrix deletes {pods} and makes them anew (recoveryPolicy "
        "Recreate)",
        pods=_names(others),
    )
    return FollowUp(all_of((text, stays)), _refs(others))


def _ended_of_vcjob(job: VcJob, stays: str, members: Sequence[SchedulerPod]) -> FollowUp:
    """Return what the controller of vcjobs does; policies of a task go before those of the job."""
    policies = [*(policy for task in job.tasks for policy in task.policies), *job.policies]
    # A policy by exit code has no events, and the exit code decides then.
    if any(not policy.events for policy in policies):
        return FollowUp(
            sentence("not known: Job {job} has a policy for an exit code", job=job.key),
            gap=sentence("Job {job} has a policy for an exit code, which is not read", job=job.key),
        )
    action = next(
        (policy.action for policy in policies if _FAILED_EVENTS.intersection(policy.events)), ""
    )
    if not action:
        text = sentence("{stays}: the vcjob has no policy for PodFailed", stays=stays)
        end = sentence("the job ends when all its pods have ended")
        return FollowUp(all_of((text, end)))
    live_pods = [pod for pod in members if pod.is_live and not pod.is_terminating]
    if action not in _KILLING:
        return FollowUp(
            sentence("{action}: done by the vcjob controller (policy for PodFailed)", action=action)
        )
    text = sentence(
        "{action}: the vcjob controller ends all pods of the job (policy for PodFailed)",
        action=action,
    )
    return FollowUp(text, _refs(live_pods))


def _names(pods: Sequence[SchedulerPod]) -> str:
    return names_in_short([pod.name for pod in pods], _MAX_NAMES)


def _refs(pods: Iterable[SchedulerPod]) -> tuple[PodRef, ...]:
    return tuple(PodRef(pod.namespace, pod.name, pod.uid) for pod in pods)
