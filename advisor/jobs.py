"""Jobs as the plugin sees them: PodGroups with their pods (``docs/spec/consumers.md#2.1``)."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from contract import scheduling
from contract.scheduling import go_integer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from advisor.snapshot import PodGroup, ReplicaSet, SchedulerPod, Texts

_MERGED_LABELS = (
    scheduling.FAULT_SCHEDULING,
    scheduling.POD_RESCHEDULING,
    scheduling.FAULT_RETRY_TIMES,
    scheduling.PROCESS_RECOVER,
    scheduling.SUB_HEALTH_STRATEGY,
    scheduling.OME_SERVICE,
    scheduling.APP,
)
"""What decisions read of a job's labels."""
JOINT = "|"


class SchedulerJob:
    """A PodGroup and its pods, in the order of their names."""

    def __init__(
        self, group: PodGroup, pods: tuple[SchedulerPod, ...], replicas: int | None
    ) -> None:
        self.group = group
        self.pods = pods
        self._replicas = replicas

    def is_of(self, group: PodGroup, pods: tuple[SchedulerPod, ...], replicas: int | None) -> bool:
        """Whether it is what these make."""
        return self.group == group and self.pods == pods and self._replicas == replicas

    @property
    def key(self) -> str:
        return self.group.key

    @property
    def uid(self) -> str:
        """The uid of its owner, which distinguishes jobs of one name; empty without an owner.

        As in ``remain-retry-times`` (consumers#1.14): a PodGroup without an owner is known by its
        name alone.
        """
        return self.group.owner.uid if self.group.owner else ""

    @cached_property
    def labels(self) -> Texts:
        """Labels of the PodGroup and all pods; those that differ are joined (consumers#2.1)."""
        labels = {}
        for key in _MERGED_LABELS:
            # Only these labels: merging all labels of all pods would cost most of a session.
            value = merged_label(self.group.labels.get(key), (p.labels.get(key) for p in self.pods))
            if value is not None:
                labels[key] = value
        return labels

    @cached_property
    def annotations(self) -> Texts:
        """Annotations of the PodGroup, and of the first pod those that it lacks (consumers#2.1)."""
        of_group = dict(self.group.annotations)
        if self.pods:
            for key in scheduling.POD_TO_JOB_ANNOTATIONS:
                # The PodGroup's own value counts before the pod's (consumers#2.1).
                if key not in of_group and key in self.pods[0].annotations:
                    of_group[key] = self.pods[0].annotations[key]
        return of_group

    @property
    def fault_scheduling(self) -> str:
        return self.labels.get(scheduling.FAULT_SCHEDULING, "")

    @property
    def is_off(self) -> bool:
        return self.fault_scheduling in ("", scheduling.FAULT_SCHEDULING_OFF)

    @cached_property
    def common_fault_scheduling(self) -> str:
        """What ``fault-scheduling`` should mean where several values are given (R10, R23).

        Any unsupported value is off, and of two supported ones the more careful counts.
        """
        values = {self.group.labels.get(scheduling.FAULT_SCHEDULING)}
        values.update(pod.labels.get(scheduling.FAULT_SCHEDULING) for pod in self.pods)
        values.discard(None)
        # One unsupported value makes the joined text unsupported for the plugin, too (R23).
        off = scheduling.FAULT_SCHEDULING_OFF
        if not values or values - set(scheduling.FAULT_SCHEDULING_VALUES) or off in values:
            return off
        for value in (scheduling.FAULT_SCHEDULING_GRACE, scheduling.FAULT_SCHEDULING_FORCE):
            if value in values:
                return value
        # Only the two external values are left; of both, always the same one.
        return min(value for value in values if value)

    @property
    def is_pod_rescheduling(self) -> bool:
        return self.labels.get(scheduling.POD_RESCHEDULING) == "on"

    @property
    def is_process_recovering(self) -> bool:
        return self.labels.get(scheduling.PROCESS_RECOVER) == "on"

    @property
    def retry_times(self) -> int:
        """``fault-retry-times``; 0 where it is absent or no integer (consumers#2.2)."""
        # As Go's ``strconv.Atoi``: Python's ``int`` also accepts blanks and underscores.
        return go_integer(self.labels.get(scheduling.FAULT_RETRY_TIMES, "")) or 0

    @property
    def strategy(self) -> str:
        """The sub-health strategy; an unknown one is ``ignore`` (consumers#1.11)."""
        value = self.labels.get(scheduling.SUB_HEALTH_STRATEGY, "")
        is_known = value in scheduling.SUB_HEALTH_STRATEGIES
        return value if is_known else scheduling.SUB_HEALTH_IGNORE

    @property
    def is_pod_limited(self) -> bool:
        """Whether only pods at fault are ever deleted (consumers#2.6, rule 1)."""
        return (
            scheduling.OME_SERVICE in self.labels
            or self.labels.get(scheduling.APP) in scheduling.MINDIE_CONTROL_APPS
            or self.annotations.get(scheduling.RECOVER_POLICY_PATH) == scheduling.RECOVER_POLICY_POD
        )

    @cached_property
    def is_npu(self) -> bool:
        """Whether the plugin places it: its ``minResources`` name chips, or an annotation does.

        Source: docs/spec/consumers.md#2.1.
        """
        return scheduling.SCHEDULE_PLUGIN in self.group.annotations or any(
            key.startswith(scheduling.RESOURCE_DOMAIN) for key in self.group.min_resources
        )

    @cached_property
    def npu_tasks(self) -> int:
        """How many of its pods ask for chips."""
        return sum(1 for pod in self.pods if npu_request(pod))

    @property
    def is_distributed(self) -> bool:
        return self.npu_tasks > 1

    @cached_property
    def min_available(self) -> int:
        """How many pods have to be placed together (consumers#2.1)."""
        text = self.annotations.get(scheduling.SCHEDULE_MIN_AVAILABLE)
        if text is None:
            return self.group.min_member if self._replicas is None else self._replicas
        number = go_integer(text)
        # The annotation counts only for a PodGroup with ``minMember`` 1 (consumers#2.1).
        if self.group.min_member == 1 and number is not None:
            return number
        return self.group.min_member

    @property
    def has_bad_min_available(self) -> bool:
        """Whether ``schedule_minAvailable`` is not an integer, which makes the job invalid.

        Source: docs/spec/consumers.md#2.2.
        """
        text = self.annotations.get(scheduling.SCHEDULE_MIN_AVAILABLE)
        return text is not None and go_integer(text) is None

    @property
    def policy(self) -> str:
        return self.annotations.get(scheduling.SCHEDULE_POLICY, "")

    @cached_property
    def is_super_pod(self) -> bool:
        """Whether it is placed by logical super pods (consumers#2.1)."""
        selected = (pod.node_selector.get(scheduling.ACCELERATOR_TYPE) for pod in self.pods)
        has_block = scheduling.SUPER_POD_BLOCK in self.annotations
        return scheduling.is_super_pod_job(self.policy, selected, has_block=has_block)

    @cached_property
    def is_multilevel(self) -> bool:
        """Whether it is placed by a tree of blocks (consumers#2.6)."""
        return self.policy == scheduling.MULTILEVEL_POLICY

    @cached_property
    def block_sizes(self) -> tuple[int, ...]:
        """How many pods with chips a block of each height has: a node, the levels, the job.

        ``huawei.com/affinity-config`` gives the levels, as ``level1=2,level2=4``. Empty where that
        is wrong: the plugin finds no block then.

        Source: docs/spec/consumers.md#2.6.
        """
        text = self.annotations.get(scheduling.AFFINITY_CONFIG, "")
        pairs = [pair.split("=") for pair in text.split(",")]
        parsed = {pair[0]: go_integer(pair[1]) for pair in pairs if len(pair) == 2}
        sizes = [
            1,
            *(parsed.get(f"level{n}") or 0 for n in range(1, len(pairs) + 1)),
            self.npu_tasks,
        ]
        # A level that is missing, given twice or not a number leaves no tree at all.
        if len(parsed) != len(pairs) or min(sizes) < 1:
            return ()
        # Blocks are divided evenly, so each size has to divide the next one.
        divides = all(large % small == 0 for small, large in pairwise(sizes))
        return tuple(sizes) if divides else ()

    @cached_property
    def ranks(self) -> dict[str, str]:
        """The rank of each pod by uid; one that is not given is handed out by name.

        Source: docs/spec/consumers.md#2.1.
        """
        ranks = {pod.uid: known_rank(pod) for pod in self.pods}
        taken = set(ranks.values())
        # As many numbers as pods and taken ranks: that is enough for each pod to get a free one.
        free = (str(n) for n in range(len(self.pods) + len(taken)) if str(n) not in taken)
        return {uid: rank or next(free) for uid, rank in ranks.items()}


def merged_label(own: str | None, others: Iterable[str | None]) -> str | None:
    """Return the values of one label joined; one that is among them already adds nothing.

    Source: docs/spec/consumers.md#2.1.
    """
    joined = own
    for value in others:
        if value is None or value == joined:
            continue
        if joined is None:
            joined = value
        # The plugin compares without regard to case, and keeps the text that came first.
        elif value.casefold() not in joined.casefold().split(JOINT):
            joined = f"{joined}{JOINT}{value}"
    return joined


def known_rank(pod: SchedulerPod) -> str:
    """Return the rank that the pod itself has; empty where it has none (consumers#2.1)."""
    rank = pod.annotations.get(scheduling.RANK_INDEX, "")
    if rank:
        return rank
    # The ordinal in the name of a StatefulSet's pod is its index (Kubernetes API contract).
    if pod.owner is not None and pod.owner.kind == "StatefulSet":
        return pod.name.rpartition("-")[2]
    return pod.task_index


def npu_request(pod: SchedulerPod) -> int:
    """Return how many chips a pod asks for."""
    for resource, value in pod.requests.items():
        if resource.startswith(scheduling.RESOURCE_DOMAIN):
            return value
    return 0


def npu_resource(pod: SchedulerPod) -> str:
    """Return the resource of chips that a pod asks for; empty where it asks for none."""
    for resource, value in pod.requests.items():
        if value and resource.startswith(scheduling.RESOURCE_DOMAIN):
            return resource
    return ""


def used_cards(pod: SchedulerPod) -> tuple[str, ...]:
    """Return the cards of a pod by ``huawei.com/AscendReal``, virtual ones folded.

    Source: docs/spec/consumers.md#2.1.
    """
    text = pod.annotations.get(scheduling.ASCEND_REAL, "")
    return tuple(_physical(name) for name in text.split(",")) if text else ()


def _physical(name: str) -> str:
    """Return the card of a virtual one: ``Ascend910-2c-100-1`` is on ``Ascend910-1``."""
    parts = name.split("-")
    # Card names have two parts; a virtual one has its size and number between them.
    return f"{parts[0]}-{parts[-1]}" if len(parts) > 2 else name


def replicas_of(
    group: PodGroup, members: Sequence[SchedulerPod], sizes: Mapping[tuple[str, str], ReplicaSet]
) -> int | None:
    """Return the size of the ReplicaSet that owns a job; ``None`` where none is known to."""
    # The first pod alone, as pods of one job have one owner.
    for owner in (group.owner, *(pod.owner for pod in members[:1])):
        if owner is not None and owner.kind == "ReplicaSet":
            replica_set = sizes.get((group.namespace, owner.name))
            return replica_set.replicas if replica_set else None
    return None
