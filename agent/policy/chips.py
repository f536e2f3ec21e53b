"""The chips of a node, and the state of those that are not listed any more.

A chip is known until it is forgotten: a driver that does not list it reports nothing about its
faults (``docs/decisions/018``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from agent.policy.episodes import end
from agent.policy.state import CHIP_SOURCE, ChipState, ServerState
from agent.policy.transaction import RuleContext, without
from agent.policy.upgrade_rules import remove_upgrade
from contract.codes.levels import ChipLevel
from contract.listed_chips import compare
from contract.observation import chip_subject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.policy.state import ChipsListed, SubjectState
    from agent.policy.transaction import Transaction
    from contract.listed_chips import ChipListComparison
    from contract.observation import Subject


def compared(subjects: Mapping[Subject, SubjectState], item: ChipsListed) -> ChipListComparison:
    """Return how the chips of ``subjects`` differ from those that the driver lists now."""
    places = {
        subject.id: state.place
        for subject, state in subjects.items()
        if isinstance(state, ChipState)
    }
    return compare(places, item.chips)


def listed(
    subjects: Mapping[Subject, SubjectState], item: ChipsListed, draft: Transaction
) -> dict[Subject, SubjectState]:
    """Return ``subjects`` after the driver listed the chips of ``item``.

    The state of a chip follows it to another physical id. A chip that was replaced leaves an
    operator's separation to its successor, and nothing else. A chip that was known before is no
    successor.
    """
    comparison = compared(subjects, item)
    now = {chip.physical_id: chip for chip in item.chips}
    taken = frozenset(comparison.moved.values())
    chips: dict[int, ChipState] = {}
    others: dict[Subject, SubjectState] = {}
    for subject, state in subjects.items():
        if not isinstance(state, ChipState):
            others[subject] = state
        elif subject.id in comparison.replaced:
            because = "its card was replaced by another one"
            context = RuleContext(subject, item.at_ms, draft)
            # A chip that moved here has a state of its own, so the separation ends as well.
            is_taken = subject.id in taken
            ended = _ended(state, because, context, with_isolation=is_taken)
            if not is_taken:
                successor = ChipState(upgrades=ended.upgrades, counters=ended.counters)
                chips[subject.id] = successor
        else:
            chips[comparison.moved.get(subject.id, subject.id)] = state
    for chip_id, chip in now.items():
        state = chips.get(chip_id, _NEW)
        # It was blind because there was no driver, which proves nothing about the chip
        # (decision 18).
        if item.is_first and state.silent:
            state = replace(state, blind=without(state.blind, CHIP_SOURCE))
        chips[chip_id] = replace(state, place=chip)
    server = ServerState(item.family, item.super_pod)
    if server != draft.state.server:
        draft.state = replace(draft.state, server=server)
    after = {**{chip_subject(chip_id): chip for chip_id, chip in chips.items()}, **others}
    draft.revision += after != subjects
    return after


_NEW = ChipState()


def restored(state: SubjectState) -> SubjectState:
    """Return ``state`` as a chip that a document has: it answered once, but not this process."""
    if not isinstance(state, ChipState) or state.was_read:
        return state
    answered = tuple(sorted({*state.answered, CHIP_SOURCE}))
    return replace(state, answered=answered, silent=True)


def forgotten(state: SubjectState, because: str, context: RuleContext) -> None:
    """End all faults and upgrades of a chip that is to be forgotten, its separation too."""
    if isinstance(state, ChipState):
        # For its notes only: the caller has removed the chip already.
        _ended(state, because, context, with_isolation=True)


def _ended(
    state: ChipState, because: str, context: RuleContext, *, with_isolation: bool
) -> ChipState:
    for fault in state.faults.values():
        state = end(state, fault, because, context)
    for upgrade in state.upgrades:
        if with_isolation or upgrade.level is not ChipLevel.MANUALLY_SEPARATE_NPU:
            state = remove_upgrade(state, upgrade, because, context)
    # An isolation that stays is released by the recovery that its counter has.
    counted = {upgrade.code for upgrade in state.upgrades}
    return replace(
        state,
        counters={code: counter for code, counter in state.counters.items() if code in counted},
    )
