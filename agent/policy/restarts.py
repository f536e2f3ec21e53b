"""What a restart keeps of the state of the last process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from agent.policy.state import CHIP_SOURCE
from contract.observation import NODE

if TYPE_CHECKING:
    from agent.policy.state import ChipState, PolicyState


def restarted(state: PolicyState, boot_id: str) -> PolicyState:
    """Return ``state`` for a process that begins on the boot ``boot_id``.

    The answers about the node as a whole were answers to another process: a document that may have
    to be deleted waits until its source has answered this one. So were those of each chip, which is
    silent until it answers.
    """
    others = {text: known for text, known in state.others.items() if text != str(NODE)}
    chips = {chip: _silent(known) for chip, known in state.chips.items()}
    return replace(state, boot_id=boot_id, others=others, chips=chips)


def _silent(known: ChipState) -> ChipState:
    blind = {source: why for source, why in known.blind.items() if source != CHIP_SOURCE}
    return replace(known, silent=known.was_read, blind=blind)
