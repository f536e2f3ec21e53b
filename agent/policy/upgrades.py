"""The upgrades of a chip, reasons why codes have a higher level: adding and removing them.

Pure functions of one chip; a fault of the code follows at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from agent.policy.state import ChangeKind
from agent.policy.transaction import judged_again, level_of

if TYPE_CHECKING:
    from agent.policy.state import ChipState, Upgrade
    from agent.policy.transaction import Transaction
    from contract.observation import Subject


def with_upgrade(known: ChipState, upgrade: Upgrade) -> ChipState:
    """Return ``known`` with ``upgrade`` in the place of the one of the same code and kind."""
    kept = [one for one in known.upgrades if (one.code, one.kind) != (upgrade.code, upgrade.kind)]
    upgrades = sorted([*kept, upgrade], key=lambda one: (one.code, one.kind))
    return replace(known, upgrades=tuple(upgrades))


def add(
    known: ChipState,
    subject: Subject,
    upgrade: Upgrade,
    at_ms: int,
    draft: Transaction,
    because: str | None = None,
) -> ChipState:
    """Return ``known`` with ``upgrade``, new or at another level, and record the change."""
    old = level_of(known, upgrade.code)
    known = judged_again(draft.tables, with_upgrade(known, upgrade), subject, upgrade.code)
    new = level_of(known, upgrade.code)
    because = upgrade.because if because is None else because
    draft.note_upgrade(ChangeKind.UPGRADED, subject, upgrade, at_ms, because, old, new)
    return known


def remove(
    known: ChipState,
    subject: Subject,
    upgrade: Upgrade,
    at_ms: int,
    because: str,
    draft: Transaction,
) -> ChipState:
    """Return ``known`` without ``upgrade``, and record the change."""
    old = level_of(known, upgrade.code)
    left = tuple(one for one in known.upgrades if one is not upgrade)
    known = replace(known, upgrades=left)
    known = judged_again(draft.tables, known, subject, upgrade.code)
    new = level_of(known, upgrade.code)
    draft.note_upgrade(ChangeKind.RELEASED, subject, upgrade, at_ms, because, old, new)
    return known
