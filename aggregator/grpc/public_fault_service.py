"""``PubFault``: public faults by gRPC (``docs/spec/clusterd.md#4.1``). It is in no package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc

from aggregator.grpc.call import Context, unary
from contract.documents.public_fault_protobuf import decode
from contract.errors import StoreError
from contract.wire import pubfault_pb2 as wire
from pacing.cooperative import in_pieces

if TYPE_CHECKING:
    from aggregator.grpc.interfaces import Send
    from pacing.token_bucket import TokenBucket
    from service.clock import Clock

NAME = "PubFault"
_MANY = 100
"""Influences after which other tasks have their turn."""


def methods(send: Send, bucket: TokenBucket, clock: Clock) -> dict[str, Any]:
    """Return the methods by name, as gRPC needs them. A refusal is an answer like any other."""

    async def call(request: wire.PublicFaultRequest, context: Context) -> wire.RespStatus:
        try:
            answer = await send(await in_pieces(decode(request), _MANY))
        except StoreError as error:
            # This must be no acknowledgement: the next leader would not have the message.
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        return wire.RespStatus(code=answer.code, info=answer.info)

    shape = wire.PublicFaultRequest
    return {"SendPublicFault": unary(f"/{NAME}/SendPublicFault", shape, call, bucket, clock)}
