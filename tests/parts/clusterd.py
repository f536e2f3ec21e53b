"""The receiving side of public faults: a real gRPC server, and what a real ClusterD makes of
messages (``docs/spec/clusterd.md#4.4``)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import grpc

from contract.wire import pubfault_pb2 as wire

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_RETRIES_SECONDS = 0.5
_DELETED_AFTER_SECONDS = 5.0


class FaultServer:
    """Serves ``PubFault`` and answers with ``codes`` in turn, then with 0."""

    def __init__(self, port: int = 0, codes: Iterable[int] = ()) -> None:
        self.messages: list[wire.PublicFaultRequest] = []
        self.codes = list(codes)
        self.peers: list[str] = []
        self.port = port
        self._server: grpc.Server | None = None

    def start(self, certificates: Path | None = None) -> None:
        """Listen on ``port``; with ``certificates`` over TLS, for clients with one of ours only."""
        server = grpc.server(ThreadPoolExecutor(2), options=[("grpc.so_reuseport", 0)])
        handler = grpc.unary_unary_rpc_method_handler(
            self._take,
            request_deserializer=wire.PublicFaultRequest.FromString,
            response_serializer=wire.RespStatus.SerializeToString,
        )
        generic = grpc.method_handlers_generic_handler("PubFault", {"SendPublicFault": handler})
        server.add_generic_rpc_handlers((generic,))
        address = f"127.0.0.1:{self.port}"
        if certificates is None:
            self.port = server.add_insecure_port(address)
        else:
            files = [certificates / name for name in ("server.key", "server.crt", "ca.crt")]
            key, certificate, authority = (file.read_bytes() for file in files)
            credentials = grpc.ssl_server_credentials([(key, certificate)], authority, True)
            self.port = server.add_secure_port(address, credentials)
        server.start()
        self._server = server

    def stop(self) -> None:
        """Do not listen any more."""
        if self._server is not None:
            self._server.stop(0).wait()
            self._server = None

    @property
    def assertions(self) -> list[tuple[str, str]]:
        """Return what was received and accepted, in order: code and assertion."""
        return [
            (fault.faultCode, fault.assertion)
            for message in self.messages
            for fault in message.faults
        ]

    def _take(
        self, request: wire.PublicFaultRequest, context: grpc.ServicerContext
    ) -> wire.RespStatus:
        self.peers.append(context.peer())
        code = self.codes.pop(0) if self.codes else 0
        if code == 0:
            self.messages.append(request)
        return wire.RespStatus(code=code, info="" if code == 0 else "as the test wants it")


class Cache:
    """The faults in a real ClusterD's cache: deletions are a queue, served one by one."""

    def __init__(self) -> None:
        self._added: dict[str, float] = {}
        self._deletions: list[tuple[float, str]] = []
        self._idle_until = 0.0

    def take(self, fault: str, occurs: bool, at: float) -> None:
        """Process a message that arrives at ``at`` (seconds)."""
        self.until(at)
        added = self._added.get(fault)
        if occurs:
            self._added.setdefault(fault, at)
        elif added is None:
            self._deletions.append((at + _DELETED_AFTER_SECONDS, fault))
        elif at - added >= _DELETED_AFTER_SECONDS:
            del self._added[fault]
        else:
            self._deletions.append((added + _DELETED_AFTER_SECONDS, fault))

    def until(self, at: float) -> set[str]:
        """Return the cached faults at ``at``."""
        while self._deletions:
            due, fault = self._deletions[0]
            served = max(due, self._idle_until)
            if served + _RETRIES_SECONDS > at:
                break
            self._idle_until = served
            self._added.pop(fault, None)
            del self._deletions[0]
        return set(self._added)
