"""``sp-block``: how many chips of a job are in one super pod (``docs/spec/consumers.md#2.2``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.lint.finding import finding
from advisor.lint.placement import machine
from advisor.lint.workload import WorkloadForm
from contract.scheduling import (
    ACCELERATOR_TYPE,
    OME_SERVICE,
    SCHEDULE_POLICY,
    SUPER_POD_ACCELERATOR_TYPES,
    SUPER_POD_BLOCK,
    SUPER_POD_POLICIES,
    go_integer,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from advisor.lint.finding import LintFinding, PlacedText
    from advisor.lint.workload import Role, Workload, WorkloadGroup


def judge(workload: Workload, group: WorkloadGroup) -> Iterator[LintFinding]:
    """Return what is wrong with ``sp-block`` of the PodGroup."""
    seen: set[tuple[str, int]] = set()
    for role in group.roles:
        block = role.annotations.get(SUPER_POD_BLOCK) or group.annotations.get(SUPER_POD_BLOCK)
        if block is None or not role.count() or (block.file, block.line) in seen:
            continue
        seen.add((block.file, block.line))
        yield from _judge_block(workload, group, role, block)


def _judge_block(
    workload: Workload, group: WorkloadGroup, role: Role, block: PlacedText
) -> Iterator[LintFinding]:
    place = workload.place.at_text(block)
    value = go_integer(block.value)
    if value is None or value <= 0:
        instead = 'Write a whole number of chips in quotes, such as sp-block: "16".'
        shown, why = block.value or "(empty)", "is no number from 1"
        yield finding("SUPER_POD_BLOCK", place, value=shown, why=why, instead=instead)
        return
    selected = role.selector.get(ACCELERATOR_TYPE)
    policy = group.annotation(SCHEDULE_POLICY)
    is_super_pod = (
        policy.value in SUPER_POD_POLICIES
        if policy is not None
        else selected is not None and selected.value in SUPER_POD_ACCELERATOR_TYPES
    )
    if not is_super_pod:
        nodes = f"the nodes are {selected.value}" if selected is not None else "none is selected"
        yield finding("SUPER_POD_BLOCK_WITHOUT_SUPER_POD", place, nodes=nodes)
        return
    cards = machine(group, role) or role.count()
    total = _instance(workload, group)
    if total is not None and total < cards and value == total:
        return
    if value % cards:
        why = f"is no multiple of the {cards} cards of a node"
        instead = f"Write a multiple of {cards}."
    elif total and total % value:
        why = f"is no divisor of the {total} cards of an instance"
        instead = f"Write a divisor of {total} that is a multiple of {cards}."
    else:
        return
    yield finding("SUPER_POD_BLOCK", place, value=value, why=why, instead=instead)


def _instance(workload: Workload, group: WorkloadGroup) -> int | None:
    """Return the chips of one instance; ``None`` where a count is unknown."""
    is_ome = workload.form is WorkloadForm.OME or group.label(OME_SERVICE) is not None
    if group.is_shared and (is_ome or workload.form is WorkloadForm.STORM):
        return max((role.count() for role in group.roles), default=None)
    if any(role.pods is None or None in role.cards.values() for role in group.roles):
        return None
    return sum(role.count() * (role.pods or 0) for role in group.roles)
