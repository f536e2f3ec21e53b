"""Limits of the services, by the clock that is passed in (``clusterd#5.1``, 5.4; B30)."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
import threading
from functools import partial

import grpc
import grpc.aio
import pytest

from aggregator.grpc.fault_service import HOLDS_MS, MANY
from aggregator.grpc.interfaces import FAULT, FaultMsgSignal
from aggregator.grpc.server import CALLS_PER_SECOND, MAX_BYTES_RECEIVED, MAX_CONNECTIONS
from aggregator.grpc.subscriptions import (
    LEASE_MS,
    MAX_JOBS,
    MAX_ROLES,
    SubscriberWorkqueue,
    SubscriptionEnd,
    Subscriptions,
)
from aggregator.grpc.subscriptions import Subscriber as Who
from aggregator.grpc.wire_messages import large_fault_signal
from contract.errors import ListenError
from service.clock import Instant
from tests.aggregator.grpc.bench import Bench, node_faults, normal, refused, until_answered
from tests.aggregator.grpc.upstream import Client, Stream
from tests.parts.deadlines import patience, stays, until

GET, REGISTER = "fault.Fault/GetFaultMsgSignal", "fault.Fault/Register"
JOB = "11111111-1111-4111-8111-111111111111"


class Hand:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.ms = 5_000

    def __call__(self) -> Instant:
        return Instant(1_790_000_000_000 + self.ms, self.ms)


async def test_a_workqueue_has_each_name_once() -> None:
    box = SubscriberWorkqueue()
    for name in "abaca":
        box.add(name)
    assert len(box) == 3
    assert [await box.pop() for _ in range(3)] == ["a", "b", "c"]
    waiting = asyncio.ensure_future(box.pop())
    await asyncio.sleep(0)
    assert not waiting.done()
    box.add("d")
    assert await waiting == "d"
    waiting = asyncio.ensure_future(box.pop())
    await asyncio.sleep(0)
    box.close(SubscriptionEnd.STOPPING)
    box.close(SubscriptionEnd.REPLACED)
    box.add("e")
    assert await waiting is None
    assert box.closed is SubscriptionEnd.STOPPING
    assert len(box) == 0


def test_client_that_registers_and_never_subscribes_is_forgotten() -> None:
    register = Subscriptions()
    idle, busy = Who("j1", "r"), Who("j2", "r")
    register.register(idle, 0)
    register.register(busy, 0)
    box = register.subscribe(busy)
    assert register.is_registered(idle, LEASE_MS - 1)
    assert not register.is_registered(idle, 2 * LEASE_MS)
    assert register.is_registered(busy, 1000 * LEASE_MS)
    assert register.registered == 1
    assert register.subscribed == frozenset({busy})
    register.end(busy, box)
    assert register.registered == 0


def test_an_old_stream_that_ends_does_not_end_the_new_one() -> None:
    register = Subscriptions()
    who = Who("j1", "r")
    register.register(who, 0)
    old = register.subscribe(who)
    register.register(who, 0)
    assert old.closed is SubscriptionEnd.REPLACED
    register.end(who, old)
    assert register.is_registered(who, 0)
    new = register.subscribe(who)
    register.end(who, old)
    assert register.subscribed == frozenset({who})
    assert register.subscribe(who) is not new
    assert new.closed is SubscriptionEnd.REPLACED


@pytest.mark.slow
def test_ten_thousand_jobs_and_no_more_until_some_are_forgotten() -> None:
    register = Subscriptions()
    for number in range(MAX_JOBS):
        assert register.has_room(Who(f"j{number}", "r"), 0)
        register.register(Who(f"j{number}", "r"), 0)
    assert not register.has_room(Who("one-more", "r"), 0)
    assert register.has_room(Who("j1", "another role"), 0)
    for number in range(MAX_ROLES - 1):
        register.register(Who("j1", f"r{number}"), 0)
    assert not register.has_room(Who("j1", "one more"), 0)
    assert register.has_room(Who("j1", "r5"), 0)
    assert register.has_room(Who("one-more", "r"), 2 * LEASE_MS)


async def test_questions_beyond_the_limit() -> None:
    clock = Hand()
    async with Bench().serving(clock=clock) as target, Client(target) as client:
        first = asyncio.gather(*(client.ask(GET) for _ in range(10)))
        assert all(answer["code"] == 200 for answer in await first)
        waiting = {asyncio.ensure_future(client.ask(GET)) for _ in range(54)}
        refusals: list[BaseException] = []
        while len(refusals) < 4:  # 50 wait, whatever their order; the others are refused at once
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            refusals += [error for task in done if (error := task.exception()) is not None]
        for error in refusals:
            assert isinstance(error, grpc.aio.AioRpcError)
            assert error.code() is grpc.StatusCode.UNKNOWN
            assert "rate limited" in (error.details() or "")
        for call in waiting:
            call.cancel()
        clock.ms += 60_000
        assert (await client.ask(GET))["code"] == 200


async def test_one_answer_about_many_ill_nodes_serves_all_who_ask() -> None:
    clock, bench = Hand(), Bench()

    def ill(number: int) -> FaultMsgSignal:
        return FaultMsgSignal("-1", FAULT, tuple(node_faults(f"n{n}") for n in range(number)))

    async def ask(client: Client) -> tuple[str, int]:
        clock.ms += 100
        signal = (await client.ask(GET))["faultSignal"]
        return signal["uuid"], len(signal.get("nodeFaultInfo", ()))

    async with bench.serving(clock=clock) as target, Client(target) as client:
        bench.view = ill(MANY)
        first = await ask(client)
        assert await ask(client) == first
        bench.view = ill(MANY - 1)
        assert (await ask(client))[1] == MANY - 1
        bench.view = ill(MANY + 1)
        assert (await ask(client))[1] == MANY - 1, "it is younger than three seconds"
        clock.ms += HOLDS_MS
        assert (await ask(client))[1] == MANY + 1
        bench.view = normal("-1")
        assert (await ask(client))[1] == 0


async def test_many_nodes_leave_others_their_turn() -> None:
    message = FaultMsgSignal("-1", FAULT, tuple(node_faults(f"n{n}") for n in range(1000)))
    making = asyncio.create_task(large_fault_signal("-1", message))
    turns = 0
    while not making.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 10
    assert [node.nodeName for node in (await making).nodeFaultInfo] == [
        node.node_name for node in message.nodes
    ]


@pytest.mark.slow
async def test_calls_of_all_kinds_share_one_limit() -> None:
    clock, bench = Hand(), Bench()
    async with bench.serving(clock=clock) as target, Client(target) as client:
        who = {"jobId": "", "role": "r"}
        for _ in range(CALLS_PER_SECOND // 50):
            await asyncio.gather(*(client.ask(REGISTER, who) for _ in range(50)))
        for method in (REGISTER, "PubFault/SendPublicFault", "config.Config/Register"):
            code, text = await refused(client.ask(method))
            assert (code, text) == (
                grpc.StatusCode.UNKNOWN,
                f"qps exceeded, method=/{method}",
            )
        assert bench.received == []
        stream = client.listen("fault.Fault/SubscribeFaultMsgSignal", who)
        await until(lambda: bench.turned)  # streams are not limited
        stream.cancel()
        clock.ms += 1
        await client.ask(REGISTER, who)


async def test_a_registration_that_came_to_nothing_makes_room() -> None:
    clock, bench = Hand(), Bench()
    bench.jobs = {JOB: normal(JOB)}
    async with bench.serving(clock=clock) as target, Client(target) as client:
        await client.ask(REGISTER, {"jobId": JOB, "role": "r"})
        await client.ask("config.Config/Register", {"jobId": "inference"})
        assert bench.server is not None
        assert bench.server.status().registered == 2
        clock.ms += 2 * LEASE_MS
        for method in ("fault.Fault/SubscribeFaultMsgSignal", "config.Config/SubscribeRankTable"):
            code, text = await refused(client.listen(method, {"jobId": JOB, "role": "r"}).next())
            assert (code, "not registered" in text) == (grpc.StatusCode.UNKNOWN, True)
        assert bench.server.status().registered == 0


@pytest.mark.slow
async def test_a_message_that_is_too_long() -> None:
    async with Bench().serving() as target, Client(target) as client:
        code, _ = await refused(client.ask(GET, {"jobId": "x" * MAX_BYTES_RECEIVED}))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        code, text = await refused(client.ask(GET, {"jobId": "x" * (MAX_BYTES_RECEIVED - 100)}))
        assert (code, text.endswith("xxx")) == (grpc.StatusCode.UNKNOWN, True)


@pytest.mark.slow
async def test_more_streams_on_one_connection_wait() -> None:
    bench = Bench()
    async with bench.serving() as target, Client(target) as client, Client(target) as other:
        streams = []
        for number in range(MAX_ROLES):
            who = {"jobId": "-1", "role": f"r{number}"}
            await client.ask(REGISTER, who)
            streams.append(client.listen("fault.Fault/SubscribeFaultMsgSignal", who))
        await until(lambda: len(bench.turned) == 64)
        waiting = asyncio.ensure_future(client.ask(GET))
        assert (await other.ask(GET))["code"] == 200
        assert not waiting.done()
        streams[0].cancel()
        assert (await waiting)["code"] == 200


@pytest.mark.slow
async def test_more_connections_than_are_let_in() -> None:
    async with Bench().serving() as target:
        host, _, port = target.rpartition(":")
        held = [await asyncio.open_connection(host, int(port)) for _ in range(MAX_CONNECTIONS)]
        try:
            reader, writer = await asyncio.open_connection(host, int(port))
            assert await asyncio.wait_for(reader.read(1), patience(20)) == b""
            writer.close()
        finally:
            for _, writer in held:
                writer.close()
        async with Client(target) as client:
            await until_answered(client)


async def test_a_port_that_is_taken() -> None:
    async with Bench().serving() as target:
        with pytest.raises(ListenError, match=f"cannot serve gRPC on {target}: Address already"):
            await Bench().make(listen=target).start()


async def test_a_host_that_is_none_of_ours() -> None:
    with pytest.raises(ListenError, match=r"192\.0\.2\.1"):
        await Bench().make(listen="192.0.2.1:0").start()


@pytest.mark.parametrize("host", ["192.0.2.1", "a..b", "no-such-host.invalid"])
async def test_a_host_that_can_never_be_had_is_reported_while_it_is_tried(host: str) -> None:
    server = Bench().make(listen=f"{host}:8899")
    await server.set_leading(True)
    await until(lambda: server.trouble.reason)
    assert f"cannot serve gRPC on {host}:8899" in str(server.status().trouble)
    assert server.not_served == server.trouble.reason
    await server.set_leading(False)
    assert server.not_served is None


@pytest.mark.slow
async def test_leader_does_not_wait_for_a_name_to_be_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, answered = threading.Event(), threading.Event()

    def look_up(*_: object, **__: object) -> list[object]:
        asked.set()
        answered.wait(patience(20))
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    server = Bench().make(listen="here.example:8899")
    await server.set_leading(True)
    await until(asked.is_set)
    assert server.trouble.reason is None
    assert server.not_served == "gRPC does not listen on here.example:8899 yet"
    answered.set()
    await until(lambda: server.trouble.reason)
    assert "Temporary failure" in str(server.trouble.reason)
    await server.set_leading(False)


def has_ipv6() -> bool:
    """Return whether this machine has the address ::1."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


async def test_ipv6() -> None:
    bench = Bench()
    server = bench.make(listen="[::1]:0")
    if not has_ipv6():
        with pytest.raises(ListenError):
            await server.start()
        return
    await server.start()
    try:
        assert server.status().address == f"[::1]:{server.port}"
        async with Client(f"[::1]:{server.port}") as client:
            assert (await client.ask(GET))["code"] == 200
    finally:
        await server.stop()


@pytest.mark.slow
def test_grpc_is_not_imported_before_it_is_served() -> None:
    code = "import aggregator.process, aggregator.grpc.endpoint, aggregator.rank_tables.plugin, sys"
    code += "; sys.exit('grpc' in sys.modules or 'google.protobuf' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
async def test_leader_listens_as_soon_as_the_port_is_free(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Cover an earlier leader that is paused on the same host."""
    first = Bench()
    async with first.serving() as target:
        bench = Bench()
        server = bench.make(listen=target)
        await server.set_leading(True)
        await until(lambda: server.trouble.reason)
        assert "Address already in use" in str(server.status().trouble)
        assert server.port is None
        await stays(1.2, because="the port is tried every _AGAIN_SECONDS, 1")
    async with asyncio.timeout(patience(10)), Client(target) as client:
        await until_answered(client)
        assert server.status().trouble is None
        await server.set_leading(False)
    logged = [one.getMessage() for one in caplog.records if "trying again" in one.getMessage()]
    assert len(logged) == 1


@pytest.mark.slow
async def test_former_leader_tries_no_longer_to_listen() -> None:
    async with Bench().serving() as target:
        server = Bench().make(listen=target)
        await server.set_leading(True)
        await until(lambda: server.trouble.reason)
        await server.set_leading(False)
        assert server.status().trouble is None
    await stays(1.2, because="the port was tried every _AGAIN_SECONDS, 1")
    assert server.port is None


@pytest.mark.slow
async def test_clients_that_replace_each_other_are_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="aggregator.grpc")
    hand, bench = Hand(), Bench()
    bench.jobs = {JOB: normal(JOB)}
    who = {"jobId": JOB, "role": "twin"}
    streams: list[Stream] = []
    async with bench.serving(clock=hand) as target, Client(target) as one, Client(target) as other:

        def has_turned(wanted: int) -> bool:
            return len(bench.turned) >= wanted

        async def take(turns: int) -> list[str]:
            """Let both clients take the place in turns; return what was logged of them."""
            caplog.clear()
            for turn in range(turns):
                client = (one, other)[turn % 2]
                # One begins to listen, and the one before ceases.
                wanted = len(bench.turned) + (2 if streams else 1)
                await client.ask(REGISTER, who)
                streams.append(client.listen("fault.Fault/SubscribeFaultMsgSignal", who))
                await until(partial(has_turned, wanted))
            return [record.getMessage() for record in caplog.records]

        assert len(await take(30)) == 2
        hand.ms += 30_000
        assert await take(10) == []
        hand.ms += 31_000
        (line,) = await take(10)
        assert "'twin': clients with the same job and role replaced each other 39 times" in line
        hand.ms += 120_000
        (line,) = await take(1)
        assert "replaced each other 10 times" in line
        caplog.clear()
        hand.ms += 120_000
        streams[-1].cancel()
        await until(lambda: bool(caplog.records))
        assert [record.getMessage() for record in caplog.records] == [
            f"job {JOB!r}, role 'twin': listens to faults no more"
        ]
