"""Flaws of the jobs of a MindIE Motor service that hold before anything fails (R53, 3.6).

Sources: ``docs/spec/consumers.md#3.1``, 3.2, 3.6, 4.1.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from advisor.checks.written_retries import written_retries
from advisor.controllers.motor_jobs import PodGroupsOfJobs, budget_of, counted_waves
from advisor.controllers.motor_scaling_rule import read_rule
from advisor.options import Profile
from advisor.report import Finding, FindingSeverity
from contract import scheduling
from contract.counted import counted
from contract.errors import DocumentError
from contract.scheduling import go_integer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from advisor.options import AdvisorOptions
    from advisor.snapshot import AscendJob, ClusterSnapshot, StoredConfigMap

_NEAR = 2
"""Edits by which a value of ``app`` differs from a legal one and is taken for it (R53)."""


def service_findings(snapshot: ClusterSnapshot, options: AdvisorOptions) -> tuple[Finding, ...]:
    """Return what is wrong with AscendJobs and their scaling rules, by object and code."""
    if not snapshot.ascend_jobs:
        return ()
    maps = {(one.namespace, one.name): one for one in snapshot.configmaps}
    homes: dict[str, list[str]] = defaultdict(list)
    for one in snapshot.configmaps:
        if scheduling.SCALING_KEY in one.data and one.namespace not in homes[one.name]:
            homes[one.name].append(one.namespace)
    groups = PodGroupsOfJobs(snapshot)
    retries = written_retries(snapshot.configmaps)
    found: list[Finding] = []
    for job in snapshot.ascend_jobs:
        if job.is_over:
            continue
        found += _labels(job)
        found += _rule(job, maps, homes, strict=options.profile is Profile.CORRECTED)
        found += _budget(job, groups, retries)
    return tuple(sorted(found, key=lambda one: (one.object, one.code)))


def _finding(job: AscendJob, severity: FindingSeverity, code: str, text: str) -> Finding:
    return Finding(severity, code, f"AscendJob {job.namespace}/{job.name}", text)


def _labels(job: AscendJob) -> Iterator[Finding]:
    app = job.labels.get(scheduling.APP, "")
    if app not in scheduling.MINDIE_APPS:
        near = [one for one in scheduling.MINDIE_APPS if _distance(app, one) <= _NEAR]
        if near:
            yield _finding(
                job,
                FindingSeverity.WARNING,
                "APP_TYPO",
                f"label app is {app!r}: the job is in no global rank table; write {near[0]}",
            )
        return
    if not job.labels.get(scheduling.JOB_ID):
        yield _finding(
            job,
            FindingSeverity.ERROR,
            "JOB_ID_MISSING",
            f"label {scheduling.JOB_ID} is missing: the job belongs to no service",
        )


def _rule(
    job: AscendJob,
    maps: Mapping[tuple[str, str], StoredConfigMap],
    homes: Mapping[str, list[str]],
    *,
    strict: bool,
) -> Iterator[Finding]:
    name = job.labels.get(scheduling.SCALING_RULE)
    if name is None:
        return
    group = job.labels.get(scheduling.SCALING_GROUP)
    missing = [
        label
        for label in (scheduling.SCALING_GROUP, scheduling.JOB_ID)
        if not job.labels.get(label)
    ]
    if missing:
        yield _finding(
            job,
            FindingSeverity.ERROR,
            "INVALID_SCALING_CONFIG",
            f"label {' and '.join(missing)} is missing: the operator fails the job",
        )
    text = (
        maps[job.namespace, name].data.get(scheduling.SCALING_KEY)
        if ((job.namespace, name) in maps)
        else None
    )
    if text is None:
        elsewhere = sorted(homes.get(name, ()))
        hint = f"; it is in namespace {elsewhere[0]}" if elsewhere else ""
        yield _finding(
            job,
            FindingSeverity.ERROR,
            "RULE_MISSING",
            f"namespace {job.namespace} has no ConfigMap {name} with key "
            f"{scheduling.SCALING_KEY}{hint}: missing pods are not made",
        )
        return
    try:
        rule = read_rule(text, f"ConfigMap {job.namespace}/{name}", strict=strict)
    except DocumentError as error:
        yield _finding(
            job, FindingSeverity.ERROR, "RULE_INVALID", f"{error}: missing pods are not made"
        )
        return
    if group and group not in rule.groups:
        yield _finding(
            job,
            FindingSeverity.ERROR,
            "GROUP_NOT_IN_RULE",
            f"the rule {name} has no group {group}, but {sorted(rule.groups)}",
        )


def _budget(
    job: AscendJob, groups: PodGroupsOfJobs, retries: Mapping[str, int] | None
) -> Iterator[Finding]:
    budget, label = budget_of(job), job.labels.get(scheduling.FAULT_RETRY_TIMES, "")
    wanted = go_integer(label)
    limit = budget.limit
    if job.backoff_limit is not None and limit is not None and (wanted or 0) > limit:
        yield _finding(
            job,
            FindingSeverity.WARNING,
            "RETRY_VS_BACKOFF",
            f"backoffLimit {limit} ends the job after {counted(limit, 'wave')}, those of hardware "
            f"faults too; {scheduling.FAULT_RETRY_TIMES} {label} has no effect beyond it",
        )
    pods = groups.pods(job)
    waves = counted_waves(job, pods)
    if limit is not None and waves is not None and waves >= limit:
        yield _finding(
            job,
            FindingSeverity.WARNING,
            "BACKOFF_EXHAUSTED",
            f"{waves} of {counted(limit, 'wave')} came: the next one fails the job",
        )
    if any(pod.phase == "Failed" for pod in pods):
        group = groups.podgroup(job)
        key = "" if group is None else group.key
        if (wanted or 0) < 1 or (retries is not None and retries.get(key, 0) < 1):
            yield _finding(
                job,
                FindingSeverity.ERROR,
                "FAILED_POD_ENDS_JOB",
                "a pod has failed and no retry is left: the operator fails the job",
            )


def _distance(one: str, other: str) -> int:
    """Return the edits between two words; above ``_NEAR`` it may be any such number."""
    if abs(len(one) - len(other)) > _NEAR:
        return _NEAR + 1
    row = list(range(len(other) + 1))
    for index, letter in enumerate(one, start=1):
        before, row[0] = row[0], index
        for place, against in enumerate(other, start=1):
            before, row[place] = (
                row[place],
                min(row[place] + 1, row[place - 1] + 1, before + (letter != against)),
            )
    return row[-1]
