"""Upgrades that only a document tells of, for an agent without a journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent import durations
from agent.draft import judged_again, level_of
from agent.state import Adopted, ChangeKind, ChipState, SubjectState, Upgrade
from contract.policies import FAULT_DURATION

if TYPE_CHECKING:
    from agent.draft import Draft


def adopt(known: SubjectState, item: Adopted, draft: Draft) -> SubjectState:
    """Take over an upgrade that is in nobody's journal: its time stays, its end is ours."""
    policy = draft.tables.durations.get(item.code)
    if not isinstance(known, ChipState) or policy is None or item.kind != FAULT_DURATION:
        return known
    if known.upgrade_of(item.code, FAULT_DURATION) is not None:
        return known
    fault = known.faults.get(item.code)
    because = f"{item.code} was upgraded before ({FAULT_DURATION})"
    upgrade = Upgrade(
        item.code,
        FAULT_DURATION,
        policy.level,
        item.upgraded_at_ms,
        because,
        draft.episode(item.subject, item.code, item.at_ms) if fault is None else fault.episode,
        draft.tables.severity_of(item.code) if fault is None else fault.severity,
        item.at_ms if fault is None or fault.once else None,
    )
    old = level_of(known, item.code)
    known = durations.adopted(known, upgrade)
    known = judged_again(draft.tables, known, item.subject, item.code)
    new = level_of(known, item.code)
    draft.note_upgrade(ChangeKind.UPGRADED, item.subject, upgrade, item.at_ms, because, old, new)
    return known
