"""The jobs of a MindIE service with their scaling rule (``consumers#3.2``, 4.1, R53)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.lint.finding import finding, in_words
from advisor.lint.workload import WorkloadForm
from contract.scheduling import (
    APP,
    DEPLOY_SERVER_LABELS,
    JOB_ID,
    MINDIE_APPS,
    SCALING_GROUP,
    SCALING_RULE,
)
from contract.sentences import counted, joined, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from advisor.lint.finding import LintFinding
    from advisor.lint.workload import RuleGroup, Workload, WorkloadScalingRule


def judge(workload: Workload) -> Iterator[LintFinding]:
    """Return which labels of a job of a MindIE service are missing."""
    if workload.form is not WorkloadForm.ASCENDJOB:
        return
    labels = workload.labels
    place = workload.place.at(workload.labels_line)
    if SCALING_RULE in labels:
        here = place.at(labels[SCALING_RULE].line)
        for key in (SCALING_GROUP, JOB_ID):
            if key not in labels:
                yield finding("SCALING_LABEL_MISSING", here, key=key)
    elif JOB_ID not in labels and APP in labels and labels[APP].value in MINDIE_APPS:
        yield finding("JOB_ID_MISSING", place.at(labels[APP].line))
    if all(key in labels for key in DEPLOY_SERVER_LABELS):
        here = place.at(labels[DEPLOY_SERVER_LABELS[1]].line)
        yield finding(
            "DEPLOY_SERVER_TWICE", here, keys=joined("{before} and {part}", DEPLOY_SERVER_LABELS)
        )


def judge_rules(
    jobs: Sequence[Workload], rules: Sequence[WorkloadScalingRule]
) -> Iterator[LintFinding]:
    """Return where jobs and rules of one call do not fit together."""
    named = [rule for rule in rules if not rule.is_bare]
    by_place = {(rule.namespace, rule.name): rule for rule in named}
    by_name = {rule.name: rule for rule in named}
    wanted = {
        (job.namespace, job.labels[SCALING_RULE].value): job
        for job in reversed(jobs)
        if SCALING_RULE in job.labels
    }
    unused = [rule for key, rule in by_place.items() if key not in wanted]
    shown: set[int] = set()
    for job in jobs:
        label = job.labels.get(SCALING_RULE)
        if label is None:
            continue
        rule = by_place.get((job.namespace, label.value))
        if rule is not None:
            yield from _judge_group(job, rule)
            continue
        rule = by_name.get(label.value)
        other = next((rule for rule in unused if rule.namespace == job.namespace), None)
        if rule is not None:
            # Once for each rule, however many jobs name it.
            if id(rule) not in shown:
                shown.add(id(rule))
                words = {"wanted": job.namespace, "given": rule.namespace, "job": job.place.object}
                place = rule.place.at(rule.namespace_line)
                yield finding("SCALING_RULE_NAMESPACE", place, **words)
        elif other is not None:
            if id(other) not in shown:
                shown.add(id(other))
                words = {"wanted": label.value, "job": job.place.object}
                yield finding("SCALING_RULE_NAME", other.place.at(other.name_line), **words)
        elif bare := next((other for other in rules if other.is_bare), None):
            yield from _judge_group(job, bare)
        else:
            place = job.place.at_text(label)
            yield finding("SCALING_RULE_NOT_GIVEN", place, rule=label.value)


def _judge_group(job: Workload, rule: WorkloadScalingRule) -> Iterator[LintFinding]:
    group = job.labels.get(SCALING_GROUP)
    if group is None or not rule.groups:
        return
    if group.value in rule.groups:
        yield from _judge_servers(job, rule, group.value, rule.groups[group.value])
        return
    place = job.place.at_text(group)
    words = {"group": group.value, "rule": rule.name or sentence("that was given")}
    where = f"{rule.place.file}:{rule.place.line}"
    groups = in_words(rule.groups)
    yield finding("SCALING_GROUP_NOT_IN_RULE", place, where=where, groups=groups, **words)


def _judge_servers(
    job: Workload, rule: WorkloadScalingRule, name: str, group: RuleGroup
) -> Iterator[LintFinding]:
    """Compare ``server_num_per_group`` with the pods of an instance; the operator does not."""
    (instance,) = job.groups
    pods = instance.pods()
    if group.servers is not None and pods is not None and group.servers != pods:
        shown = counted(pods, "{count} pod", "{count} pods")
        words = {"group": name, "servers": group.servers, "pods": shown}
        place = rule.place.at(group.line)
        yield finding("SCALING_RULE_OTHER_SERVERS", place, job=job.place.object, **words)
