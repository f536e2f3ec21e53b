"""A report narrowed to one job or one node, and what assumptions change in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from advisor.report import AdviceReport, CreateAdvice, ElasticAdvice, Gang
    from advisor.snapshot import ClusterSnapshot

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

    ``job`` is ``<namespace>/<name>``. A Deployment owns those of its ReplicaSets. Pods may name a
    PodGroup that is not in the snapshot. ``None``: nothing there is called so.
    """
    namespace, _, name = job.partition("/")
    owners = {name} | {
        one.name
        for one in snapshot.replica_sets
        if one.namespace == namespace and one.owner is not None and one.owner.name == name
    }
    there = [group for group in snapshot.podgroups if group.namespace == namespace]
    pods = [(pod, pod.group) for pod in snapshot.pods if pod.namespace == namespace]
    groups = {
        group.name
        for group in there
        if group.name == name or (group.owner is not None and group.owner.name in owners)
    }
    groups |= {
        group
        for pod, group in pods
        if group and (group == name or (pod.owner is not None and pod.owner.name in owners))
    }
    advised = {one.name for one in snapshot.ascend_jobs if one.namespace == namespace}
    advised |= {one.name for one in snapshot.vcjobs if one.namespace == namespace}
    if not groups and name not in advised:
        return None
    mine = [pod for pod, group in pods if group in groups]
    names = {name, *groups, *(pod.name for pod in mine)}
    names |= {group.owner.name for group in there if group.name in groups and group.owner}
    return JobScope(
        frozenset(f"{namespace}/{group}" for group in groups),
        frozenset(f"{namespace}/{one}" for one in names),
        frozenset(pod.uid for pod in mine),
        frozenset(pod.node for pod in mine),
    )


def has_node(snapshot: ClusterSnapshot, node: str) -> bool:
    """Whether anything in the snapshot is about ``node``."""
    return any(one.name == node for one in snapshot.nodes) or any(
        pod.node == node for pod in snapshot.pods
    )


def of_job(report: AdviceReport, scope: JobScope) -> AdviceReport:
    """Return what ``report`` has about a job: of its PodGroups, its owner, its pods and nodes."""
    about = scope.subjects | scope.nodes
    return msgspec.structs.replace(
        report,
        node_verdicts=tuple(one for one in report.node_verdicts if one.node in scope.nodes),
        decisions=tuple(one for one in report.decisions if one.job in scope.groups),
        create_advice=_about(report.create_advice, scope.subjects),
        elastic_advice=_about(report.elastic_advice, scope.subjects),
        findings=tuple(one for one in report.findings if one.object.rpartition(" ")[2] in about),
        placement=tuple(one for one in report.placement if one.pods[0].uid in scope.pods),
        gangs=_about(report.gangs, scope.groups),
    )


def _about(records: Iterable[T], subjects: Collection[str]) -> tuple[T, ...]:
    return tuple(one for one in records if f"{one.namespace}/{one.name}" in subjects)


def of_node(report: AdviceReport, snapshot: ClusterSnapshot, node: str) -> AdviceReport:
    """Return what ``report`` has about a node, and of the jobs with pods on it."""
    groups = {f"{pod.namespace}/{pod.group}" for pod in snapshot.pods if pod.node == node}
    return msgspec.structs.replace(
        report,
        node_verdicts=tuple(one for one in report.node_verdicts if one.node == node),
        decisions=tuple(one for one in report.decisions if one.job in groups),
        create_advice=(),
        elastic_advice=(),
        findings=tuple(
            one for one in report.findings if one.object.rpartition(" ")[2] in groups | {node}
        ),
        placement=tuple(
            msgspec.structs.replace(
                one,
                accepts=tuple(name for name in one.accepts if name == node),
                refuses={name: why for name, why in one.refuses.items() if name == node},
            )
            for one in report.placement
        ),
        gangs=(),
    )


def changes(report: AdviceReport, base: AdviceReport) -> dict[str, dict[str, list[Any]]]:
    """Return what ``report`` has and ``base`` has not (``adds``), and the reverse."""
    adds: dict[str, list[Any]] = {}
    takes: dict[str, list[Any]] = {}
    for member in COMPARED:
        new, old = getattr(report, member), getattr(base, member)
        known, left = {_key(one) for one in old}, {_key(one) for one in new}
        adds[member] = [one for one in new if _key(one) not in known]
        takes[member] = [one for one in old if _key(one) not in left]
    return {"adds": adds, "takes_away": takes}


def _key(record: Any) -> bytes:
    """Return a text by which records are compared: they have members that no set takes."""
    return msgspec.json.encode(record, order="deterministic")
