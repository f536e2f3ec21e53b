"""Checks all objects of one call together, after all of them have been read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.lint import (
    elastic,
    gangs,
    grace,
    mindie,
    ome,
    placement,
    rescheduling,
    retries,
    super_pods,
)
from advisor.lint.finding import defect, finding, in_words
from advisor.lint.labels import LABELS
from advisor.lint.workload import WorkloadForm
from advisor.options import DEFAULT_GRACE_OVER_TIME
from contract.scheduling import (
    APP,
    FAULT_SCHEDULING,
    GROUP_ANNOTATION,
    MINDIE_APPS,
    POD_RESCHEDULING,
    SCALING_RULE,
)
from contract.sentences import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from advisor.lint.finding import FindingPlace, LintFinding, PlacedText
    from advisor.lint.workload import Collected, Service, Texts, Workload, WorkloadGroup


def judge(collected: Collected) -> Iterator[LintFinding]:
    """Return what is wrong with the objects of a call, each together with the others."""
    yield from _judge_made(collected)
    seconds = collected.grace_over_time
    seconds = DEFAULT_GRACE_OVER_TIME if seconds is None else seconds
    for workload in collected.workloads:
        keys = collected.rank_tables.get((workload.namespace, workload.name), ())
        table = rescheduling.judge_rank_table(keys, workload.groups)
        parts = elastic.judge_parts(workload, collected.elastic)
        for findings in (table, _judge_workload(workload, seconds), parts):
            yield from _contained(workload.place, findings)
    yield from _judge_services(collected.services, seconds)
    if collected.workloads:
        place = collected.workloads[0].place
        yield from _contained(place, _judge_named_groups(collected.workloads))
        yield from _contained(place, gangs.judge_without_gang(collected))
    jobs = [candidate for candidate in collected.workloads if SCALING_RULE in candidate.labels]
    jobs = [job for job in jobs if job.form is WorkloadForm.ASCENDJOB]
    if jobs:
        yield from _contained(jobs[0].place, mindie.judge_rules(jobs, collected.rules))


def _contained(place: FindingPlace, findings: Iterator[LintFinding]) -> Iterator[LintFinding]:
    """Return what is found about an object; a defect of a rule hides nothing about others."""
    try:
        yield from findings
    except Exception as error:
        yield defect(error, place)


def _judge_made(collected: Collected) -> Iterator[LintFinding]:
    """Judge what controllers made, as what it is, where its maker is not given.

    Where the maker is given, all of it is judged there: its lines are those that people write.
    """
    given = {workload.key for workload in collected.workloads}
    given |= {
        ("InferenceService", service.namespace, service.name) for service in collected.services
    }
    given |= {made_object.workload.key for made_object in collected.made}
    for made_object in collected.made:
        controller, workload = made_object.controller, made_object.workload
        if (controller.kind, workload.namespace, controller.name) not in given:
            yield from made_object.findings
            collected.workloads.append(workload)


def _judge_workload(workload: Workload, seconds: int) -> Iterator[LintFinding]:
    # Who made an object of another one copied labels into it, too.
    if workload.controller is None:
        yield from rescheduling.judge_places(workload.unread, workload.groups)
        yield from rescheduling.judge(workload)
    for group in workload.groups:
        if len(group.roles) > 1 or group.labels:
            yield from _judge_conflicts(_sources(workload, group), workload.place)
        yield from gangs.judge(workload, group)
        if group.roles:
            yield from retries.judge(workload, group)
            yield from grace.judge(workload, group, seconds)
            yield from placement.judge(workload, group)
            yield from super_pods.judge(workload, group)
    yield from elastic.judge(workload, seconds)
    yield from mindie.judge(workload)


def _sources(workload: Workload, group: WorkloadGroup) -> list[tuple[str, Texts]]:
    own = [("metadata", group.labels)] if group.labels else []
    # All roles of a component have the same labels, so they cannot differ.
    if workload.form is WorkloadForm.OME:
        return own
    return own + [(role.name, role.labels) for role in group.roles]


def _judge_conflicts(
    sources: Iterable[tuple[str, Texts]], place: FindingPlace
) -> Iterator[LintFinding]:
    """Return each label that two sources of one PodGroup give different values.

    A source is a name and labels; Volcano joins the values (consumers#2.1).
    """
    first: dict[str, tuple[str, PlacedText]] = {}
    for name, texts in sources:
        for key, text in texts.items():
            where, other = first.setdefault(key, (name, text))
            if other.value == text.value:
                continue
            # Many programs use ``app``; MindCluster reads only these values of it.
            if key in LABELS or (key == APP and MINDIE_APPS.count(text.value)):
                yield finding(
                    "LABEL_CONFLICT",
                    place.at_text(text),
                    key=key,
                    value=text.value,
                    other=other.value,
                    where=sentence("{where} (line {line})", where=where, line=other.line),
                    joined=f"{other.value}|{text.value}",
                )


def _judge_named_groups(workloads: list[Workload]) -> Iterator[LintFinding]:
    """PodGroups that pods of several workloads name, or that are given beside them."""
    named: dict[tuple[str, str], list[tuple[str, Texts, Workload]]] = {}
    for workload in workloads:
        if workload.form is WorkloadForm.POD_GROUP:
            named.setdefault((workload.namespace, workload.name), []).append(
                (workload.place.object, workload.labels, workload)
            )
    for workload in workloads:
        for role in workload.roles():
            key = role.annotations.get(GROUP_ANNOTATION)
            if key is not None:
                source = (f"{workload.place.object} ({role.file})", role.labels, workload)
                named.setdefault((workload.namespace, key.value), []).append(source)
    for sources in named.values():
        if len(sources) > 1:
            texts = [(name, labels) for name, labels, _ in sources]
            yield from _judge_conflicts(texts, sources[-1][2].place)


def _judge_services(services: list[Service], seconds: int) -> Iterator[LintFinding]:
    """Each InferenceService with its runtime, and each runtime that none of them names."""
    runtimes = {
        (candidate.namespace, candidate.name): candidate
        for candidate in services
        if candidate.is_runtime
    }
    used = set()
    for service in services:
        if service.is_runtime or service.runtime is None:
            continue
        # A runtime of the namespace goes before one of the cluster, whose namespace is empty.
        for namespace in (service.namespace, ""):
            if (namespace, service.runtime.value) in runtimes:
                used.add((namespace, service.runtime.value))
                break
    for service in services:
        if service.is_runtime:
            if (service.namespace, service.name) not in used:
                yield from _contained(service.place, _judge_service(service, None, seconds))
            continue
        if service.mode is not None and not ome.is_known_mode(service):
            place = service.place.at_text(service.mode)
            yield finding(
                "OME_MODE_NOT_KNOWN", place, mode=service.mode.value or sentence("(empty)")
            )
            continue
        name = service.runtime.value if service.runtime is not None else ""
        runtime = runtimes.get((service.namespace, name)) or runtimes.get(("", name))
        yield from _contained(service.place, _judge_service(service, runtime, seconds))


def _judge_service(
    service: Service, runtime: Service | None, seconds: int
) -> Iterator[LintFinding]:
    """Judge a service with its runtime, or a runtime that no service names."""
    workload = ome.workload(service, runtime)
    findings = _judge_workload(workload, seconds)
    is_named = service.runtime is not None and service.runtime.value != ""
    if not service.is_runtime and runtime is None and (is_named or not service.is_rendered):
        yield from _may_be_in_runtime(service, workload, findings)
    else:
        yield from findings


def _may_be_in_runtime(
    service: Service, workload: Workload, findings: Iterator[LintFinding]
) -> Iterator[LintFinding]:
    """Judge a service alone; what is missing in it may be in its runtime."""
    missing = []
    for group in workload.groups:
        for key in (FAULT_SCHEDULING, POD_RESCHEDULING):
            if group.label(key) is None:
                missing.append(key)
    for inner in findings:
        if inner.rule.code in ("OME_WITHOUT_POD_RESCHEDULING", "SCHEDULER_MISSING"):
            missing += ["schedulerName"] if inner.rule.code == "SCHEDULER_MISSING" else []
        elif inner.rule.code == "MIN_AVAILABLE_MISSING":
            missing.append("huawei.com/schedule_minAvailable")
        else:
            yield inner
    shown = in_words(dict.fromkeys(missing)) if missing else ""
    if missing and service.runtime is not None:
        place = service.place.at_text(service.runtime)
        yield finding("RUNTIME_NOT_GIVEN", place, missing=shown, runtime=service.runtime.value)
    elif missing:
        yield finding("RUNTIME_NOT_NAMED", service.place.at(service.spec_line), missing=shown)
