"""A report narrowed to one job or one node, and what assumptions change in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Collection

    from advisor.report import Report
    from advisor.snapshot import Snapshot

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


def groups_of(snapshot: Snapshot, job: str) -> frozenset[str] | None:
    """Return the PodGroups that are ``job``, by name or by owner, as ``<namespace>/<name>``.

    ``job`` is ``<namespace>/<name>``. Pods may name a PodGroup that is not in the snapshot.
    ``None``: nothing there is called so.
    """
    namespace, _, name = job.partition("/")
    found = {
        group.key
        for group in snapshot.podgroups
        if group.namespace == namespace
        and (group.name == name or (group.owner is not None and group.owner.name == name))
    }
    for pod in snapshot.pods:
        owner = pod.owner.name if pod.owner is not None else None
        if pod.namespace == namespace and pod.group and name in (pod.group, owner):
            found.add(f"{namespace}/{pod.group}")
    advised = {one.name for one in snapshot.ascend_jobs if one.namespace == namespace}
    advised |= {one.name for one in snapshot.vcjobs if one.namespace == namespace}
    return frozenset(found) if found or name in advised else None


def has_node(snapshot: Snapshot, node: str) -> bool:
    """Whether anything in the snapshot is about ``node``."""
    return any(one.name == node for one in snapshot.nodes) or any(
        pod.node == node for pod in snapshot.pods
    )


def of_job(report: Report, snapshot: Snapshot, job: str, groups: Collection[str]) -> Report:
    """Return what ``report`` has about a job: of its PodGroups, its owner, its pods and nodes."""
    namespace, _, name = job.partition("/")
    pods = [pod for pod in snapshot.pods if f"{pod.namespace}/{pod.group}" in groups]
    nodes = {pod.node for pod in pods}
    names = {name, *(group.partition("/")[2] for group in groups)}
    names |= {
        group.owner.name for group in snapshot.podgroups if group.key in groups and group.owner
    }
    uids = {pod.uid for pod in pods}
    subjects = {f"{namespace}/{one}" for one in names} | {f"{namespace}/{pod.name}" for pod in pods}
    return msgspec.structs.replace(
        report,
        node_verdicts=tuple(one for one in report.node_verdicts if one.node in nodes),
        decisions=tuple(one for one in report.decisions if one.job in groups),
        create_advice=tuple(
            one for one in report.create_advice if (one.namespace, one.name) in _pairs(subjects)
        ),
        elastic_advice=tuple(
            one for one in report.elastic_advice if (one.namespace, one.name) in _pairs(subjects)
        ),
        findings=tuple(
            one
            for one in report.findings
            if one.object.rpartition(" ")[2] in subjects | {f"{node}" for node in nodes}
        ),
        placement=tuple(one for one in report.placement if any(p.uid in uids for p in one.pods)),
        gangs=tuple(one for one in report.gangs if f"{one.namespace}/{one.name}" in groups),
    )


def _pairs(subjects: Collection[str]) -> set[tuple[str, ...]]:
    return {tuple(one.split("/", 1)) for one in subjects}


def of_node(report: Report, snapshot: Snapshot, node: str) -> Report:
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


def changes(report: Report, base: Report) -> dict[str, dict[str, list[Any]]]:
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
    """Records have members that no set takes."""
    return msgspec.json.encode(record, order="deterministic")
