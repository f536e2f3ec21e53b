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
        subject.id: known.place
        for subject, known in subjects.items()
        if isinstance(known, ChipState)
    }
    return compare(places, item.chips)


def listed(
    subjects: Mapping[Subject, SubjectState], item: ChipsListed, draft: Transaction
) -> dict[Subject, SubjectState]:
    """Return ``subjects`` after the driver listed the chips of ``item``.

    The state of a chip follows it to another physical id. A chip that was replaced leaves an
    operator's separation to its successor, and nothing else.
    """
    found = compared(subjects, item)
    now = {chip.physical_id: chip for chip in item.chips}
    chips: dict[int, ChipState] = {}
    others: dict[Subject, SubjectState] = {}
    for subject, known in subjects.items():
        if not isinstance(known, ChipState):
            others[subject] = known
        elif subject.id in found.replaced:
            because = "its card was replaced by another one"
            context = RuleContext(subject, item.at_ms, draft)
            left = _ended(known, because, context, with_isolation=False)
            chips.setdefault(subject.id, ChipState(upgrades=left.upgrades, counters=left.counters))
        else:
            chips[found.moved.get(subject.id, subject.id)] = known
    for chip_id, chip in now.items():
        known = chips.get(chip_id, _NEW)
        if item.is_first and known.silent:
            known = replace(known, blind=without(known.blind, CHIP_SOURCE))
        chips[chip_id] = replace(known, place=chip)
    server = ServerState(item.family, item.super_pod)
    if server != draft.state.server:
        draft.state = replace(draft.state, server=server)
    after = {**{chip_subject(chip_id): one for chip_id, one in chips.items()}, **others}
    draft.revision += after != subjects
    return after


_NEW = ChipState()


def restored(known: SubjectState) -> SubjectState:
    """Return ``known`` as a chip that a document has: it answered once, but not this process."""
    if not isinstance(known, ChipState) or known.was_read:
        return known
    answered = tuple(sorted({*known.answered, CHIP_SOURCE}))
    return replace(known, answered=answered, silent=True)


def forgotten(known: SubjectState, because: str, context: RuleContext) -> None:
    """End all faults and upgrades of a chip that is to be forgotten, its separation too."""
    if isinstance(known, ChipState):
        _ended(known, because, context, with_isolation=True)


def _ended(
    known: ChipState, because: str, context: RuleContext, *, with_isolation: bool
) -> ChipState:
    for fault in known.faults.values():
        known = end(known, fault, because, context)
    for upgrade in known.upgrades:
        if with_isolation or upgrade.level is not ChipLevel.MANUALLY_SEPARATE_NPU:
            known = remove_upgrade(known, upgrade, because, context)
    counted = {upgrade.code for upgrade in known.upgrades}
    return replace(
        known, counters={code: one for code, one in known.counters.items() if code in counted}
    )
