"""A job view that tests change, and a real server in front of it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc.aio
import msgspec
import pytest

from aggregator.grpc.endpoint import GrpcEndpoint, TlsFiles
from aggregator.grpc.interfaces import (
    CLUSTER,
    FAULT,
    NORMAL,
    DeviceFaultInfo,
    FaultMsgSignal,
    NodeFaultInfo,
)
from aggregator.grpc.server import GrpcServer
from service.clock import system_clock
from tests.parts.deadlines import patience, until, until_succeeds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection
    from pathlib import Path

    from aggregator.grpc.subscriptions import Subscriber
    from contract.documents.public_fault import PublicFault
    from service.clock import Clock
    from tests.aggregator.grpc.upstream import Client, Stream

JOB = "11111111-1111-4111-8111-111111111111"
OTHER = "22222222-2222-4222-8222-222222222222"
REGISTER, SUBSCRIBE = "fault.Fault/Register", "fault.Fault/SubscribeFaultMsgSignal"
GET = "fault.Fault/GetFaultMsgSignal"
EVERYBODY = {"jobId": "", "role": "observer"}


def node_faults(name: str, *devices: DeviceFaultInfo, address: str = "") -> NodeFaultInfo:
    """Return an unhealthy node."""
    return NodeFaultInfo(name, address, f"SN-{name}", "UnHealthy", devices)


def normal(job: str) -> FaultMsgSignal:
    """Return the message about a job with which nothing is wrong."""
    return FaultMsgSignal(job, NORMAL)


def faulty(job: str, *codes: str, node: str = "n1") -> FaultMsgSignal:
    """Return the message about a job with a chip that has these codes."""
    device = DeviceFaultInfo("1", "NPU", codes, "UnHealthy")
    return FaultMsgSignal(job, FAULT, (node_faults(node, device, address="192.168.0.1"),))


class Answer(msgspec.Struct, frozen=True):
    code: int
    info: str


class Bench:
    """Jobs, tables and public faults; the server is informed of what changes."""

    def __init__(self) -> None:
        self.jobs: dict[str, FaultMsgSignal] = {}
        self.instances: dict[str, str] = {}
        """jobID to the app of one of its jobs."""
        self.view = normal(CLUSTER)
        self.tables: dict[str, str] = {}
        self.received: list[PublicFault] = []
        self.held: asyncio.Event | None = None
        """Keeps answers back."""
        self.answer = Answer(0, "public fault send successfully")
        self.turned: list[tuple[Subscriber, bool]] = []
        self.server: GrpcServer | None = None

    def knows(self, job_id: str, role: str) -> bool:
        return job_id in self.jobs or self.instances.get(job_id) == role

    def message(self, job_id: str) -> FaultMsgSignal | None:
        return self.jobs.get(job_id)

    def faulty(self) -> Collection[str]:
        return {
            key
            for key, message in self.jobs.items()
            if message.signal_type == "fault" and key not in self.instances
        }

    def cluster(self) -> FaultMsgSignal:
        return self.view

    def text(self, job_id: str) -> str | None:
        return self.tables.get(job_id)

    async def send(self, message: PublicFault) -> Answer:
        self.received.append(message)
        if self.held is not None:
            await self.held.wait()
        return self.answer

    def put(self, message: FaultMsgSignal) -> None:
        """Set the state of a job to ``message``."""
        self.jobs[message.job_id] = message
        assert self.server is not None
        self.server.changed([message.job_id])

    def drop(self, job_id: str) -> None:
        """Remove a job."""
        del self.jobs[job_id]
        assert self.server is not None
        self.server.changed([job_id])

    def tabulate(self, job_id: str, text: str) -> None:
        """Change a rank table."""
        self.tables[job_id] = text
        assert self.server is not None
        self.server.tables_changed([job_id])

    def on_turn(self, client: Subscriber) -> None:
        assert self.server is not None
        self.turned.append((client, client.job in self.server.jobs_of(client.role)))

    def make(
        self, tls: TlsFiles | None = None, clock: Clock = system_clock, listen: str = "127.0.0.1:0"
    ) -> GrpcServer:
        """Return a server that does not run yet."""
        self.server = GrpcServer(
            GrpcEndpoint(listen, tls),
            self,
            self,
            self.send,
            clock,
            subscriptions_changed=self.on_turn,
        )
        return self.server

    @property
    def target(self) -> str:
        """Return the address of the server."""
        assert self.server is not None
        assert self.server.port is not None
        return f"127.0.0.1:{self.server.port}"

    @asynccontextmanager
    async def serving(self, **options: Any) -> AsyncIterator[str]:
        """Serve until the end of the block; gives the address."""
        self.make(**options)
        async with self.serving_again() as target:
            yield target

    @asynccontextmanager
    async def serving_again(self) -> AsyncIterator[str]:
        """Serve again with the server that was made."""
        assert self.server is not None
        await self.server.start()
        try:
            yield self.target
        finally:
            await self.server.stop()


def tls_files(place: Path) -> TlsFiles:
    """Return the server's files, as ``tests/parts/certificates.py`` names them."""
    return TlsFiles(place / "server.crt", place / "server.key", place / "ca.crt")


async def subscribed(client: Client, bench: Bench, who: dict[str, str]) -> Stream:
    """Register and subscribe; the server has taken it in."""
    assert await client.ask(REGISTER, who) == {"info": "register success"}
    before = len(bench.turned)
    stream = client.listen(SUBSCRIBE, who)
    await until(lambda: len(bench.turned) > before)
    return stream


async def refused(call: object) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call  # type: ignore[misc]
    return caught.value.code(), caught.value.details() or ""


async def pushed(stream: Stream) -> tuple[str, str, list[str]]:
    """Return job, signal and codes of the next message."""
    message = await asyncio.wait_for(stream.next(), patience(20))
    assert message is not None
    nodes = message.get("nodeFaultInfo", [])
    codes = [code for node in nodes for one in node["faultDevice"] for code in one["faultCodes"]]
    return message["jobId"], message["signalType"], codes


async def until_answered(client: Client) -> None:
    """Repeat the request until it is answered, as clients do."""

    async def ask() -> None:
        try:
            await client.ask(GET)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                raise ConnectionError from error
            raise

    await until_succeeds(ask, ConnectionError)
