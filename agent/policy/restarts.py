"""What a start keeps of the state in which the last process was."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from contract.observation import NODE

if TYPE_CHECKING:
    from agent.policy.state import State


def restarted(state: State, boot_id: str) -> State:
    """``state`` for a process that begins on the boot ``boot_id``.

    Who spoke for the node as a whole spoke to another process: a document that may have to be
    deleted waits until its source has answered this one.
    """
    others = {text: known for text, known in state.others.items() if text != str(NODE)}
    return replace(state, boot_id=boot_id, others=others)
