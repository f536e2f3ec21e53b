"""A cluster at one moment, as far as the advisor needs it (``docs/spec/consumers.md#7.3``).

Objects keep what decisions need. ``advisor/inputs/kubernetes_objects.py`` makes them from
Kubernetes' JSON.
"""

from __future__ import annotations

from itertools import dropwhile, pairwise, takewhile
from typing import TYPE_CHECKING

import msgspec

from contract import scheduling
from contract.documents.elastic_job import ENDED, FINISHED, STARTED, Size
from contract.scheduling import go_integer

if TYPE_CHECKING:
    from collections.abc import Collection

_ENDING = ("Aborting", "Terminating", "Completing", "Restarting")
"""Phases in which the controller ends the pods of a vcjob."""
Texts = dict[str, str]
Amounts = dict[str, int]
"""By resource. CPU in thousandths of a core, everything else in whole units."""


class Taint(msgspec.Struct, frozen=True, gc=False):
    """A taint of a node."""

    key: str
    value: str = ""
    effect: str = ""


class Toleration(msgspec.Struct, frozen=True, gc=False):
    """A toleration of a pod; an empty ``key``, ``effect`` or ``operator`` is an absent one."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class Requirement(msgspec.Struct, frozen=True, gc=False):
    """One expression of a required node affinity."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class SelectorTerm(msgspec.Struct, frozen=True, gc=False):
    """One term of a required node affinity: a node matches it by labels and by fields."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


class ApartTerm(msgspec.Struct, frozen=True, gc=False):
    """A term of a required pod anti-affinity.

    ``labels`` select the pods to stay away from, ``None`` selects none. ``namespaces`` are theirs,
    ``None`` those of all.
    """

    topology: str
    labels: tuple[Requirement, ...] | None = None
    namespaces: tuple[str, ...] | None = ()


class ControllingOwner(msgspec.Struct, frozen=True, gc=False):
    """The controlling owner of an object; ``uid`` is empty where the object does not have it."""

    kind: str
    name: str
    uid: str = ""


class SchedulerNode(msgspec.Struct, frozen=True, gc=False):
    """A Node object. ``is_cordoned`` is ``spec.unschedulable``."""

    name: str
    is_ready: bool = True
    labels: Texts = {}
    annotations: Texts = {}
    capacity: Amounts = {}
    allocatable: Amounts = {}
    taints: tuple[Taint, ...] = ()
    is_cordoned: bool = False
    uid: str = ""


class Container(msgspec.Struct, frozen=True, gc=False):
    """The status of a container: exit codes of its state and of its last state, where it ended."""

    name: str
    exit_code: int | None = None
    last_exit_code: int | None = None
    restarts: int = 0


class SchedulerPod(msgspec.Struct, frozen=True, gc=False):
    """A pod in any phase.

    ``node`` is empty until it is bound. ``requests`` are those that the scheduler counts.
    ``is_terminating`` is true once it has a deletion timestamp. ``task_index`` is the environment
    variable ``VC_TASK_INDEX``, empty where there is none.
    """

    namespace: str
    name: str
    uid: str
    node: str = ""
    phase: str = "Pending"
    labels: Texts = {}
    annotations: Texts = {}
    owner: ControllingOwner | None = None
    created_at_ms: int = 0
    is_terminating: bool = False
    deletion_grace_seconds: int | None = None
    restart_policy: str = "Always"
    termination_grace_seconds: int = 30
    requests: Amounts = {}
    node_selector: Texts = {}
    node_affinity: tuple[SelectorTerm, ...] | None = None
    anti_affinity: tuple[ApartTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    scheduler_name: str = ""
    task_index: str = ""
    containers: tuple[Container, ...] = ()

    @property
    def group(self) -> str:
        """The name of its PodGroup; empty where it has none (consumers#2.1)."""
        return self.annotations.get(scheduling.GROUP_ANNOTATION, "")

    @property
    def is_live(self) -> bool:
        """Whether it is neither done nor failed."""
        return self.phase not in ("Succeeded", "Failed")


class PodGroup(msgspec.Struct, frozen=True, gc=False):
    """A PodGroup of Volcano: one job. ``min_resources`` is the quantity's text by resource."""

    namespace: str
    name: str
    uid: str = ""
    phase: str = ""
    min_member: int = 0
    min_resources: Texts = {}
    labels: Texts = {}
    annotations: Texts = {}
    owner: ControllingOwner | None = None
    created_at_ms: int = 0

    @property
    def key(self) -> str:
        """``<namespace>/<name>``, as Volcano names the job."""
        return f"{self.namespace}/{self.name}"


class LifecyclePolicy(msgspec.Struct, frozen=True, gc=False):
    """A policy of a vcjob: what its controller does after one of the events."""

    events: tuple[str, ...]
    action: str


class VcJobTask(msgspec.Struct, frozen=True, gc=False):
    """A task of a vcjob. ``resource`` is that of its chips, empty where it asks for none.

    ``places`` are the containers, by index, and the fields of their resources that name chips.
    """

    name: str = ""
    replicas: int = 1
    min_available: int | None = None
    resource: str = ""
    cards: int = 0
    places: tuple[tuple[int, str], ...] = ()
    is_partitioned: bool = False
    policies: tuple[LifecyclePolicy, ...] = ()


class VcJobCondition(msgspec.Struct, frozen=True, gc=False):
    """A phase that a vcjob had, and from when on (Unix milliseconds)."""

    phase: str
    at_ms: int


class VcJob(msgspec.Struct, frozen=True, gc=False):
    """A Volcano Job. ``max_retry`` is the stored one, ``None`` where there is none.

    ``policies`` are those of the job itself. ``template`` is a pod of the task that asks for most
    chips, ``version`` the resourceVersion. ``writer`` is the last program but ours that wrote the
    tasks. ``queue`` is empty for the default one. Source: docs/spec/consumers.md#2.9.
    """

    namespace: str
    name: str
    uid: str = ""
    labels: Texts = {}
    annotations: Texts = {}
    tasks: tuple[VcJobTask, ...] = ()
    min_available: int = 0
    max_retry: int | None = None
    min_success: int | None = None
    ttl_seconds: int | None = None
    policies: tuple[LifecyclePolicy, ...] = ()
    phase: str = ""
    message: str = ""
    conditions: tuple[VcJobCondition, ...] = ()
    retry_count: int = 0
    created_at_ms: int = 0
    is_deleted: bool = False
    has_owner: bool = False
    template: SchedulerPod | None = None
    version: str = ""
    writer: str = ""
    queue: str = ""

    @property
    def key(self) -> str:
        """``<namespace>/<name>``."""
        return f"{self.namespace}/{self.name}"

    @property
    def group(self) -> str:
        """The job as the scheduler names it: ``<namespace>/<name>-<uid>`` (consumers#2.9)."""
        return f"{self.key}-{self.uid}"

    @property
    def number(self) -> int:
        """Its resourceVersion as a number: versions of one API server are compared."""
        return go_integer(self.version) or 0

    @property
    def replicas(self) -> int:
        """The number of pods of all its tasks."""
        return sum(task.replicas for task in self.tasks)

    @property
    def size(self) -> Size | None:
        """Its size now; ``None`` where it has not exactly one task."""
        if len(self.tasks) != 1:
            return None
        task = self.tasks[0]
        return Size(task.replicas, task.cards, self.min_available, task.min_available)

    @property
    def is_ended(self) -> bool:
        """Whether it has ended so that it can be started again."""
        return self.phase in ENDED

    @property
    def is_ending(self) -> bool:
        """Whether the controller ends its pods."""
        return self.phase in _ENDING

    @property
    def started(self) -> int:
        """The number of its last start by ``vigil elastic``; 0 for none."""
        number = self.message.removeprefix(STARTED).partition(":")[0]
        is_ours = self.message.startswith(STARTED) and number.isascii() and number.isdigit()
        return int(number) if is_ours else 0

    @property
    def ended_at_ms(self) -> int:
        """When it reached the phase in which it has ended; 0 while it has not."""
        return self._since_ms(FINISHED) if self.phase in FINISHED else 0

    @property
    def phase_since_ms(self) -> int:
        """When it reached its phase; 0 without a condition of that phase."""
        return self._since_ms((self.phase,))

    @property
    def ending_since_ms(self) -> int:
        """When it left the phase in which its pods run; 0 while it has not, or not known."""
        phases = (*_ENDING, *FINISHED)
        return self._since_ms(phases) if self.phase in phases else 0

    def _since_ms(self, phases: Collection[str]) -> int:
        """Return the time of the first of the last conditions that have one of ``phases``.

        The controller adds a condition whenever a number of its status changes.
        """
        latest = takewhile(lambda condition: condition.phase in phases, reversed(self.conditions))
        return min((condition.at_ms for condition in latest), default=0)

    @property
    def resumed_ms(self) -> int:
        """When a Command of its owner last started it again; 0 where none did.

        A start by ``vigil elastic`` does not pass through ``Restarting``.
        """
        return max(
            (
                condition.at_ms
                for before, condition in pairwise(self.conditions)
                if (before.phase, condition.phase) == ("Restarting", "Pending")
            ),
            default=0,
        )

    @property
    def has_run(self) -> bool:
        """Whether it has run since the end before this one."""
        before = dropwhile(lambda condition: condition.phase in FINISHED, reversed(self.conditions))
        latest = takewhile(lambda condition: condition.phase not in FINISHED, before)
        return any(condition.phase == "Running" for condition in latest)

    @property
    def last_active_ms(self) -> int:
        """When it last had a phase in which pods are made; 0 where no condition has one."""
        return max(
            (condition.at_ms for condition in self.conditions if condition.phase not in FINISHED),
            default=0,
        )


class AscendJob(msgspec.Struct, frozen=True, gc=False):
    """A job of the Ascend Operator. ``backoff_limit`` is ``None`` where it is not set.

    ``replicas`` is the number of pods of all its replica types, ``is_over`` whether it has
    succeeded or failed, ``version_counter`` how many waves the operator has counted, ``None``
    where that is not known.

    Source: docs/spec/consumers.md#3.6.
    """

    namespace: str
    name: str
    uid: str = ""
    labels: Texts = {}
    annotations: Texts = {}
    replicas: int = 0
    backoff_limit: int | None = None
    version_counter: int | None = None
    is_over: bool = False
    created_at_ms: int = 0


class ReplicaSet(msgspec.Struct, frozen=True, gc=False):
    """A ReplicaSet, for its size (consumers#2.1)."""

    namespace: str
    name: str
    uid: str = ""
    replicas: int = 1
    labels: Texts = {}
    annotations: Texts = {}
    owner: ControllingOwner | None = None


class WorkloadObject(msgspec.Struct, frozen=True, gc=False):
    """An object whose controller makes pods, and of which no decision of Volcano reads more.

    ``replicas`` is ``None`` where the kind has no such number. ``policy`` is the ``restartPolicy``
    of a LeaderWorkerSet and the ``recoveryPolicy`` of a PodSet, empty for other kinds. ``size`` is
    how many pods a group of a LeaderWorkerSet has.
    """

    kind: str
    namespace: str
    name: str
    uid: str = ""
    replicas: int | None = None
    policy: str = ""
    size: int = 1
    owner: ControllingOwner | None = None

    @property
    def called(self) -> str:
        """``<Kind> <namespace>/<name>``."""
        return f"{self.kind} {self.namespace}/{self.name}"


class StoredConfigMap(msgspec.Struct, frozen=True, gc=False):
    """A ConfigMap as it is stored. ``resource_version`` is empty where it is not known."""

    namespace: str
    name: str
    data: Texts = {}
    labels: Texts = {}
    annotations: Texts = {}
    uid: str = ""
    resource_version: str = ""


class LegacyHeartbeat(msgspec.Struct, frozen=True, gc=False):
    """A heartbeat of the old form: its value, when that changed last, and its interval.

    Source: docs/spec/consumers.md#5.2.
    """

    value: str
    changed_at_ms: int
    interval_seconds: int = 0


class ClusterSnapshot(msgspec.Struct, frozen=True, gc=False):
    """A cluster at one session of the scheduler.

    ``first_session`` is true for the first session of a life of the scheduler. ``configmaps``
    are in the order of their writes; of one that was written several times since the session
    before, each version may be there, the last one counts as the present one. One that is not
    there was deleted before the others were written. ``unread`` names the kinds that could not be
    read (``podgroups``, ``vcjobs``, ``ascendjobs``, ``replicasets``, ``scalingrules``): what
    depends on them is not known. ``may_lack`` is whether objects may be in the cluster that are not
    here: a List has the kinds that its ``kubectl get`` names.
    """

    now_ms: int
    first_session: bool = False
    nodes: tuple[SchedulerNode, ...] = ()
    pods: tuple[SchedulerPod, ...] = ()
    podgroups: tuple[PodGroup, ...] = ()
    vcjobs: tuple[VcJob, ...] = ()
    ascend_jobs: tuple[AscendJob, ...] = ()
    replica_sets: tuple[ReplicaSet, ...] = ()
    workloads: tuple[WorkloadObject, ...] = ()
    configmaps: tuple[StoredConfigMap, ...] = ()
    heartbeats: dict[str, LegacyHeartbeat] = {}
    unread: frozenset[str] = frozenset()
    may_lack: bool = False
