"""``PubFault`` and ``config.Config``, and requests that are none."""

from __future__ import annotations

import asyncio
import random

import grpc
import grpc.aio
import pytest

from contract.documents.public_fault import Influence, PublicFault, PublicFaultEntry
from tests.aggregator.grpc.bench import Answer, Bench
from tests.aggregator.grpc.upstream import Client
from tests.parts.deadlines import patience, until

SEND, REGISTER = "PubFault/SendPublicFault", "config.Config/Register"
SUBSCRIBE = "config.Config/SubscribeRankTable"


async def test_a_public_fault_arrives_whole_and_its_answer_comes_back() -> None:
    bench = Bench()
    message = {
        "id": "message-1",
        "timestamp": "1760000000000",
        "version": "1.0",
        "resource": "CCAE",
        "faults": [
            {
                "faultId": "fault-001",
                "faultType": "NPU",
                "faultCode": "220001001",
                "faultTime": "1760000123456",
                "assertion": "occur",
                "faultLocation": {"slot": "3"},
                "influence": [
                    {"nodeName": "n1", "deviceIds": [0, 7, -1]},
                    {"nodeSN": "SN-n2", "deviceIds": []},
                ],
                "description": "电源",
            }
        ],
    }
    async with bench.serving() as target, Client(target) as client:
        assert await client.ask(SEND, message) == {"info": "public fault send successfully"}
        assert bench.received == [
            PublicFault(
                "message-1",
                1760000000000,
                "1.0",
                "CCAE",
                [
                    PublicFaultEntry(
                        "fault-001",
                        "NPU",
                        "220001001",
                        1760000123456,
                        "occur",
                        {"slot": "3"},
                        [Influence("n1", "", [0, 7, -1]), Influence("", "SN-n2", [])],
                        "电源",
                    )
                ],
            )
        ]
        bench.answer = Answer(410, "limiter work by resource failed")
        assert await client.ask(SEND) == {"code": 410, "info": "limiter work by resource failed"}
        assert bench.received[1] == PublicFault(faults=[])


async def test_a_rank_table_is_pushed_when_it_is_there_and_when_it_changed() -> None:
    bench = Bench()
    async with bench.serving() as target, Client(target) as client:
        who = {"jobId": "inference", "role": "mindie-ms-controller"}
        assert await client.ask(REGISTER, who) == {"info": "register success"}
        stream = client.listen(SUBSCRIBE, who)
        await until(lambda: bench.server and bench.server.status().subscribers)
        bench.tabulate("inference", '{"a":1}')
        assert await stream.next() == {"jobId": "inference", "rankTable": '{"a":1}'}
        bench.tabulate("inference", '{"a":1}')
        bench.tabulate("other", '{"b":1}')
        bench.tabulate("inference", '{"a":2}')
        assert await stream.next() == {"jobId": "inference", "rankTable": '{"a":2}'}
        # Another role is no other client; whoever subscribes gets what is there at once.
        await client.ask(REGISTER, {"jobId": "inference", "role": "x"})
        assert await stream.next() is None
        stream = client.listen(SUBSCRIBE, {"jobId": "inference"})
        assert await stream.next() == {"jobId": "inference", "rankTable": '{"a":2}'}
        assert bench.server is not None
        await bench.server.stop()
        with pytest.raises(grpc.aio.AioRpcError, match="UNAVAILABLE"):
            await stream.next()


async def test_a_rank_table_without_registration() -> None:
    async with Bench().serving() as target, Client(target) as client:
        with pytest.raises(grpc.aio.AioRpcError, match="not registered"):
            await client.listen(SUBSCRIBE, {"jobId": "inference"}).next()


UNARY = [
    "/PubFault/SendPublicFault",
    "/fault.Fault/Register",
    "/fault.Fault/GetFaultMsgSignal",
    "/config.Config/Register",
]
STREAMS = ["/fault.Fault/SubscribeFaultMsgSignal", "/config.Config/SubscribeRankTable"]


@pytest.mark.slow
async def test_bytes_that_are_no_request_never_break_it(caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(20)
    bench = Bench()
    async with bench.serving() as target, Client(target) as client:
        codes = set()

        async def throw(content: bytes) -> None:
            path = chance.choice([*UNARY, *STREAMS])
            try:
                if path in STREAMS:
                    # Bytes may happen to be a client that is registered: it gets nothing.
                    await client.listen_raw(path, content, 0.2)
                else:
                    await client.ask_raw(path, content)
            except grpc.aio.AioRpcError as error:
                codes.add(error.code())

        for _ in range(16):
            sizes = [chance.choice([0, 1, 2, 5, 30, 300]) for _ in range(50)]
            await asyncio.gather(*(throw(chance.randbytes(size)) for size in sizes))
        # A field of the right number with wrong text inside, and a length beyond the end.
        for content in (b"\x0a\x02\xff\xfe", b"\x0a\x7f", b"\x12\x03abc\x0a\x02\xc3\x28"):
            for _ in range(8):
                await throw(content)
        refused = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN}
        assert codes <= {*refused, grpc.StatusCode.DEADLINE_EXCEEDED}
        assert grpc.StatusCode.INTERNAL in codes
        assert (await client.ask(REGISTER, {"jobId": "x"}))["info"] == "register success"
    assert "Traceback" not in caplog.text
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "WARNING")]


async def test_bytes_that_are_not_even_http() -> None:
    async with Bench().serving() as target:
        host, _, port = target.rpartition(":")
        for content in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello", b"\x00" * 5000):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(content)
            await asyncio.wait_for(reader.read(), patience(20))
            writer.close()
        async with Client(target) as client:
            assert (await client.ask(REGISTER))["info"] == "register success"


async def test_services_that_are_not_offered() -> None:
    async with Bench().serving() as target, Client(target) as client:
        for path in ("/job.Job/Register", "/Recover/Init", "/fault.Fault/Nothing"):
            with pytest.raises(grpc.aio.AioRpcError, match="UNIMPLEMENTED"):
                await client.ask_raw(path, b"")
