"""The way in for gRPC (``spec/clusterd.md`` 5.3, PubFault)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from contract.public_fault import Fault, Influence, PublicFault

if TYPE_CHECKING:
    from aggregator.moment import Clock
    from aggregator.public_faults.judging import Answer
    from aggregator.public_faults.part import PublicFaults
    from contract.wire import pubfault_pb2 as wire

PATIENCE_SECONDS = 4.0
"""Shorter than the 5 s for which senders wait."""


def received(request: wire.PublicFaultRequest) -> PublicFault:
    """The message in a request."""
    return PublicFault(
        request.id,
        request.timestamp,
        request.version,
        request.resource,
        [
            Fault(
                fault.faultId,
                fault.faultType,
                fault.faultCode,
                fault.faultTime,
                fault.assertion,
                dict(fault.faultLocation),
                [
                    Influence(about.nodeName, about.nodeSN, list(about.deviceIds))
                    for about in fault.influence
                ],
                fault.description,
            )
            for fault in request.faults
        ],
    )


async def answered(
    faults: PublicFaults,
    message: PublicFault,
    clock: Clock,
    patience_seconds: float = PATIENCE_SECONDS,
) -> Answer:
    """Take in a message, as soon as it is known which nodes there are.

    Where that takes too long the message is taken all the same and waits. The caller wakes whoever
    judges nodes (``take_changed_nodes``).
    """
    if not faults.ready.is_set():
        try:
            async with asyncio.timeout(patience_seconds):
                await faults.ready.wait()
        except TimeoutError:
            pass  # the answer says so
    return faults.send(message, clock())
