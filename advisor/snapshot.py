"""What the advisor reads of a cluster at one moment (``docs/spec/consumers.md#7.3``).

Objects keep what decisions need. ``advisor/inputs/kubernetes_objects.py`` makes them from
Kubernetes' JSON.
"""

from __future__ import annotations

import msgspec

from contract import scheduling

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
    task: str = ""
    exit_code: int | None = None


class VcJobTerms(msgspec.Struct, frozen=True, gc=False):
    """What beside labels, policies and sizes decides whether a vcjob can be started again.

    ``containers`` are those of one pod that ask for chips. Source: docs/spec/consumers.md#2.9.
    """

    tasks: int = 1
    containers: int = 1
    is_owned: bool = False
    is_partitioned: bool = False
    min_success: int | None = None
    ttl_seconds: int | None = None


class VcJob(msgspec.Struct, frozen=True, gc=False):
    """A Volcano Job. ``max_retry`` is the stored one, ``None`` where there is none.

    ``template`` is a pod of the task that asks for most chips, ``version`` the resourceVersion.
    Source: docs/spec/consumers.md#2.9.
    """

    namespace: str
    name: str
    uid: str = ""
    labels: Texts = {}
    annotations: Texts = {}
    replicas: int = 0
    min_available: int = 0
    max_retry: int | None = None
    policies: tuple[LifecyclePolicy, ...] = ()
    phase: str = ""
    retry_count: int = 0
    created_at_ms: int = 0
    template: SchedulerPod | None = None
    version: str = ""
    terms: VcJobTerms = VcJobTerms()


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
    depends on them is not known.
    """

    now_ms: int
    first_session: bool = False
    nodes: tuple[SchedulerNode, ...] = ()
    pods: tuple[SchedulerPod, ...] = ()
    podgroups: tuple[PodGroup, ...] = ()
    vcjobs: tuple[VcJob, ...] = ()
    ascend_jobs: tuple[AscendJob, ...] = ()
    replica_sets: tuple[ReplicaSet, ...] = ()
    configmaps: tuple[StoredConfigMap, ...] = ()
    heartbeats: dict[str, LegacyHeartbeat] = {}
    unread: frozenset[str] = frozenset()
