"""Answers who sends public faults: a success is a promise that no end of this process breaks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aggregator.public_faults.grpc_entry import answered
from aggregator.public_faults.validation import INVALID
from contract.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from aggregator.failover.persistent_state import PersistentState
    from aggregator.public_faults.plugin import PublicFaultsPlugin
    from aggregator.public_faults.validation import ValidationReply
    from contract.documents.public_fault import PublicFault
    from service.clock import Clock

_ANSWER_MS = 4500
_KEPT_MS = 500
"""Who sends public faults waits 5 s."""


async def kept_answer(
    faults: PublicFaultsPlugin,
    message: PublicFault,
    keeping: PersistentState,
    judge: Callable[[frozenset[str]], None],
    clock: Clock,
) -> ValidationReply:
    """Take in a message; answered once what it says is in the store.

    ``judge`` is told nodes that are to be judged again, which does not wait for that, and asks for
    the others itself. Raises
    ``StoreError`` where it is not kept in time: it is to be said again, which does no harm.
    """
    end_ms = clock().steady_ms + _ANSWER_MS
    try:
        answer = await answered(faults, message, clock)
    finally:
        # Also of what was taken in before the sender went: nobody else may ask for long.
        judge(faults.take_changed_nodes())
    if answer.code == INVALID:
        return answer
    left_ms = max(_KEPT_MS, end_ms - clock().steady_ms)
    try:
        async with asyncio.timeout(left_ms / 1000):
            await keeping.kept(faults.name)
    except TimeoutError:
        raise StoreUnavailable("it could not be kept in time: say it again") from None
    return answer
