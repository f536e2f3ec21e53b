"""Which pods of a faulty job are deleted (``docs/spec/consumers.md#2.6``).

The rules are asked in the order of the specification, and the first one that fits decides. A job
that limits nothing loses all pods by one fault. With ``pod-rescheduling`` only the pods at fault go
at first. After fixed numbers of pending sessions their blocks follow, and in the end all pods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from advisor.jobs import npu_request
from advisor.report import Scope
from contract import scheduling
from contract.scheduling import go_integer
from contract.sentences import sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.jobs import SchedulerJob
    from advisor.rescheduling.fault_pods import JudgedPod
    from advisor.snapshot import SchedulerPod

# Pending sessions after which the scope is widened (consumers#2.6).
SUPER_POD_STAGE = 6
JOB_STAGE = 12
RACK_STAGE = 3


class PodSelection(NamedTuple):
    """The pods to delete, by which row of consumers#2.10, how much of the job they are, and why."""

    pods: tuple[SchedulerPod, ...]
    row: str
    scope: Scope
    why: str


def select(
    job: SchedulerJob, judged: Sequence[JudgedPod], pending: int, *, master_rule: bool = True
) -> PodSelection:
    """Return the pods that go when some of ``judged`` are at fault.

    ``pending`` counts sessions since the pods at fault have gone. Without ``master_rule`` the
    fault of rank 0 is one as any other (R31).
    """
    faulty = [judged_pod for judged_pod in judged if judged_pod.type is not None]
    # Rule 1 of consumers#2.6 comes before all others.
    if job.is_pod_limited:
        return PodSelection(
            _pods(faulty), "D9", Scope.POD, sentence("the job limits it to the pods at fault")
        )
    if job.policy == scheduling.RACK_POLICY:
        return _select_rack(job, judged, faulty, pending)
    if job.is_multilevel and not job.block_sizes:
        reason = sentence(
            "huawei.com/affinity-config gives no tree of blocks: the plugin finds no pod to delete"
        )
        return PodSelection((), "D15", Scope.JOB, reason)
    if master_rule and (reason := _master_fault(job, judged, faulty, pending)):
        return PodSelection(_pods(judged), "D10", Scope.JOB, reason)
    # Before the rule for super pods: a job by blocks has no logical super pods.
    if job.is_multilevel and job.is_pod_rescheduling and pending < JOB_STAGE:
        return _select_blocks(job, judged, pending)
    if job.is_pod_rescheduling and pending < JOB_STAGE:
        if not job.is_super_pod or pending < SUPER_POD_STAGE:
            return PodSelection(
                _pods(faulty),
                "D11",
                Scope.POD,
                sentence("pod-rescheduling keeps the healthy pods for now"),
            )
        blocks = {_block(job, judged_pod.rank) for judged_pod in faulty}
        chosen = [
            judged_pod
            for judged_pod in judged
            if judged_pod.type or _block(job, judged_pod.rank) in blocks
        ]
        if job.is_process_recovering:
            # Process recovery keeps healthy pods also in a super pod at fault (consumers#2.6, rule
            # 4).
            chosen = faulty
        return PodSelection(
            _pods(chosen),
            "D12",
            Scope.SUPER_POD,
            sentence(
                "after {count} pending sessions the logical super pods at fault go",
                count=SUPER_POD_STAGE,
            ),
        )
    if job.is_process_recovering:
        return PodSelection(
            _pods(faulty),
            "D14",
            Scope.POD,
            sentence("process-recover-enable keeps the healthy pods"),
        )
    if job.is_pod_rescheduling:
        return PodSelection(
            _pods(judged),
            "D13",
            Scope.JOB,
            sentence("after {count} pending sessions all pods go", count=JOB_STAGE),
        )
    return PodSelection(
        _pods(judged), "D15", Scope.JOB, sentence("one pod at fault removes the whole PodGroup")
    )


def _pods(chosen: Sequence[JudgedPod]) -> tuple[SchedulerPod, ...]:
    return tuple(judged_pod.pod for judged_pod in chosen)


def _master_fault(
    job: SchedulerJob, judged: Sequence[JudgedPod], faulty: Sequence[JudgedPod], pending: int
) -> str:
    """Return why the master is at fault; empty where it is not (consumers#2.6, rule 2)."""
    if job.is_npu:
        for judged_pod in faulty:
            worker = (
                judged_pod.pod.labels.get(scheduling.REPLICA_TYPE) == scheduling.REPLICA_TYPE_WORKER
            )
            if judged_pod.rank == "0" and not worker:
                return sentence("the pod of rank 0, {pod}, is at fault", pod=judged_pod.pod.name)
    if job.is_super_pod and pending >= SUPER_POD_STAGE:
        blocks = {_block(job, judged_pod.rank) for judged_pod in faulty}
        for judged_pod in judged:
            if judged_pod.rank == "0" and _block(job, judged_pod.rank) in blocks:
                return sentence(
                    "the pod of rank 0, {pod}, is in a logical super pod at fault",
                    pod=judged_pod.pod.name,
                )
    if job.is_multilevel and job.is_npu:
        nodes = _nodes_of_blocks(job, judged, pending)
        for judged_pod in judged:
            worker = (
                judged_pod.pod.labels.get(scheduling.REPLICA_TYPE) == scheduling.REPLICA_TYPE_WORKER
            )
            if judged_pod.rank == "0" and not worker and judged_pod.pod.node in nodes:
                return sentence(
                    "the pod of rank 0, {pod}, is in a block at fault", pod=judged_pod.pod.name
                )
    return ""


def _select_blocks(job: SchedulerJob, judged: Sequence[JudgedPod], pending: int) -> PodSelection:
    """Return the pods of the blocks at fault (consumers#2.6, rule 3a)."""
    nodes = _nodes_of_blocks(job, judged, pending)
    chosen = [
        judged_pod
        for judged_pod in judged
        if judged_pod.type or (judged_pod.pod.node in nodes and not job.is_process_recovering)
    ]
    if pending < SUPER_POD_STAGE:
        reason = sentence("pod-rescheduling keeps the pods on other nodes for now")
        return PodSelection(_pods(chosen), "D11", Scope.POD, reason)
    reason = sentence(
        "after {count} pending sessions the blocks at fault go", count=SUPER_POD_STAGE
    )
    return PodSelection(_pods(chosen), "D12", Scope.BLOCK, reason)


def _nodes_of_blocks(job: SchedulerJob, judged: Sequence[JudgedPod], pending: int) -> set[str]:
    """Return the nodes of the blocks with a fault, which grow with the pending sessions."""
    # Each six pending sessions are one level higher, up to the whole job.
    height = min(pending // SUPER_POD_STAGE, len(job.block_sizes) - 1)
    size = job.block_sizes[height]
    blocks = {_index(judged_pod.rank, size) for judged_pod in judged if judged_pod.type}
    nodes = {
        judged_pod.pod.node for judged_pod in judged if _index(judged_pod.rank, size) in blocks
    }
    # Pods that are not placed have no node, which is not a block.
    return nodes - {""}


def _block(job: SchedulerJob, rank: str) -> int:
    """Return the logical super pod of a rank: ``sp-block`` cards make one (consumers#2.2)."""
    return _index(rank, _pods_of_block(job, scheduling.SUPER_POD_BLOCK))


def _pods_of_block(job: SchedulerJob, key: str) -> int:
    """Return how many pods make a block; without the annotation the whole job is one."""
    cards = go_integer(job.annotations.get(key, ""))
    # The largest request, since pods of one job mostly ask for the same, and some for none.
    per_pod = max((npu_request(pod) for pod in job.pods), default=0)
    if cards is None or cards <= 0 or per_pod == 0:
        return max(len(job.pods), 1)
    return max(cards // per_pod, 1)


def _index(rank: str, size: int) -> int:
    number = go_integer(rank)
    # A pod without a number shares no block with a numbered one.
    return -1 if number is None else number // size


def _select_rack(
    job: SchedulerJob, judged: Sequence[JudgedPod], faulty: Sequence[JudgedPod], pending: int
) -> PodSelection:
    """Return the pods that go by the policy of Ascend 950 racks (consumers#2.6, last paragraph)."""
    rack = _pods_of_block(job, scheduling.RACK_BLOCK)
    racks = {_index(judged_pod.rank, rack) for judged_pod in faulty}
    blocks = {_block(job, judged_pod.rank) for judged_pod in faulty}
    # Rank 0 is the master of the training: without it the others cannot go on.
    for judged_pod in judged:
        if judged_pod.rank == "0" and (
            judged_pod.type is not None
            or (pending >= RACK_STAGE and _index(judged_pod.rank, rack) in racks)
            or (pending >= SUPER_POD_STAGE and _block(job, judged_pod.rank) in blocks)
        ):
            return PodSelection(
                _pods(judged),
                "D10",
                Scope.JOB,
                sentence("rank 0, {pod}, is hit", pod=judged_pod.pod.name),
            )
    same_rack = [
        judged_pod
        for judged_pod in judged
        if judged_pod.type or _index(judged_pod.rank, rack) in racks
    ]
    if job.is_process_recovering:
        if pending < RACK_STAGE:
            return PodSelection(
                _pods(faulty), "D14", Scope.POD, sentence("process recovery keeps the others")
            )
        return PodSelection(
            _pods(same_rack), "D14", Scope.RACK_BLOCK, sentence("the rack blocks at fault go")
        )
    if not job.is_pod_rescheduling:
        return PodSelection(
            _pods(judged), "D15", Scope.JOB, sentence("one pod at fault removes the PodGroup")
        )
    if pending >= JOB_STAGE:
        return PodSelection(
            _pods(judged),
            "D13",
            Scope.JOB,
            sentence("{count} pending sessions are over", count=JOB_STAGE),
        )
    if pending < RACK_STAGE or scheduling.SUPER_POD_BLOCK not in job.annotations:
        return PodSelection(
            _pods(faulty), "D11", Scope.POD, sentence("pod-rescheduling keeps the healthy pods")
        )
    if pending < SUPER_POD_STAGE:
        return PodSelection(
            _pods(same_rack), "D11", Scope.RACK_BLOCK, sentence("the rack blocks at fault go")
        )
    chosen = [
        judged_pod
        for judged_pod in judged
        if judged_pod.type or _block(job, judged_pod.rank) in blocks
    ]
    return PodSelection(
        _pods(chosen), "D12", Scope.SUPER_POD, sentence("the logical super pods at fault go")
    )
