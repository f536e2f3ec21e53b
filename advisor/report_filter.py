"""A report narrowed to one job or one node, and what assumptions change in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from contract import scheduling
from contract.sentences import english

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from advisor.report import AdviceReport, CreateAdvice, ElasticAdvice, Gang, NotKnown
    from advisor.snapshot import (
        AscendJob,
        ClusterSnapshot,
        ReplicaSet,
        SchedulerPod,
        VcJob,
        WorkloadObject,
    )

T = TypeVar("T", "CreateAdvice", "ElasticAdvice", "Gang")

COMPARED = (
    "node_verdicts",
    "decisions",
    "create_advice",
    "elastic_advice",
    "findings",
    "deletions",
    "placement",
    "gangs",
)
"""The members of a report that assumptions may change, in the order in which they are shown."""


@dataclass(frozen=True)
class JobScope:
    """What belongs to a job: its PodGroups, what is called by its names, its pods and nodes.

    ``groups`` and ``subjects`` are ``<namespace>/<name>``, ``pods`` are uids.
    """

    groups: frozenset[str]
    subjects: frozenset[str]
    pods: frozenset[str]
    nodes: frozenset[str]


def scope_of(snapshot: ClusterSnapshot, job: str) -> JobScope | None:
    """Return what belongs to the PodGroups that are ``job``, by name or by owner.

    ``job`` is ``<namespace>/<name>``. What owns by way of others counts, as a Deployment, a
    StormService, an InferenceService or a LeaderWorkerSet does. Pods may name a PodGroup that is
    not in the snapshot, or none. ``None``: nothing there is called so.
    """
    namespace, _, name = job.partition("/")
    owners = _owned_by(snapshot, namespace, name)
    there = [group for group in snapshot.podgroups if group.namespace == namespace]
    pods = [(pod, pod.group) for pod in snapshot.pods if pod.namespace == namespace]
    own = [pod for pod, group in pods if group == name or _is_made_by(pod, owners)]
    groups = {
        group.name
        for group in there
        if group.name == name or (group.owner is not None and group.owner.name in owners)
    }
    groups |= {pod.group for pod in own if pod.group}
    objects: tuple[AscendJob | VcJob | ReplicaSet | WorkloadObject, ...] = (
        *snapshot.ascend_jobs,
        *snapshot.vcjobs,
        *snapshot.replica_sets,
        *snapshot.workloads,
    )
    advised = {kind.name for kind in objects if kind.namespace == namespace}
    if not groups and not own and name not in advised:
        return None
    lone = [pod for pod in own if not pod.group]
    mine = [*(pod for pod, group in pods if group in groups), *lone]
    names = {name, *groups, *(pod.name for pod in mine)}
    names |= {group.owner.name for group in there if group.name in groups and group.owner}
    return JobScope(
        frozenset(f"{namespace}/{pod_name}" for pod_name in (*groups, *(pod.name for pod in lone))),
        frozenset(f"{namespace}/{pod_name}" for pod_name in names),
        frozenset(pod.uid for pod in mine),
        frozenset(pod.node for pod in mine),
    )


_OWNING_LABELS = (scheduling.STORM_SERVICE, scheduling.OME_SERVICE, scheduling.LWS_NAME)
"""Labels of a pod with the name of what made it by way of others."""


def _owned_by(snapshot: ClusterSnapshot, namespace: str, name: str) -> set[str]:
    """Return the names of ``name`` and of all that it owns, whatever their kinds are."""
    controllers: tuple[ReplicaSet | WorkloadObject, ...] = (
        *snapshot.replica_sets,
        *snapshot.workloads,
    )
    links = [
        (workload.owner.name, workload.name)
        for workload in controllers
        if workload.namespace == namespace and workload.owner is not None
    ]
    owners, size = {name}, 0
    # Owners are owned as well: a StormService makes RoleSets, and these make PodSets.
    while len(owners) > size:
        size = len(owners)
        owners.update(owned for owner, owned in links if owner in owners)
    return owners


def _is_made_by(pod: SchedulerPod, owners: Collection[str]) -> bool:
    if any(pod.labels.get(label) in owners for label in _OWNING_LABELS):
        return True
    if pod.owner is None:
        return False
    # A ReplicaSet that is not in the snapshot has the name of its Deployment and this hash.
    template = pod.labels.get(scheduling.POD_TEMPLATE_HASH, "")
    is_replica = pod.owner.kind == "ReplicaSet" and bool(template)
    deployment = pod.owner.name.removesuffix(f"-{template}") if is_replica else ""
    return pod.owner.name in owners or deployment in owners


def has_node(snapshot: ClusterSnapshot, node: str) -> bool:
    """Whether anything in the snapshot is about ``node``."""
    return any(scheduler_node.name == node for scheduler_node in snapshot.nodes) or any(
        pod.node == node for pod in snapshot.pods
    )


def of_job(report: AdviceReport, scope: JobScope) -> AdviceReport:
    """Return what ``report`` has about a job: of its PodGroups, its owner, its pods and nodes."""
    about = scope.subjects | scope.nodes
    return msgspec.structs.replace(
        report,
        node_verdicts=tuple(
            node_verdict
            for node_verdict in report.node_verdicts
            if node_verdict.node in scope.nodes
        ),
        decisions=tuple(decision for decision in report.decisions if decision.job in scope.groups),
        create_advice=_about(report.create_advice, scope.subjects),
        elastic_advice=_about(report.elastic_advice, scope.subjects),
        findings=tuple(
            finding for finding in report.findings if finding.object.rpartition(" ")[2] in about
        ),
        placement=tuple(
            placement for placement in report.placement if placement.pods[0].uid in scope.pods
        ),
        gangs=_about(report.gangs, scope.groups),
        gaps=_gaps_about(report.gaps, about),
    )


def _about(records: Iterable[T], subjects: Collection[str]) -> tuple[T, ...]:
    return tuple(record for record in records if f"{record.namespace}/{record.name}" in subjects)


def _gaps_about(gaps: Iterable[NotKnown], about: Collection[str]) -> tuple[NotKnown, ...]:
    return tuple(gap for gap in gaps if not gap.object or gap.object.rpartition(" ")[2] in about)


def of_node(report: AdviceReport, snapshot: ClusterSnapshot, node: str) -> AdviceReport:
    """Return what ``report`` has about a node, and of the jobs with pods on it."""
    groups = {f"{pod.namespace}/{pod.group}" for pod in snapshot.pods if pod.node == node}
    return msgspec.structs.replace(
        report,
        node_verdicts=tuple(
            node_verdict for node_verdict in report.node_verdicts if node_verdict.node == node
        ),
        decisions=tuple(decision for decision in report.decisions if decision.job in groups),
        create_advice=(),
        elastic_advice=(),
        findings=tuple(
            finding
            for finding in report.findings
            if finding.object.rpartition(" ")[2] in groups | {node}
        ),
        placement=tuple(
            msgspec.structs.replace(
                placement,
                accepts=tuple(name for name in placement.accepts if name == node),
                refuses={
                    name: reason for name, reason in placement.refuses.items() if name == node
                },
            )
            for placement in report.placement
        ),
        gangs=(),
        gaps=_gaps_about(report.gaps, groups | {node}),
    )


def changes(report: AdviceReport, base: AdviceReport) -> dict[str, dict[str, list[Any]]]:
    """Return what ``report`` has and ``base`` has not (``adds``), and the reverse."""
    adds: dict[str, list[Any]] = {}
    takes: dict[str, list[Any]] = {}
    for member in COMPARED:
        new, old = getattr(report, member), getattr(base, member)
        before, after = {_key(value) for value in old}, {_key(value) for value in new}
        adds[member] = [value for value in new if _key(value) not in before]
        takes[member] = [value for value in old if _key(value) not in after]
    return {"adds": adds, "takes_away": takes}


def _key(record: Any) -> bytes:
    """Return a text by which records are compared: they have members that no set takes."""
    return msgspec.json.encode(record, order="deterministic", enc_hook=english)
