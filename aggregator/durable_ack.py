"""Acknowledges public faults to their sender when the persistent state with them is stored."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

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
"""A sender of public faults waits 5 s for the answer; at least so much of it is left for the store.
"""


async def durable_answer(
    faults: PublicFaultsPlugin,
    message: PublicFault,
    persistent_state: PersistentState,
    judge: Callable[[frozenset[str]], None],
    clock: Clock,
) -> ValidationReply:
    """Apply a message; return the answer when the faults in it are in the store.

    ``judge`` receives the nodes that are to be judged again before that. Raises ``StoreError``
    where the faults are not stored in time: the sender may repeat the message, which changes
    nothing twice.
    """
    end_ms = clock().steady_ms + _ANSWER_MS
    try:
        answer = await faults.apply_when_ready(message, clock)
    finally:
        # Also if the sender went away: until the next message no other call pops these nodes.
        judge(faults.pop_changed_nodes())
    if answer.code == INVALID:
        return answer
    left_ms = max(_KEPT_MS, end_ms - clock().steady_ms)
    try:
        async with asyncio.timeout(left_ms / 1000):
            await persistent_state.wait_until_stored(faults.name)
    except TimeoutError:
        raise StoreUnavailable("it could not be stored in time: send it again") from None
    return answer
