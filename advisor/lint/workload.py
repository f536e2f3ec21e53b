"""The few values of an object that decide what happens to it at a fault.

All objects of a call are judged together, so all of them are in memory at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from advisor.lint.finding import FindingPlace, LintFinding, PlacedText
    from advisor.lint.reach import UnreadKey


Texts = dict[str, "PlacedText"]
VOLCANO = "volcano"
"""The scheduler whose decisions are judged."""


class WorkloadForm(Enum):
    """What a workload is; it decides which pods share a PodGroup and what makes them again.

    Source: docs/spec/consumers.md#2.9.
    """

    VCJOB = auto()
    ASCENDJOB = auto()
    DEPLOYMENT = auto()
    LWS = auto()
    STORM = auto()
    OME = auto()
    POD_GROUP = auto()
    STATEFUL_SET = auto()
    BATCH_JOB = auto()
    POD = auto()


@dataclass(slots=True)
class Role:
    """Pods of one template. ``pods``: how many of them are in one PodGroup; ``None``: unknown."""

    name: str
    file: str
    line: int
    labels: Texts = field(default_factory=dict)
    annotations: Texts = field(default_factory=dict)
    labels_line: int = 0
    annotations_line: int = 0
    spec_line: int = 0
    selector: Texts = field(default_factory=dict)
    scheduler: PlacedText | None = None
    restart: PlacedText | None = None
    termination: PlacedText | None = None
    pre_stop: PlacedText | None = None
    cards: dict[str, int | None] = field(default_factory=dict)
    """Chips of one pod by resource; ``None``: no number."""
    cards_line: int = 0
    visible: PlacedText | None = None
    """The annotation that ASCEND_VISIBLE_DEVICES is read from."""
    visible_variable: PlacedText | None = None
    """ASCEND_VISIBLE_DEVICES, whatever it is read from."""
    pods: int | None = None
    has_spec: bool = True
    """Whether its pod specification is known as a whole."""

    def count(self) -> int:
        """Return the chips of one pod."""
        return sum(count or 0 for count in self.cards.values())

    def asks_for_chips(self) -> bool:
        """Return whether a pod asks for chips of Ascend; an amount that is not a number does."""
        return any(count != 0 for count in self.cards.values())

    def asks_volcano_for_chips(self) -> bool:
        """Return whether a pod asks for chips, and Volcano schedules it."""
        return (
            self.asks_for_chips() and self.scheduler is not None and self.scheduler.value == VOLCANO
        )


class Controller(NamedTuple):
    """The object that made another one, as ``ownerReferences`` name it."""

    kind: str
    name: str


@dataclass(slots=True)
class WorkloadGroup:
    """The pods of one PodGroup. ``members``: its minMember, where it is not made by default."""

    roles: tuple[Role, ...]
    labels: Texts = field(default_factory=dict)
    annotations: Texts = field(default_factory=dict)
    members: int | None = None
    is_shared: bool = False
    """Whether pods of several instances are in it, each of which could work alone."""
    most_pods: int | None = None
    """The pods that it can grow to, of a workload that scales itself; ``None``: unknown."""

    def asks_volcano_for_chips(self) -> bool:
        """Return whether pods ask for chips of Ascend and Volcano schedules them.

        Rules about faults and about the scheduler hold for such pods only.
        """
        return any(role.asks_volcano_for_chips() for role in self.roles)

    def label(self, key: str) -> PlacedText | None:
        """Return the first value of a label that one of its sources has."""
        text = self.labels.get(key)
        if text is None:
            for role in self.roles:
                text = role.labels.get(key)
                if text is not None:
                    break
        return text

    def label_sources(self) -> tuple[Texts, ...]:
        """Return everything that Volcano merges into the labels of the job (consumers#2.1)."""
        return (self.labels, *(role.labels for role in self.roles))

    def annotation(self, key: str) -> PlacedText | None:
        """Return the first value of an annotation that the PodGroup or a pod has."""
        text = self.annotations.get(key)
        if text is None:
            for role in self.roles:
                text = role.annotations.get(key)
                if text is not None:
                    break
        return text

    def pods(self) -> int | None:
        """Return how many pods it has."""
        counts = [role.pods for role in self.roles]
        return None if None in counts else sum(count or 0 for count in counts)


@dataclass(slots=True)
class Elastic:
    """What a vcjob has for elastic training (consumers#5.3)."""

    spec_line: int
    max_retry: PlacedText | None
    evicted: PlacedText | None
    """The action of its policy for evicted pods."""
    policies_line: int
    replicas: int | None
    vnpu: PlacedText | None
    generated_claim: PlacedText | None
    owner: PlacedText | None
    """The kind of the first object that owns it."""
    min_success: PlacedText | None
    lifetime: PlacedText | None
    """``ttlSecondsAfterFinished``."""
    partition: PlacedText | None
    """The task that has a ``partitionPolicy``."""
    second_container: PlacedText | None
    """The second container of one pod that asks for chips."""
    nfs: PlacedText | None
    """The server of the first NFS volume."""
    sizes: tuple[PlacedText, PlacedText] | None = None


@dataclass(slots=True)
class Workload:
    """One object that makes pods, or the PodGroup of some."""

    form: WorkloadForm
    place: FindingPlace
    name: str
    namespace: str
    groups: tuple[WorkloadGroup, ...]
    labels: Texts = field(default_factory=dict)
    annotations: Texts = field(default_factory=dict)
    labels_line: int = 0
    annotations_line: int = 0
    scheduler_line: int = 0
    """The line for a scheduler of all its pods; 0 where the kind has none."""
    backoff: PlacedText | None = None
    elastic: Elastic | None = None
    is_rendered: bool = False
    """Whether the deploy tool makes it, so that what is missing cannot be written."""
    is_partial: bool = False
    """Whether labels and more may stand in an object that is not given."""
    controller: Controller | None = None
    unread: tuple[UnreadKey, ...] = ()
    """Labels and annotations that reach nothing from where they stand."""
    after_failure: PlacedText | None = None
    """What its controller does about a failed pod, where that is written."""
    filled_by: str = ""
    """Which program may write the scheduler that is missing; empty where none does."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Its kind, namespace and name."""
        return (self.place.object.partition(" ")[0], self.namespace, self.name)

    def roles(self) -> tuple[Role, ...]:
        """Return the roles of all its groups."""
        return tuple(role for group in self.groups for role in group.roles)


@dataclass(slots=True)
class Component:
    """The engine or decoder of an InferenceService or of a runtime (consumers#6.2)."""

    pod: Role
    leader: Role | None
    worker: Role | None
    replicas: int | None
    most_replicas: int | None = None
    """``maxReplicas``."""


@dataclass(slots=True)
class Service:
    """An InferenceService, or a runtime, before both are put together."""

    place: FindingPlace
    name: str
    namespace: str
    labels: Texts
    annotations: Texts
    components: dict[str, Component]
    runtime: PlacedText | None = None
    spec_line: int = 0
    is_runtime: bool = False
    is_rendered: bool = False
    unread: tuple[UnreadKey, ...] = ()
    mode: PlacedText | None = None
    """``ome.io/deploymentMode``."""


class RuleGroup(NamedTuple):
    """``server_num_per_group`` of a group in its first entry; ``None`` if not a number."""

    servers: int | None
    line: int


@dataclass(slots=True)
class WorkloadScalingRule:
    """A scaling rule of MindIE Motor; ``groups`` are those of all its entries, by name."""

    place: FindingPlace
    name: str
    namespace: str
    name_line: int
    namespace_line: int
    groups: dict[str, RuleGroup] | None
    """``None``: the rule cannot be read."""
    is_bare: bool = False
    """Whether it is the text alone, outside a ConfigMap."""


@dataclass(slots=True)
class ElasticDaemon:
    """What is known of ``vigil elastic`` itself.

    ``is_cluster``: all Deployments of a cluster are known. ``arguments`` are those of its
    Deployment, ``None`` without one, ``roles`` the ClusterRoles that are known by name.
    """

    is_cluster: bool = False
    arguments: frozenset[str] | None = None
    roles: set[str] = field(default_factory=set)


class AscendOperator(NamedTuple):
    """A Deployment of Ascend Operator; ``gang`` is ``--enableGangScheduling``, empty without it."""

    place: FindingPlace
    gang: str


class MadeObject(NamedTuple):
    """An object that a controller made of another one, with the findings about it alone."""

    workload: Workload
    controller: Controller
    findings: tuple[LintFinding, ...]


@dataclass(slots=True)
class Collected:
    """Everything of one call that is judged."""

    workloads: list[Workload] = field(default_factory=list)
    services: list[Service] = field(default_factory=list)
    rules: list[WorkloadScalingRule] = field(default_factory=list)
    grace_over_time: int | None = None
    elastic: ElasticDaemon = field(default_factory=ElasticDaemon)
    operators: list[AscendOperator] = field(default_factory=list)
    not_judged: dict[str, int] = field(default_factory=dict)
    made: list[MadeObject] = field(default_factory=list)
    rank_tables: dict[tuple[str, str], tuple[UnreadKey, ...]] = field(default_factory=dict)
    """Labels at ConfigMaps for rank tables, by namespace and name of their jobs."""
