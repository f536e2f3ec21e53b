"""How many pods are placed together, and how far a fault reaches (consumers#2.1, 2.8, 2.9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.lint.finding import finding
from advisor.lint.workload import WorkloadForm
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

if TYPE_CHECKING:
    from collections.abc import Iterator

    from advisor.lint.finding import LintFinding
    from advisor.lint.workload import Workload, WorkloadGroup

_COUNTED = (WorkloadForm.DEPLOYMENT, WorkloadForm.STORM)
"""Their replicas do not grow by themselves."""
_OWNED = (WorkloadForm.DEPLOYMENT, WorkloadForm.OME)
"""Their PodGroup has minMember 1 and every replica of a Deployment in it."""


def takes_part(group: WorkloadGroup) -> bool:
    """Whether faults of the PodGroup are handled."""
    label = group.label(FAULT_SCHEDULING)
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
        is_idle = members is not None and members != 1 and value not in (None, members)
        place = workload.place.at_text(annotation)
        if is_idle and not workload.is_rendered:
            words = {"members": members, "value": annotation.value}
            yield finding("MIN_AVAILABLE_WITHOUT_EFFECT", place, **words)
        elif workload.form in _COUNTED and value and pods is not None and value > pods:
            yield finding("MIN_AVAILABLE_TOO_LARGE", place, value=value, pods=pods)
    elif workload.form in _OWNED and group.is_shared and pods is not None and pods > 1:
        role = group.roles[0]
        if takes_part(group) or (role.count() and role.scheduler is not None):
            place = workload.place.at(role.annotations_line, role.file)
            yield finding("MIN_AVAILABLE_MISSING", place, replicas=pods)


def _judge_shared(workload: Workload, group: WorkloadGroup) -> Iterator[LintFinding]:
    """Roles of podGroupSize 1: each pod is an instance, and all share one PodGroup."""
    pods = group.pods()
    if pods == 1:
        return
    shown = "its" if pods is None else pods
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
