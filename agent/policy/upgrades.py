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
    from agent.policy.transaction import RuleContext


def with_upgrade(known: ChipState, upgrade: Upgrade) -> ChipState:
    """Return ``known`` with ``upgrade`` in the place of the one of the same code and kind."""
    kept = [one for one in known.upgrades if (one.code, one.kind) != (upgrade.code, upgrade.kind)]
    upgrades = sorted([*kept, upgrade], key=lambda one: (one.code, one.kind))
    return replace(known, upgrades=tuple(upgrades))


def add(
    known: ChipState, upgrade: Upgrade, context: RuleContext, because: str | None = None
) -> ChipState:
    """Return ``known`` with ``upgrade``, new or at another level, and record the change."""
    old = level_of(known, upgrade.code)
    known = judged_again(with_upgrade(known, upgrade), upgrade.code, context)
    new = level_of(known, upgrade.code)
    context.note(ChangeKind.UPGRADED, upgrade, because or upgrade.because, old, new)
    return known


def remove(known: ChipState, upgrade: Upgrade, because: str, context: RuleContext) -> ChipState:
    """Return ``known`` without ``upgrade``, and record the change."""
    old = level_of(known, upgrade.code)
    left = tuple(one for one in known.upgrades if one is not upgrade)
    known = judged_again(replace(known, upgrades=left), upgrade.code, context)
    context.note(ChangeKind.RELEASED, upgrade, because, old, level_of(known, upgrade.code))
    return known


def expire(known: ChipState, upgrade: Upgrade, timeout_ms: int, context: RuleContext) -> ChipState:
    """Return ``known`` without ``upgrade``, whose code was gone for longer than ``timeout_ms``."""
    seconds = timeout_ms / 1000
    because = f"{upgrade.code} was gone for longer than {seconds:g} s ({upgrade.kind})"
    return remove(known, upgrade, because, context)
