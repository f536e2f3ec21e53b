"""One call of ClusterD's public fault service over a connection of its own.

Importing this module imports gRPC and protobuf: some 15 MiB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import grpc.aio

from contract.documents import public_fault_protobuf
from contract.wire import pubfault_pb2 as wire

if TYPE_CHECKING:
    from agent.publishing.fault_service_address import FaultServiceAddress
    from contract.documents.public_fault import PublicFault

_METHOD = "/PubFault/SendPublicFault"
_OPTIONS = [
    # A failure of an earlier connection must not affect this one.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
]


async def answer(
    address: FaultServiceAddress, message: PublicFault, deadline_seconds: float
) -> tuple[int | None, str]:
    """Send ``message``; return the code of the answer and its text, or ``None`` and the error."""
    try:
        async with _channel(address) as channel:
            call = channel.unary_unary(
                _METHOD,
                request_serializer=wire.PublicFaultRequest.SerializeToString,
                response_deserializer=wire.RespStatus.FromString,
            )
            response = await call(public_fault_protobuf.encode(message), timeout=deadline_seconds)
    except grpc.aio.AioRpcError as error:
        return None, f"{address.target}: {error.code().name}: {error.details()}"
    except OSError as error:
        return None, f"{error.filename}: {error.strerror}"
    return response.code, f"{address.target}: {response.code} {response.info}".rstrip()


def _channel(address: FaultServiceAddress) -> grpc.aio.Channel:
    # TLS only where a CA is configured: upstream's NodeD calls this service in plain text
    # (noded#4.5).
    if address.ca_file is None:
        return grpc.aio.insecure_channel(address.target, options=_OPTIONS)
    certificate, key = (
        None if file is None else file.read_bytes()
        for file in (address.certificate_file, address.key_file)
    )
    credentials = grpc.ssl_channel_credentials(address.ca_file.read_bytes(), key, certificate)
    return grpc.aio.secure_channel(address.target, credentials, options=_OPTIONS)
