"""The way in for gRPC (``docs/spec/clusterd.md#5.3``, PubFault)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator.public_faults.values import PIECE
from pacing.cooperative import in_pieces
from pacing.waiting import is_set_within

if TYPE_CHECKING:
    from aggregator.public_faults.plugin import PublicFaultsPlugin
    from aggregator.public_faults.validation import ValidationReply
    from contract.documents.public_fault import PublicFault
    from service.clock import Clock

PATIENCE_SECONDS = 4.0
"""Shorter than the 5 s for which senders wait."""


async def answered(
    faults: PublicFaultsPlugin,
    message: PublicFault,
    clock: Clock,
    patience_seconds: float = PATIENCE_SECONDS,
) -> ValidationReply:
    """Apply a message, as soon as it is known which nodes there are.

    Where that takes too long the message is accepted all the same and waits. The caller passes
    ``pop_changed_nodes`` to the pipeline.
    """
    if not faults.ready.is_set():
        await is_set_within(faults.ready, patience_seconds)  # the answer shows it
    async with faults.turn:
        return await in_pieces(faults.sending(message, clock()), PIECE)
