"""The gRPC server: serves while this replica leads, over mutual TLS unless configured otherwise.

``PubFault`` (``docs/spec/clusterd.md#4.1``), which is in no package, and ``config.Config``, the
global rank table of a MindIE service (``docs/spec/clusterd.md#5.5``), are here; the service of
fault messages is ``fault_service.py``.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from aggregator.grpc.call import Context, end_stream, refuse, streaming, unary
from aggregator.grpc.endpoint import TlsMaterial
from aggregator.grpc.fault_service import NAME as FAULT_SERVICE
from aggregator.grpc.fault_service import FaultService
from aggregator.grpc.interfaces import GrpcStatus
from aggregator.grpc.subscriptions import MAX_ID_BYTES, Subscriber, SubscriberLog, Subscriptions
from contract.documents.public_fault_protobuf import decode
from contract.errors import ListenError, StoreError
from contract.wire import config_pb2, pubfault_pb2
from pacing.cooperative import run_in_slices
from pacing.token_bucket import TokenBucket
from pacing.waiting import wait_for_event
from service.log.ongoing_failure import OngoingFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aggregator.grpc.endpoint import GrpcEndpoint
    from aggregator.grpc.interfaces import JobFaultLookup, RankTableLookup, Send
    from service.clock import Clock

PUBLIC_FAULT_SERVICE = "PubFault"
_INFLUENCES_OF_A_SLICE = 100
"""Influences of a public fault after which other tasks have their turn."""


def public_fault_methods(send: Send, bucket: TokenBucket, clock: Clock) -> dict[str, Any]:
    """Return the methods by name, as gRPC needs them. A refusal is an answer like any other."""

    async def call(
        request: pubfault_pb2.PublicFaultRequest, context: Context
    ) -> pubfault_pb2.RespStatus:
        try:
            answer = await send(await run_in_slices(decode(request), _INFLUENCES_OF_A_SLICE))
        except StoreError as error:
            # This must not be an acknowledgement: the next leader would not have the message.
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        return pubfault_pb2.RespStatus(code=answer.code, info=answer.info)

    shape = pubfault_pb2.PublicFaultRequest
    return {
        "SendPublicFault": unary(
            f"/{PUBLIC_FAULT_SERVICE}/SendPublicFault", shape, call, bucket, clock
        )
    }


RANK_TABLE_SERVICE = "config.Config"
_REGISTERED = config_pb2.Status(code=0, info="register success")
_ONE = ""
"""A jobID has one client here: upstream does not look at its role."""


class RankTableService:
    """Pushes the table of a jobID when it is whole, and again when it changed."""

    def __init__(self, tables: RankTableLookup, clock: Clock) -> None:
        self.subscriptions = Subscriptions()
        self.sent = 0
        self._tables = tables
        self._clock = clock
        self._log = SubscriberLog("its rank table", clock)

    def methods(self, bucket: TokenBucket) -> dict[str, Any]:
        """Return the methods by name, as gRPC needs them."""
        request_shape = config_pb2.ClientInfo
        return {
            "Register": unary(
                f"/{RANK_TABLE_SERVICE}/Register",
                request_shape,
                self._register,
                bucket,
                self._clock,
            ),
            "SubscribeRankTable": streaming(request_shape, self._subscribe),
        }

    def changed(self, jobs: Iterable[str]) -> None:
        """Queue the jobIDs whose tables changed, came or went."""
        for job in jobs:
            for workqueue in self.subscriptions.listening(job):
                workqueue.add(job)

    async def _register(
        self, request: config_pb2.ClientInfo, context: Context
    ) -> config_pb2.Status:
        client = Subscriber(request.jobId, _ONE)
        if len(client.job.encode()) > MAX_ID_BYTES:
            await refuse(context, f"the jobId is longer than {MAX_ID_BYTES} bytes")
        now_ms = self._clock().steady_ms
        if not self.subscriptions.has_room(client, now_ms):
            await refuse(context, f"jobId={client.job}: too many are served already")
        self.subscriptions.register(client, now_ms)
        return _REGISTERED

    async def _subscribe(self, request: config_pb2.ClientInfo, context: Context) -> None:
        client = Subscriber(request.jobId, _ONE)
        if not self.subscriptions.is_registered(client, self._clock().steady_ms):
            await refuse(context, f"jobId={client.job} role={request.role} is not registered")
        workqueue = self.subscriptions.subscribe(client)
        self._log.subscribed(client)
        try:
            workqueue.add(client.job)
            sent: str | None = None
            while (job := await workqueue.pop()) is not None:
                text = self._tables.text(job)
                if text is not None and text != sent:
                    sent = text
                    await context.write(config_pb2.RankTableStream(jobId=job, rankTable=text))
                    self.sent += 1
            await end_stream(context, workqueue.closed)
        finally:
            self.subscriptions.end(client, workqueue)
            self._log.ended(client, workqueue.closed)


_log = logging.getLogger(__name__)

MAX_BYTES_RECEIVED = 4 << 20
MAX_BYTES_SENT = 8 << 20
MAX_STREAMS = 64
"""Of one connection."""
MAX_CONNECTIONS = 1024
CALLS_PER_SECOND = 1000

_OPTIONS = [
    ("grpc.max_receive_message_length", MAX_BYTES_RECEIVED),
    ("grpc.max_send_message_length", MAX_BYTES_SENT),
    ("grpc.max_concurrent_streams", MAX_STREAMS),
    ("grpc.max_allowed_incoming_connections", MAX_CONNECTIONS),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 3_000),
    # Two servers on one port would each get a part of the clients.
    ("grpc.so_reuseport", 0),
]
_GRACE_SECONDS = 0.5
_RETRY_SECONDS = 1.0
_FIRST_SECONDS = 0.5


class GrpcServer:
    """ClusterD's services. Only the leader listens, so clients find it behind the Service.

    A client that was refused on an open connection would send its requests there again and again;
    one that cannot connect tries another replica.

    The server can be made in any thread; its methods are for the loop. Raises
    ``ConfigurationError`` for files that cannot be used. ``subscriptions_changed`` receives each
    client that subscribes to faults or leaves; ``jobs_of`` is up to date by then.
    """

    def __init__(
        self,
        endpoint: GrpcEndpoint,
        faults: JobFaultLookup,
        tables: RankTableLookup,
        send: Send,
        clock: Clock,
        subscriptions_changed: Callable[[Subscriber], None] = lambda _: None,
    ) -> None:
        self._endpoint = endpoint
        self._tls = None if endpoint.tls is None else TlsMaterial(endpoint.tls)
        self._send = send
        self._clock = clock
        self._faults = FaultService(faults, clock, subscriptions_changed)
        self._tables = RankTableService(tables, clock)
        self._server: grpc.aio.Server | None = None
        self._trying: asyncio.Task[None] | None = None
        self.trouble = OngoingFailure(_log, "%s; trying again", level=logging.ERROR)
        """Why it does not listen although this replica leads."""
        self.port: int | None = None
        """Where it listens; ``None`` while it does not."""

    async def start(self) -> None:
        """Listen. Raises ``ListenError`` where the address cannot be had."""
        await _check_free(self._endpoint.listen)
        server = grpc.aio.server(options=_OPTIONS)
        bucket = TokenBucket(CALLS_PER_SECOND, CALLS_PER_SECOND)
        clock = self._clock
        for name, methods in (
            (PUBLIC_FAULT_SERVICE, public_fault_methods(self._send, bucket, clock)),
            (FAULT_SERVICE, self._faults.methods(bucket)),
            (RANK_TABLE_SERVICE, self._tables.methods(bucket)),
        ):
            handler = grpc.method_handlers_generic_handler(name, methods)
            server.add_generic_rpc_handlers((handler,))
        self.port = self._bind(server)
        self._server = server
        await server.start()
        how = "in plain text, for whoever can connect" if self._tls is None else "over mutual TLS"
        _log.info("serving gRPC on %s, %s", self._address(self.port), how)

    async def set_leading(self, leading: bool) -> None:
        """Listen while this replica leads, and only then.

        Name resolution may take long, so this waits for it at most a moment. An address that is in
        use, as while an earlier leader on the same host is paused, is tried again and again
        (``not_served``): publishing does not wait for it.
        """
        await self.stop()
        if leading:
            tried = asyncio.Event()
            self._trying = asyncio.create_task(self._listen(tried), name="listen for gRPC")
            await wait_for_event(tried, _FIRST_SECONDS)

    @property
    def not_served(self) -> str | None:
        """Why it does not listen although this replica leads."""
        if self._trying is None or self.port is not None:
            return None
        return self.trouble.reason or f"gRPC does not listen on {self._endpoint.listen} yet"

    async def _listen(self, tried: asyncio.Event) -> None:
        while not await self._try():
            tried.set()
            await asyncio.sleep(_RETRY_SECONDS)
        tried.set()

    async def _try(self) -> bool:
        try:
            await self.start()
        except ListenError as error:
            self.trouble.record_failure(str(error))
            return False
        self.trouble.end()
        return True

    async def stop(self) -> None:
        """End all streams at once, so that clients connect to the new leader."""
        trying, self._trying = self._trying, None
        self.trouble.end()
        if trying is not None:
            trying.cancel()
            await asyncio.gather(trying, return_exceptions=True)
        server, self._server, self.port = self._server, None, None
        if server is not None:
            self._faults.subscriptions.close()
            self._tables.subscriptions.close()
            await server.stop(_GRACE_SECONDS)
            _log.info("serving gRPC no more")

    def changed(self, jobs: Iterable[str]) -> None:
        """Queue jobs and jobIDs whose ``JobFaultLookup`` message changed, or that came or went."""
        self._faults.changed(jobs, serves=self.port is not None)

    def tables_changed(self, jobs: Iterable[str]) -> None:
        """Queue the jobIDs whose rank tables changed."""
        self._tables.changed(jobs)

    def jobs_of(self, role: str) -> frozenset[str]:
        """Return the jobs and jobIDs to whose faults a client of this role is subscribed
        (clusterd#3.3).
        """
        clients = self._faults.subscriptions.subscribed
        return frozenset(client.job for client in clients if client.role == role)

    def status(self) -> GrpcStatus:
        """Return the state of the server now."""
        both = (self._faults, self._tables)
        return GrpcStatus(
            address=None if self.port is None else self._address(self.port),
            plaintext=self._tls is None,
            registered=sum(service.subscriptions.registered for service in both),
            subscribers=sum(len(service.subscriptions.subscribed) for service in both),
            sent=sum(service.sent for service in both),
            tls_problem=None if self._tls is None else self._tls.problem.reason,
            trouble=self.trouble.reason,
        )

    def _address(self, port: int) -> str:
        return f"{self._endpoint.listen.rpartition(':')[0]}:{port}"

    def _bind(self, server: grpc.aio.Server) -> int:
        listen = self._endpoint.listen
        try:
            if self._tls is None:
                return server.add_insecure_port(listen)
            return server.add_secure_port(listen, _credentials(self._tls))
        except RuntimeError as error:
            raise ListenError(f"cannot serve gRPC on {listen}: {error}") from None


async def _check_free(listen: str) -> None:
    """Raise ``ListenError`` with the reason, which gRPC itself does not report."""
    host, _, port = listen.rpartition(":")
    try:
        # Not in the loop's own thread: the name server may be away.
        addresses = await asyncio.get_running_loop().getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = addresses[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        raise ListenError(f"cannot serve gRPC on {listen}: {error.strerror}") from None
    except UnicodeError:
        raise ListenError(
            f"cannot serve gRPC on {listen}: {host} is not a valid host name"
        ) from None


def _credentials(material: TlsMaterial) -> Any:
    """Return TLS credentials that demand a certificate of every client, and check for new files at
    each connection.
    """

    def configuration() -> Any:
        pem = material.content
        return grpc.ssl_server_certificate_configuration(
            [(pem.key, pem.certificate)], root_certificates=pem.client_ca
        )

    def newer() -> Any:
        return configuration() if material.refresh() else None

    return grpc.dynamic_ssl_server_credentials(
        configuration(), newer, require_client_authentication=True
    )
