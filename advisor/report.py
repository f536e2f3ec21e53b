"""What the advisor reports of one session (``docs/spec/consumers.md#7.4``).

Everything is ordered by namespace and name, so that the same input gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec

from advisor.findings import FindingSeverity as FindingSeverity
from advisor.options import COMPUTED_FOR, Profile
from contract.sentences import english


class Action(StrEnum):
    """What happens to a job."""

    NONE = "NONE"
    FORCE_DELETE = "FORCE_DELETE"
    EVICT = "EVICT"
    ESCALATE = "ESCALATE"
    ANNOTATE = "ANNOTATE"
    PLATFORM_RESTART = "PLATFORM_RESTART"
    WAIT_COMPLETION = "WAIT_COMPLETION"
    RELEASED = "RELEASED"


class Scope(StrEnum):
    """How much of a job is deleted."""

    POD = "pod"
    RACK_BLOCK = "rack-block"
    SUPER_POD = "super-pod"
    BLOCK = "block"
    JOB = "job"


class WorkloadKind(StrEnum):
    """What made a job (R11)."""

    VCJOB = "vcjob"
    ASCENDJOB = "ascendjob"
    OME_DEPLOYMENT = "ome-deployment"
    OME_LWS = "ome-lws"
    AIBRIX = "aibrix"
    MINDIE_SERVER = "mindie-server"
    MINDIE_CONTROL = "mindie-control"
    INFER_OPERATOR = "infer-operator"
    OTHER = "other"


class PodRef(msgspec.Struct, frozen=True, gc=False):
    """A pod, by its names."""

    namespace: str
    name: str
    uid: str


class Deletion(msgspec.Struct, frozen=True, gc=False):
    """A pod that is deleted, and with how many seconds of grace."""

    namespace: str
    name: str
    uid: str
    grace_seconds: int


class FaultPod(msgspec.Struct, frozen=True, gc=False):
    """A pod at fault: the type, and of a card fault its cards with codes and levels.

    Source: docs/spec/consumers.md#2.4.
    """

    namespace: str
    name: str
    uid: str
    type: str
    node: str
    cards: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()


class Retry(msgspec.Struct, frozen=True, gc=False):
    """The remaining retries of a job before and after a decision."""

    before: int
    after: int


class JobDecision(msgspec.Struct, frozen=True, gc=False):
    """What happens to one job, by which row of consumers#2.10, which rules of 7.5, and why.

    ``job`` is ``<namespace>/<PodGroup>``. ``deadline_ms`` is when what is left is deleted by force.
    ``follow_up`` is what recreates the pods and what else goes, or what others than the scheduler
    do where it deletes nothing; ``also_deleted`` are the pods that they delete. ``gap`` is what
    that depends on and is not known. ``replacement`` is whether the pods would fit, made anew as
    they are. ``patch`` is what is written before or instead of a deletion, as key and value: for
    ``ANNOTATE``, and for ``GracefulExit`` (consumers#1.11).
    """

    namespace: str
    job: str
    workload: WorkloadKind
    action: Action
    row: str
    rules: tuple[str, ...]
    why: str
    scope: Scope | None = None
    pods: tuple[Deletion, ...] = ()
    deadline_ms: int | None = None
    fault_pods: tuple[FaultPod, ...] = ()
    retry: Retry | None = None
    follow_up: str = ""
    also_deleted: tuple[PodRef, ...] = ()
    gap: str = ""
    replacement: str = ""
    patch: tuple[str, str] | None = None
    dry_run: bool = True


class Acceptance(StrEnum):
    """Which new pods a node accepts (consumers#1.9)."""

    ALL = "all"
    ONLY_IGNORE_STRATEGY = "only-ignore-strategy"
    NONE = "none"


class NodeVerdict(msgspec.Struct, frozen=True, gc=False):
    """The verdict about one node (consumers#1.8). ``reasons`` are sentences."""

    node: str
    state: str
    accept_new: Acceptance
    switch_sub_health: bool = False
    card_sub_health: bool = False
    unhealthy: tuple[str, ...] = ()
    network_unhealthy: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()

    @property
    def is_calm(self) -> bool:
        """Whether it takes all pods and has no fault."""
        return self.accept_new is Acceptance.ALL and self.state == "Healthy" and not self.reasons


class CreateAdvice(msgspec.Struct, frozen=True, gc=False):
    """Whether the operator makes pods for an AscendJob (R50): ``ALLOW``, ``HOLD`` or ``CRASH``."""

    namespace: str
    name: str
    verdict: str
    reason: str = ""
    dest_index: int | None = None
    current: dict[str, int] = {}
    why: str = ""


class ElasticAdvice(msgspec.Struct, frozen=True, gc=False):
    """The size with which an elastic vcjob continues (R60); ``reason`` where there is none.

    ``cards`` are those of each pod.
    """

    namespace: str
    name: str
    replicas: int | None = None
    cards: int | None = None
    trigger: str = ""
    reason: str = ""
    why: str = ""
    flags: tuple[str, ...] = ()


class Finding(msgspec.Struct, frozen=True, gc=False):
    """Something that the reader should know. ``object`` is ``<Kind> [<namespace>/]<name>``.

    ``section`` is the number of consumers#8 for ``UPSTREAM_DIVERGES``, else 0.
    """

    severity: FindingSeverity
    code: str
    object: str
    text: str
    section: int = 0

    @classmethod
    def error(cls, code: str, called: str, text: str) -> Finding:
        """Return a finding about the object that is ``called`` so: a decision fails for it."""
        return cls(FindingSeverity.ERROR, code, called, text)

    @classmethod
    def warning(cls, code: str, called: str, text: str) -> Finding:
        """Return a finding about the object that is ``called`` so: a case is decided otherwise."""
        return cls(FindingSeverity.WARNING, code, called, text)

    @classmethod
    def divergence(cls, called: str, text: str, section: int) -> Finding:
        """Return a case in which ``corrected`` differs from the real programs (consumers#8)."""
        return cls(FindingSeverity.WARNING, "UPSTREAM_DIVERGES", called, text, section)


class NotKnown(msgspec.Struct, frozen=True, gc=False):
    """Something without which an answer is not known. ``object`` is as in ``Finding``.

    It is empty where all answers depend on it.
    """

    object: str
    text: str


class Placement(msgspec.Struct, frozen=True, gc=False):
    """Where equal pods of one PodGroup can go now.

    ``accepts`` are nodes, ``refuses`` the first reason of every other node: ``<Reason>: <text>``.
    """

    pods: tuple[PodRef, ...]
    accepts: tuple[str, ...]
    refuses: dict[str, str]


class Gang(msgspec.Struct, frozen=True, gc=False):
    """Whether the waiting pods of a PodGroup fit together, and what is short where not.

    ``not_predicted`` is what the scheduler asks for as well and the advisor does not compute.
    """

    namespace: str
    name: str
    fits: bool
    short: str = ""
    not_predicted: str = ""


class AdviceReport(msgspec.Struct, frozen=True, gc=False):
    """All that is reported of one session in one profile.

    ``not_known`` is what no snapshot shows, ``gaps`` what is missing in this one, so that answers
    are not known. ``now_ms`` is 0 where the snapshot has no time. ``node_verdicts`` may be
    ``ChunkedRows``, which ``msgspec`` does not encode.
    """

    profile: Profile
    now_ms: int
    node_verdicts: Sequence[NodeVerdict] = ()
    decisions: tuple[JobDecision, ...] = ()
    create_advice: tuple[CreateAdvice, ...] = ()
    elastic_advice: tuple[ElasticAdvice, ...] = ()
    findings: tuple[Finding, ...] = ()
    placement: tuple[Placement, ...] = ()
    gangs: tuple[Gang, ...] = ()
    not_known: tuple[str, ...] = ()
    gaps: tuple[NotKnown, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether nothing is missing that an answer depends on."""
        return not self.gaps

    @property
    def is_calm(self) -> bool:
        """Whether it is known that no pod is deleted, by whomever."""
        return self.is_known and not any(
            decision.pods or decision.also_deleted for decision in self.decisions
        )

    @property
    def deletions(self) -> tuple[Deletion, ...]:
        """The pods that the scheduler deletes in this session, by namespace and name."""
        pods = [pod for decision in self.decisions for pod in decision.pods]
        return tuple(sorted(pods, key=lambda pod: (pod.namespace, pod.name, pod.uid)))


def flat(report: AdviceReport) -> dict[str, Any]:
    """Return the report as plain values for JSON: deletions, and placement pod by pod, too.

    ``known`` is false where ``reasons`` names something that an answer depends on.
    """
    members: dict[str, Any] = msgspec.to_builtins(
        msgspec.structs.replace(
            report, node_verdicts=tuple(report.node_verdicts), placement=(), gangs=(), gaps=()
        ),
        enc_hook=english,
    )
    del members["gaps"]
    if not report.now_ms:
        members["now_ms"] = None
    reasons = [gap.text for gap in report.gaps]
    members["known"], members["reasons"] = report.is_known, reasons
    members["not_known"] = [*reasons, *report.not_known]
    members["computed_for"] = msgspec.to_builtins(COMPUTED_FOR)
    members["deletions"] = msgspec.to_builtins(report.deletions)
    members["placement"] = [
        {
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
            "accepts": list(group.accepts),
            "refuses": group.refuses,
        }
        for pod, group in sorted(
            ((pod, group) for group in report.placement for pod in group.pods),
            key=lambda item: (item[0].namespace, item[0].name, item[0].uid),
        )
    ]
    members["gangs"] = msgspec.to_builtins(report.gangs, enc_hook=english)
    return members
