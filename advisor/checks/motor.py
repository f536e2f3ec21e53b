"""Flaws of the jobs of a MindIE Motor service that hold before anything fails (R53, 3.6).

Sources: ``docs/spec/consumers.md#3.1``, 3.2, 3.6, 4.1.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from advisor.controllers.motor_jobs import PodGroupsOfJobs, budget_of, counted_waves
from advisor.controllers.motor_scaling_rule import rule_of
from advisor.inputs.scheduler_options import written_retries
from advisor.options import Profile
from advisor.report import Finding
from advisor.similar_words import distance
from contract import scheduling
from contract.scheduling import go_integer
from contract.sentences import counted, joined, sentence

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
    maps = {
        (config_map.namespace, config_map.name): config_map for config_map in snapshot.configmaps
    }
    homes: dict[str, list[str]] = defaultdict(list)
    for config_map in snapshot.configmaps:
        if (
            scheduling.SCALING_KEY in config_map.data
            and config_map.namespace not in homes[config_map.name]
        ):
            homes[config_map.name].append(config_map.namespace)
    groups = PodGroupsOfJobs(snapshot)
    retries = written_retries(snapshot.configmaps)
    findings: list[Finding] = []
    for job in snapshot.ascend_jobs:
        if not job.is_over:
            called = f"AscendJob {job.namespace}/{job.name}"
            findings += _labels(job, called)
            findings += _rule(job, called, maps, homes, strict=options.profile is Profile.CORRECTED)
            findings += _budget(job, called, groups, retries)
    return tuple(sorted(findings, key=lambda finding: (finding.object, finding.code)))


def _labels(job: AscendJob, called: str) -> Iterator[Finding]:
    app = job.labels.get(scheduling.APP, "")
    if app not in scheduling.MINDIE_APPS:
        near = [
            candidate
            for candidate in scheduling.MINDIE_APPS
            if distance(app, candidate, _NEAR) <= _NEAR
        ]
        if near:
            text = sentence(
                "label app is {app}: the job is in no global rank table; write {right}",
                app=repr(app),
                right=near[0],
            )
            yield Finding.warning("APP_TYPO", called, text)
    elif not job.labels.get(scheduling.JOB_ID):
        text = sentence(
            "label {label} is missing: the job belongs to no service", label=scheduling.JOB_ID
        )
        yield Finding.error("JOB_ID_MISSING", called, text)


def _rule(
    job: AscendJob,
    called: str,
    maps: Mapping[tuple[str, str], StoredConfigMap],
    homes: Mapping[str, list[str]],
    *,
    strict: bool,
) -> Iterator[Finding]:
    name = job.labels.get(scheduling.SCALING_RULE)
    if name is None:
        return
    wanted = (scheduling.SCALING_GROUP, scheduling.JOB_ID)
    missing = [label for label in wanted if not job.labels.get(label)]
    if missing:
        text = sentence(
            "label {labels} is missing: the operator fails the job",
            labels=joined("{before} and {part}", missing),
        )
        yield Finding.error("INVALID_SCALING_CONFIG", called, text)
    rule, (code, reason) = rule_of(job.namespace, name, maps, strict=strict)
    if rule is None:
        elsewhere = sorted(homes.get(name, ())) if code == "RULE_MISSING" else []
        if elsewhere:
            reason = sentence(
                "{reason}; it is in namespace {namespace}", reason=reason, namespace=elsewhere[0]
            )
        text = sentence("{reason}: missing pods are not made", reason=reason)
        yield Finding.error(code, called, text)
        return
    group = job.labels.get(scheduling.SCALING_GROUP)
    if group and group not in rule.groups:
        text = sentence(
            "the rule {name} has no group {group}, but {groups}",
            name=name,
            group=group,
            groups=str(sorted(rule.groups)),
        )
        yield Finding.error("GROUP_NOT_IN_RULE", called, text)


def _budget(
    job: AscendJob, called: str, groups: PodGroupsOfJobs, retries: Mapping[str, int] | None
) -> Iterator[Finding]:
    budget, label = budget_of(job), job.labels.get(scheduling.FAULT_RETRY_TIMES, "")
    wanted = go_integer(label)
    limit = budget.limit
    if job.backoff_limit is not None and limit is not None and (wanted or 0) > limit:
        text = counted(
            limit,
            "backoffLimit {count} ends the job after {count} wave, those of hardware faults too; "
            "{label} {value} has no effect beyond it",
            "backoffLimit {count} ends the job after {count} waves, those of hardware faults too; "
            "{label} {value} has no effect beyond it",
            label=scheduling.FAULT_RETRY_TIMES,
            value=label,
        )
        yield Finding.warning("RETRY_VS_BACKOFF", called, text)
    pods = groups.pods(job)
    waves = counted_waves(job, pods)
    if limit is not None and waves is not None and waves >= limit:
        text = counted(
            limit,
            "{waves} of {count} wave came: the next one fails the job",
            "{waves} of {count} waves came: the next one fails the job",
            waves=waves,
        )
        yield Finding.warning("BACKOFF_EXHAUSTED", called, text)
    if any(pod.phase == "Failed" for pod in pods):
        group = groups.podgroup(job)
        key = "" if group is None else group.key
        # The operator asks for both numbers (consumers#3.6); the second may be in no ConfigMap
        # here.
        if (wanted or 0) < 1 or (retries is not None and retries.get(key, 0) < 1):
            text = sentence("a pod has failed and no retry is left: the operator fails the job")
            yield Finding.error("FAILED_POD_ENDS_JOB", called, text)
