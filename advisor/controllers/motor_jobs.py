"""AscendJobs as the elastic scaling of MindIE Motor sees them: pods that are there, and waves.

Sources: ``docs/spec/consumers.md#3.3``, 3.5, 3.6 and R52.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from contract import scheduling
from contract.scheduling import go_integer
from contract.sentences import sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from advisor.snapshot import AscendJob, ClusterSnapshot, PodGroup, SchedulerPod


@dataclass(frozen=True)
class WaveBudget:
    """How many waves of restarts the operator allows; ``limit`` of ``None`` means no limit.

    ``problem`` is why it is not known.
    """

    limit: int | None
    problem: str = ""


def budget_of(job: AscendJob) -> WaveBudget:
    """Return ``backoffLimit``, else the label ``fault-retry-times`` (consumers#3.6)."""
    if job.backoff_limit is not None:
        # A limit of 0 or less means no limit to the operator (consumers#3.6).
        return WaveBudget(job.backoff_limit if job.backoff_limit > 0 else None)
    text = job.labels.get(scheduling.FAULT_RETRY_TIMES)
    if text is None:
        return WaveBudget(None)
    number = go_integer(text)
    if number is None:
        return WaveBudget(
            None,
            sentence(
                "label {label} is {value}, no number: the operator gives up on the job",
                label=scheduling.FAULT_RETRY_TIMES,
                value=repr(text[:40]),
            ),
        )
    return WaveBudget(number if number > 0 else None)


def counted_waves(job: AscendJob, pods: Iterable[SchedulerPod]) -> int | None:
    """Return how many waves the operator has counted, ``None`` where nothing shows it.

    It keeps the number in memory and writes it on each pod that it makes (consumers#3.6).
    """
    if job.version_counter is not None:
        return job.version_counter
    numbers = [go_integer(pod.labels.get(scheduling.VERSION_LABEL, "")) for pod in pods]
    # The newest pod has the highest number; older pods keep the one with which they were made.
    return max((number for number in numbers if number is not None), default=None)


@dataclass(frozen=True)
class MotorJob:
    """One AscendJob with a scaling rule.

    ``service`` is its namespace, rule and ``jobID``. ``missing`` is how many pods it lacks,
    ``holds_slot`` whether it has some, ``is_leaving`` whether all of them are being deleted.
    """

    namespace: str
    name: str
    service: tuple[str, str, str]
    group: str
    podgroup: PodGroup | None
    missing: int
    holds_slot: bool
    is_leaving: bool
    budget: WaveBudget
    counted: int | None

    @property
    def sort_key(self) -> tuple[tuple[str, str, str], bool, str, str]:
        """The key by which candidates are sorted (R51): jobs that have pods come first."""
        # ``False`` sorts before ``True``, so jobs with pods come first.
        return self.service, not self.holds_slot, self.group, self.name

    @property
    def is_exhausted(self) -> bool:
        """Whether the wave that took its pods was one too many (R52)."""
        limit = self.budget.limit
        return limit is not None and self.counted is not None and self.counted >= limit


def motor_jobs(snapshot: ClusterSnapshot, leaving: Collection[str]) -> tuple[MotorJob, ...]:
    """Return the AscendJobs with a scaling rule that are not over, by namespace and name.

    ``leaving``: UIDs of pods that are deleted in this session.
    """
    groups = PodGroupsOfJobs(snapshot)
    jobs = []
    for job in sorted(snapshot.ascend_jobs, key=lambda job: (job.namespace, job.name)):
        rule = job.labels.get(scheduling.SCALING_RULE)
        if rule is None or job.is_over:
            continue
        pods = groups.pods(job)
        staying = [pod for pod in pods if pod.uid not in leaving]
        jobs.append(
            MotorJob(
                job.namespace,
                job.name,
                (job.namespace, rule, job.labels.get(scheduling.JOB_ID, "")),
                job.labels.get(scheduling.SCALING_GROUP, ""),
                groups.podgroup(job),
                # More pods than replicas: some are leaving, and none is missing.
                max(0, job.replicas - len(staying)),
                any(pod.is_live for pod in staying),
                bool(pods) and not staying,
                budget_of(job),
                counted_waves(job, pods),
            )
        )
    return tuple(jobs)


class PodGroupsOfJobs:
    """Finds the PodGroup and the pods of an AscendJob."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._by_owner: dict[str, PodGroup] = {}
        self._by_key: dict[str, PodGroup] = {}
        for group in snapshot.podgroups:
            self._by_key[group.key] = group
            if group.owner is not None and group.owner.uid:
                self._by_owner[group.owner.uid] = group
        self._pods: dict[str, list[SchedulerPod]] = defaultdict(list)
        self._grouped: dict[str, list[SchedulerPod]] = defaultdict(list)
        for pod in snapshot.pods:
            if pod.owner is not None and pod.owner.uid:
                self._pods[pod.owner.uid].append(pod)
            # A pod without an owner in the dump is still found by its PodGroup.
            elif pod.group:
                self._grouped[f"{pod.namespace}/{pod.group}"].append(pod)

    def podgroup(self, job: AscendJob) -> PodGroup | None:
        """Return the PodGroup that ``job`` owns, or that has the operator's name for it.

        Source: docs/spec/consumers.md#3.6.
        """
        if job.uid in self._by_owner:
            return self._by_owner[job.uid]
        return self._by_key.get(f"{job.namespace}/{job.name}-{job.uid}")

    def pods(self, job: AscendJob) -> list[SchedulerPod]:
        """Return the pods of ``job``, in any phase."""
        group = self.podgroup(job)
        named = [] if group is None else self._grouped.get(group.key, [])
        return [*self._pods.get(job.uid, ()), *named]
