"""``sp-block``: how many chips of a job are in one super pod (``docs/spec/consumers.md#2.2``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.lint.finding import finding, in_words
from advisor.lint.placement import machine
from advisor.lint.workload import WorkloadForm
from contract.scheduling import (
    ACCELERATOR_TYPE,
    OME_SERVICE,
    SCHEDULE_POLICY,
    SUPER_POD_BLOCK,
    go_integer,
    is_super_pod_job,
)
from contract.sentences import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from advisor.lint.finding import LintFinding, PlacedText
    from advisor.lint.workload import Role, Workload, WorkloadGroup

_MAX_SHOWN = 8


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
        instead = sentence('Write a whole number of chips in quotes, such as sp-block: "16".')
        shown, problem = block.value or sentence("(empty)"), sentence("is not a number from 1")
        yield finding("SUPER_POD_BLOCK", place, value=shown, why=problem, instead=instead)
        return
    selected = role.selector.get(ACCELERATOR_TYPE)
    policy = group.annotation(SCHEDULE_POLICY)
    # sp-block alone makes a super pod job, but it gives nodes of another kind no super pod.
    is_alone = policy is None and selected is None
    kinds = [selected.value] if selected is not None and policy is None else []
    wanted = policy.value if policy is not None else ""
    if not is_super_pod_job(wanted, kinds, has_block=is_alone):
        nodes = (
            sentence("the nodes are {value}", value=selected.value)
            if selected is not None
            else sentence("none is selected")
        )
        nodes = sentence("the policy is {wanted}", wanted=wanted) if wanted else nodes
        yield finding("SUPER_POD_BLOCK_WITHOUT_SUPER_POD", place, nodes=nodes)
        return
    # Of an unknown machine it is known only that a pod fits on a node.
    cards = machine(group, role) or role.count()
    total = _instance(workload, group)
    if total is not None and total < cards:
        if value != total:
            problem = sentence(
                "is not the number of cards of an instance, which is {total}", total=total
            )
            instead = sentence('Write sp-block: "{total}"', total=total)
            yield finding("SUPER_POD_BLOCK", place, value=value, why=problem, instead=instead)
        return
    if value % cards:
        problem = sentence("is not a multiple of the {cards} cards of a node", cards=cards)
    elif total and total % value:
        problem = sentence("is not a divisor of the {total} cards of an instance", total=total)
    else:
        return
    instead = _legal_blocks(cards, total)
    yield finding("SUPER_POD_BLOCK", place, value=value, why=problem, instead=instead)


def _legal_blocks(cards: int, total: int | None) -> str:
    """Return which values are legal, in words; ``total``: the cards of an instance, if known."""
    if not total:
        return sentence("Write a multiple of {cards}.", cards=cards)
    legal = [block for block in range(cards, total + 1, cards) if total % block == 0]
    if not legal:
        return sentence(
            "Ask for a multiple of {cards} cards in an instance, or remove sp-block.", cards=cards
        )
    shown = [*map(str, legal)] if len(legal) <= _MAX_SHOWN else [str(legal[0]), "...", str(total)]
    if len(legal) == 1:
        return sentence('Write sp-block: "{total}"', total=total)
    return sentence("Write one of {legal}.", legal=in_words(shown))


def _instance(workload: Workload, group: WorkloadGroup) -> int | None:
    """Return the chips of one instance; ``None`` where a count is unknown."""
    is_ome = workload.form is WorkloadForm.OME or group.label(OME_SERVICE) is not None
    if group.is_shared and (is_ome or workload.form is WorkloadForm.STORM):
        # Each pod of such a PodGroup is an instance by itself.
        return max((role.count() for role in group.roles), default=None)
    if any(role.pods is None or None in role.cards.values() for role in group.roles):
        return None
    return sum(role.count() * (role.pods or 0) for role in group.roles)
