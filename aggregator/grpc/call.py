"""Common code of all methods: decode the request, keep to the limit, refuse with a text.

Upstream's own refusals have the status UNKNOWN and a text: its clients read nothing else
(clusterd#5.4).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from aggregator.grpc.subscriptions import SubscriptionEnd

if TYPE_CHECKING:
    from pacing.token_bucket import TokenBucket
    from service.clock import Clock

_MAX_REFUSAL_CHARACTERS = 500

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Request = TypeVar("Request", bound=Message)
Method: TypeAlias = Callable[[Any, Any], Awaitable[Any]]


async def refuse(context: Context, reason: str) -> NoReturn:
    """End the call as upstream refuses one; a text that would not fit into a trailer is cut."""
    await context.abort(grpc.StatusCode.UNKNOWN, reason[:_MAX_REFUSAL_CHARACTERS])
    raise AssertionError("the call was ended")


def with_decoded_request(shape: type[Request], method: Method) -> Method:
    """Return ``method`` with its request decoded as ``shape``; gRPC passes it as bytes.

    Left to gRPC, each request that cannot be decoded would be a stack trace in the log.
    """

    async def call(content: bytes, context: Context) -> Any:
        try:
            request = shape.FromString(content)
        except DecodeError:
            await context.abort(
                grpc.StatusCode.INTERNAL, f"the request is not a valid {shape.__name__}"
            )
        return await method(request, context)

    return call


def unary(
    name: str, shape: type[Request], method: Method, bucket: TokenBucket, clock: Clock
) -> Any:
    """Return a handler of a method with one answer, within the limit that all of them share
    (clusterd#5.1).
    """
    read = with_decoded_request(shape, method)

    async def call(content: bytes, context: Context) -> Any:
        if bucket.wait_ms(clock().steady_ms):
            await refuse(context, f"qps exceeded, method={name}")
        bucket.take()
        return await read(content, context)

    return grpc.unary_unary_rpc_method_handler(call, response_serializer=_written)


def streaming(shape: type[Request], method: Method) -> Any:
    """Return a handler of a method that answers as long as the client is subscribed."""
    return grpc.unary_stream_rpc_method_handler(
        with_decoded_request(shape, method), response_serializer=_written
    )


def _written(message: Message) -> bytes:
    return message.SerializeToString()


async def end_stream(context: Context, reason: SubscriptionEnd | None) -> None:
    """End a stream whose workqueue was closed.

    A stream that was replaced ends without an error, as upstream's does. Others end with
    UNAVAILABLE, so that the client connects to the leader.
    """
    if reason is SubscriptionEnd.STOPPING:
        await context.abort(grpc.StatusCode.UNAVAILABLE, reason.value)
