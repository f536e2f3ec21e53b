"""``PubFault``: public faults by gRPC (``docs/spec/clusterd.md#4.1``). It is in no package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc

from aggregator.grpc.call import Context, unary
from aggregator.grpc.wire_messages import public_fault
from contract.errors import StoreError
from contract.wire import pubfault_pb2 as wire

if TYPE_CHECKING:
    from aggregator.grpc.interfaces import Send
    from pacing.token_bucket import TokenBucket
    from service.clock import Clock

NAME = "PubFault"


def methods(send: Send, bucket: TokenBucket, clock: Clock) -> dict[str, Any]:
    """Return the methods by name, as gRPC needs them. A refusal is an answer like any other."""

    async def call(request: wire.PublicFaultRequest, context: Context) -> wire.RespStatus:
        try:
            answer = await send(await public_fault(request))
        except StoreError as error:
            # This must be no acknowledgement: the next leader would not have the message.
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        return wire.RespStatus(code=answer.code, info=answer.info)

    shape = wire.PublicFaultRequest
    return {"SendPublicFault": unary(f"/{NAME}/SendPublicFault", shape, call, bucket, clock)}
