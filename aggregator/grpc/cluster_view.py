"""The message about the whole cluster, made once for all clients (``docs/spec/clusterd.md#5.4``).

An answer about ten thousand ill nodes takes from a tenth to half a second to make, and every client
may request it ten times a second. So it is made once for all pending requests, and other tasks run
meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aggregator.grpc.fault_messages import CLUSTER
from aggregator.grpc.wire_messages import large_fault_signal
from contract.wire import fault_pb2 as wire

if TYPE_CHECKING:
    from aggregator.grpc.fault_messages import FaultMsgSignal
    from aggregator.grpc.interfaces import JobFaultLookup
    from service.clock import Clock

FOUND = 200
MANY = 500
"""Of no more ill nodes the answer is always the newest."""

HOLDS_MS = 3000
"""So old may one about more be, as upstream's is."""


class ClusterView:
    """The answer that was made last."""

    def __init__(self, faults: JobFaultLookup, clock: Clock) -> None:
        self._faults = faults
        self._clock = clock
        self._making = asyncio.Lock()
        self._of: FaultMsgSignal | None = None
        self._made_ms = 0
        self._answer = wire.FaultQueryResult()

    async def answer(self) -> wire.FaultQueryResult:
        """Return the message about the whole cluster as it is now."""
        async with self._making:
            message, now_ms = self._faults.cluster(), self._clock().steady_ms
            if not self._holds(message, now_ms):
                signal = await large_fault_signal(CLUSTER, message)
                self._answer = wire.FaultQueryResult(code=FOUND, info="Succeed", faultSignal=signal)
                self._of, self._made_ms = message, now_ms
            return self._answer

    def _holds(self, message: FaultMsgSignal, now_ms: int) -> bool:
        if message is self._of:
            return True
        is_young = self._of is not None and now_ms < self._made_ms + HOLDS_MS
        return is_young and len(message.nodes) > MANY
