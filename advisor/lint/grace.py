"""The time that pods get at a fault, against the time that they need (consumers#2.7, 5.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.lint.finding import finding
from contract.scheduling import (
    FAULT_SCHEDULING,
    FAULT_SCHEDULING_FORCE,
    FAULT_SCHEDULING_GRACE,
    SUB_HEALTH_GRACE_EXIT,
    SUB_HEALTH_STRATEGY,
    go_integer,
)
from contract.sentences import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from advisor.lint.finding import LintFinding
    from advisor.lint.workload import Role, Workload, WorkloadGroup

_FORCED = {FAULT_SCHEDULING_FORCE: FAULT_SCHEDULING_GRACE, "external-force": "external-grace"}
_GRACEFUL = (FAULT_SCHEDULING_GRACE, "external-grace")
DEFAULT_TERMINATION_SECONDS = 30
"""Of a pod without ``terminationGracePeriodSeconds``; the API server may write it."""
_CHECKPOINT_SECONDS = 300
"""A pod that asks for so long a termination saves a checkpoint."""


def judge(workload: Workload, group: WorkloadGroup, grace_over_time: int) -> Iterator[LintFinding]:
    """Return where a checkpoint never begins, or is cut off."""
    scheduling = group.label(FAULT_SCHEDULING)
    value = scheduling.value if scheduling is not None else ""
    if scheduling is not None and value in _FORCED:
        saving = next((text for role in group.roles if (text := _saving(role))), None)
        if saving is not None:
            place = workload.place.at_text(scheduling)
            words = {"value": value, "what": saving, "instead": _FORCED[value]}
            yield finding("FORCE_WITH_CHECKPOINT", place, **words)
    strategy = group.label(SUB_HEALTH_STRATEGY)
    if value in _GRACEFUL or (strategy and strategy.value == SUB_HEALTH_GRACE_EXIT):
        for role in group.roles:
            seconds = _termination(role)
            is_default = seconds == DEFAULT_TERMINATION_SECONDS
            if value in _GRACEFUL and role.pre_stop is not None and is_default:
                place = workload.place.at_text(role.pre_stop)
                yield finding("PRE_STOP_WITHIN_DEFAULT", place, seconds=seconds)
            if role.termination is not None and seconds > grace_over_time:
                place = workload.place.at_text(role.termination)
                code = "GRACE_SHORTER_THAN_TERMINATION"
                yield finding(code, place, grace=grace_over_time, seconds=seconds)


def _termination(role: Role) -> int:
    if role.termination is None:
        return DEFAULT_TERMINATION_SECONDS
    return go_integer(role.termination.value) or 0


def _saving(role: Role) -> str:
    if role.pre_stop is not None:
        return sentence("preStop (line {line})", line=role.pre_stop.line)
    seconds = _termination(role)
    if role.termination is not None and seconds >= _CHECKPOINT_SECONDS:
        return sentence(
            "the end within {seconds} s (line {line})",
            seconds=seconds,
            line=role.termination.line,
        )
    return ""
