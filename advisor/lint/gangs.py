"""How many pods are placed together, and how far a fault reaches (consumers#2.1, 2.8, 2.9)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from advisor.lint.finding import finding
from advisor.lint.model import Scalar, Sequence
from advisor.lint.workload import AscendOperator, WorkloadForm
from contract.scheduling import (
    APP,
    FAULT_SCHEDULING,
    FAULT_SCHEDULING_OFF,
    FAULT_SCHEDULING_VALUES,
    MINDIE_CONTROL_APPS,
    OME_SERVICE,
    POD_RESCHEDULING,
    RECOVER_POLICY_PATH,
    RECOVER_POLICY_POD,
    SCHEDULE_MIN_AVAILABLE,
    go_integer,
)
from contract.sentences import counted, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from advisor.lint.finding import FindingPlace, LintFinding
    from advisor.lint.model import Mapping
    from advisor.lint.workload import Collected, Workload, WorkloadGroup

_COUNTED = (WorkloadForm.DEPLOYMENT, WorkloadForm.STORM, WorkloadForm.LWS)
"""Their PodGroups do not grow by themselves."""
_SIZED = (WorkloadForm.LWS, WorkloadForm.OME)
"""A group of a leader and its workers is a LeaderWorkerSet; its pods have minMember by LWS only."""
_OWNED = (WorkloadForm.DEPLOYMENT, WorkloadForm.OME)
"""Their PodGroup has minMember 1 and every replica of a Deployment in it."""


_STATEFUL_SET = "StatefulSet"
# Delimited, so that names that only contain the word are not taken for it.
_OPERATOR = re.compile(r"(?:^|[\s/;&])ascend-operator(?:$|[\s:@])", re.ASCII)
"""In a command, or in the name of an image."""
_GANG_OPTION = re.compile(r"(?:^|\s)--?enableGangScheduling(?:=(\S*))?(?=$|\s)", re.ASCII)
# ``strconv.ParseBool`` of Go; the operator's flags are read by it.
_GO_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))
"""What Go reads as true of an option."""


def takes_part(group: WorkloadGroup) -> bool:
    """Whether faults of the PodGroup are handled."""
    label = group.label(FAULT_SCHEDULING)
    # Volcano treats a missing label as ``off`` (consumers#2.2).
    value = label.value if label is not None else FAULT_SCHEDULING_OFF
    return value in FAULT_SCHEDULING_VALUES and value != FAULT_SCHEDULING_OFF


def judge(workload: Workload, group: WorkloadGroup) -> Iterator[LintFinding]:
    """Return what is wrong with gangs and with the scope of a fault."""
    yield from _judge_minimum(workload, group)
    is_ome = workload.form is WorkloadForm.OME or group.label(OME_SERVICE) is not None
    label = group.label(FAULT_SCHEDULING)
    if label is not None and takes_part(group) and _is_off(group):
        switch = group.label(POD_RESCHEDULING) or label
        place = workload.place.at_text(switch)
        if is_ome:
            yield finding("OME_WITHOUT_POD_RESCHEDULING", place)
        elif _is_limited(group) and group.pods() != 1:
            yield finding("LIMIT_WITHOUT_POD_RESCHEDULING", place)
    if workload.form is WorkloadForm.STORM and group.is_shared and takes_part(group):
        yield from _judge_shared(workload, group)


def _is_off(group: WorkloadGroup) -> bool:
    """Whether all pods go with one. A value that is none is a finding by itself."""
    label = group.label(POD_RESCHEDULING)
    return label is None or label.value == "off"


def _is_limited(group: WorkloadGroup) -> bool:
    """Whether only pods at fault are deleted (consumers#2.2)."""
    app = group.label(APP)
    path = group.annotation(RECOVER_POLICY_PATH)
    is_control = app is not None and app.value in MINDIE_CONTROL_APPS
    return is_control or (path is not None and path.value == RECOVER_POLICY_POD)


def _judge_minimum(workload: Workload, group: WorkloadGroup) -> Iterator[LintFinding]:
    annotation = group.annotation(SCHEDULE_MIN_AVAILABLE)
    pods = group.pods()
    if annotation is not None:
        value = go_integer(annotation.value)
        members = group.members
        # The annotation counts only with minMember 1 (consumers#2.1).
        is_idle = members is not None and members != 1 and value not in (None, members)
        most = pods if workload.form in _COUNTED else group.most_pods
        place = workload.place.at_text(annotation)
        # The deploy tool always writes it (consumers#6.2), so its user could not remove it.
        if is_idle and not workload.is_rendered:
            words = {"members": members, "value": annotation.value}
            is_sized = workload.form in _SIZED
            code = "MIN_AVAILABLE_OF_LWS" if is_sized else "MIN_AVAILABLE_WITHOUT_EFFECT"
            yield finding(code, place, **words)
        elif not is_idle and value and most is not None and value > most:
            yield finding("MIN_AVAILABLE_TOO_LARGE", place, value=value, pods=most)
    elif workload.form in _OWNED and group.is_shared and pods is not None and pods > 1:
        role = group.roles[0]
        if takes_part(group) or (role.count() and role.scheduler is not None):
            place = workload.place.at(role.annotations_line, role.file)
            yield finding("MIN_AVAILABLE_MISSING", place, replicas=pods)


def _judge_shared(workload: Workload, group: WorkloadGroup) -> Iterator[LintFinding]:
    """Roles of podGroupSize 1: each pod is an instance, and all share one PodGroup."""
    pods = group.pods()
    # One pod alone loses nothing to another one.
    if pods == 1:
        return
    shown = sentence("its") if pods is None else pods
    first = group.roles[0]
    if _is_off(group) and not _is_limited(group):
        switch = group.label(POD_RESCHEDULING)
        place = workload.place.at(first.labels_line, first.file)
        if switch is not None:
            place = workload.place.at_text(switch)
        yield finding("SHARED_PG_WITHOUT_POD_RESCHEDULING", place, pods=shown)
    if RECOVER_POLICY_PATH in group.annotations:
        return
    for role in group.roles:
        if RECOVER_POLICY_PATH not in role.annotations:
            place = workload.place.at(role.annotations_line, role.file)
            yield finding("SHARED_PG_WITHOUT_RECOVER_PATH", place, pods=shown)


def judge_without_gang(collected: Collected) -> Iterator[LintFinding]:
    """Return whose controllers are installed without the gangs that their jobs need."""
    every = [*collected.workloads, *(made_object.workload for made_object in collected.made)]
    groups = _groups_of_stateful_sets(every)
    for workload in collected.workloads:
        group = groups.get((workload.namespace, workload.name))
        if workload.form is WorkloadForm.LWS and group is not None:
            yield finding("LWS_WITHOUT_GANG", workload.place, group=group.place.object)
    jobs = [
        job.place.object
        for job in collected.workloads
        if job.form is WorkloadForm.ASCENDJOB and any(role.scheduler for role in job.roles())
    ]
    for operator in collected.operators if jobs else ():
        words = {"job": jobs[0], "count": counted(len(jobs), "{count} job", "{count} jobs")}
        if operator.gang == "":
            yield finding("OPERATOR_GANG_NOT_GIVEN", operator.place, **words)
        elif operator.gang not in _GO_TRUE:
            yield finding("OPERATOR_WITHOUT_GANG", operator.place, **words)


def _groups_of_stateful_sets(workloads: list[Workload]) -> dict[tuple[str, str], Workload]:
    """Return PodGroups with minMember 1 that Volcano made for a StatefulSet, by namespace and name.

    Where LWS has no gang scheduling, the StatefulSet of all leaders has the name of the
    LeaderWorkerSet, and those of workers have the number of their group behind it.
    """
    groups: dict[tuple[str, str], Workload] = {}
    for group in workloads:
        owner = group.controller
        if group.form is not WorkloadForm.POD_GROUP or owner is None or owner.kind != _STATEFUL_SET:
            continue
        if group.groups[0].members == 1:
            groups.setdefault((group.namespace, owner.name), group)
            groups.setdefault((group.namespace, owner.name.rpartition("-")[0]), group)
    return groups


def operator(deployment: Mapping, place: FindingPlace) -> AscendOperator | None:
    """Return the Deployment of Ascend Operator; ``None`` for any other one."""
    for container in deployment.sequence("spec", "template", "spec", "containers"):
        words = []
        for key in ("command", "args"):
            given = container.get(key)
            if isinstance(given, Sequence):
                words += [word for word in given if isinstance(word, Scalar)]
        image = container.scalar("image")
        texts = [*words, *([image] if image is not None else [])]
        named = next((text for text in texts if _OPERATOR.search(text.text)), None)
        if named is not None:
            options = [(word, value) for word in words for value in _GANG_OPTION.findall(word.text)]
            # Of an option that is given twice, Go takes the last one.
            word, value = options[-1] if options else (named, "")
            return AscendOperator(place.at(word.line), value or ("true" if options else ""))
    return None
