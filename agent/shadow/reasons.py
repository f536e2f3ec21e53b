"""Why the real Device Plugin may differ: its known defects, where a difference shows which it is.

The ids are those of ``device-plugin#9``; ``docs/compatibility.md`` has what ours does instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.codes.chip_codes import LINK_DOWN
from contract.codes.levels import ChipLevel, most_serious
from contract.codes.policies import AUTOFILL_CODE
from contract.pages.agent_status import Field
from contract.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.shadow.difference import DocumentDifference, Facts


class Background(Record, frozen=True):
    """What is known beside the documents.

    ``is_known``: whether a code of chips is in a level table. ``is_link_blind``: whether the tool
    for links gives no answer about a device.
    """

    is_known: Callable[[str], bool]
    is_link_blind: Callable[[str], bool]


def defect_of(first: DocumentDifference, theirs: Facts, background: Background) -> str | None:
    """Return the id of the defect that explains ``first``, the first difference of a device.

    ``theirs`` are all facts of the Device Plugin's document; ``None`` where no defect is known.
    """
    fact, device = first.fact, first.fact.device
    match fact.field:
        case Field.CODE_LEVEL if not background.is_known(fact.detail):
            milder = (first.theirs, first.ours) == (
                ChipLevel.NOT_HANDLE_FAULT,
                ChipLevel.SEPARATE_NPU,
            )
            return "K08" if milder else None
        case Field.FAULT_LEVEL if _is_autofilled(theirs, device):
            return "K04"
        case Field.FAULT_LEVEL if _hides_unknown(first, theirs, background):
            return "K07"
        case Field.FAULT_CODE if fact.detail == LINK_DOWN and first.ours is None:
            return "K17" if background.is_link_blind(device) else None
        case Field.MANUALLY_SEPARATED if first.theirs is None:
            return "K01, K02 or K03"
        case Field.SWITCH_FAULT if first.ours == "1" and first.theirs is not None:
            return "K23"
    return None


def _is_autofilled(theirs: Facts, device: str) -> bool:
    """Return whether the document separates the chip without effect on its lists."""
    return any(
        fact.field is Field.UPGRADE_REASON
        and fact.device == device
        and fact.detail.startswith(AUTOFILL_CODE)
        for fact in theirs
    )


def _hides_unknown(first: DocumentDifference, theirs: Facts, background: Background) -> bool:
    """Return whether the level of the chip is milder than that of one of its codes without a
    table.
    """
    levels = {
        fact.detail: level
        for fact, level in theirs.items()
        if fact.field is Field.CODE_LEVEL and fact.device == first.fact.device
    }
    words = frozenset(ChipLevel)
    if first.theirs not in words or not words.issuperset(levels.values()):
        return False
    level = ChipLevel(first.theirs)
    worse = (
        code for code, own in levels.items() if most_serious([level, ChipLevel(own)]) is not level
    )
    return any(not background.is_known(code) for code in worse)
