"""The fault service, over a real socket with clients made from upstream's numbers.

Source: docs/spec/clusterd.md#5.3, 5.4.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import grpc.aio
import pytest

from aggregator.grpc.fault_service import RECOVERIES_KEPT_MS, Recoveries
from aggregator.grpc.interfaces import (
    FAULT,
    DeviceFaultInfo,
    FaultMsgSignal,
    NodeFaultInfo,
    SwitchFaultInfo,
)
from aggregator.grpc.subscriptions import SubscriptionEnd
from tests.aggregator.grpc.bench import (
    EVERYBODY,
    GET,
    JOB,
    OTHER,
    REGISTER,
    SUBSCRIBE,
    Bench,
    faulty,
    normal,
    pushed,
    refused,
    subscribed,
    until_answered,
)
from tests.aggregator.grpc.upstream import Client
from tests.parts.deadlines import patience, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ME = {"jobId": JOB, "role": "trainer"}


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    bench.jobs = {JOB: normal(JOB), OTHER: normal(OTHER)}
    async with bench.serving():
        yield bench


@pytest.fixture
async def client(bench: Bench) -> AsyncIterator[Client]:
    async with Client(bench.target) as client:
        yield client


@pytest.mark.slow
async def test_every_member_arrives_under_its_number(bench: Bench, client: Client) -> None:
    stream = await subscribed(client, bench, ME)
    device = DeviceFaultInfo(
        "-1",
        "Switch",
        ("[0x08520003,na,L2,na]",),
        "SubHealthy",
        ("SubHealthFault",),
        (SwitchFaultInfo("[0x08520003,na,L2,na]", "1", "2", "1760000000", "SubHealthFault"),),
        ("CardUnhealthy",),
        ("link down",),
    )
    node = NodeFaultInfo("n2", "192.168.0.2", "SN-n2", "SubHealthy", (device,))
    bench.put(FaultMsgSignal(JOB, FAULT, (node,)))
    message = await stream.next()
    assert message is not None
    assert len(message.pop("uuid")) == 36
    assert message == {
        "jobId": JOB,
        "signalType": "fault",
        "nodeFaultInfo": [
            {
                "nodeName": "n2",
                "nodeIP": "192.168.0.2",
                "nodeSN": "SN-n2",
                "faultLevel": "SubHealthy",
                "faultDevice": [
                    {
                        "deviceId": "-1",
                        "deviceType": "Switch",
                        "faultCodes": ["[0x08520003,na,L2,na]"],
                        "faultLevel": "SubHealthy",
                        "faultType": ["CardUnhealthy"],
                        "faultReason": ["link down"],
                        "switchFaultInfos": [
                            {
                                "faultCode": "[0x08520003,na,L2,na]",
                                "switchChipId": "1",
                                "switchPortId": "2",
                                "faultTime": "1760000000",
                                "faultLevel": "SubHealthFault",
                            }
                        ],
                        "faultLevels": ["SubHealthFault"],
                    }
                ],
            }
        ],
    }


async def test_only_changes_are_pushed_and_recovery_is_normal(bench: Bench, client: Client) -> None:
    stream = await subscribed(client, bench, ME)
    bench.put(faulty(JOB, "80E18402"))
    assert await pushed(stream) == (JOB, FAULT, ["80E18402"])
    bench.put(faulty(JOB, "80E18402"))  # the same again
    bench.put(faulty(OTHER, "80CD8003"))  # another job
    bench.put(faulty(JOB, "80E18402", "80CD8003"))
    assert await pushed(stream) == (JOB, FAULT, ["80E18402", "80CD8003"])
    bench.put(normal(JOB))
    assert await pushed(stream) == (JOB, "normal", [])
    bench.put(normal(JOB))
    bench.put(faulty(JOB, "80C98009"))
    assert await pushed(stream) == (JOB, FAULT, ["80C98009"])
    bench.drop(JOB)
    assert await pushed(stream) == (JOB, "normal", [])


async def test_the_cluster_receives_one_message_per_job(bench: Bench, client: Client) -> None:
    bench.put(faulty(JOB, "80E18402"))
    stream = await subscribed(client, bench, EVERYBODY)
    assert await pushed(stream) == (JOB, FAULT, ["80E18402"])
    bench.put(faulty(OTHER, "80CD8003"))
    assert await pushed(stream) == (OTHER, "fault", ["80CD8003"])
    bench.put(normal(JOB))
    assert await pushed(stream) == (JOB, "normal", [])
    bench.drop(
        OTHER
    )  # no message about a job that went; that of MindIE's jobID is about its other jobs
    bench.instances["inference"] = "mindie-ms-controller"
    bench.put(faulty("inference", "80C98009"))
    bench.put(faulty(JOB, "80C98009"))
    assert await pushed(stream) == (JOB, FAULT, ["80C98009"])


async def test_an_empty_job_and_minus_one_are_the_same_client(bench: Bench, client: Client) -> None:
    stream = await subscribed(client, bench, EVERYBODY)
    await client.ask(REGISTER, {"jobId": "-1", "role": "observer"})
    assert await stream.next() is None


async def test_registration_without_known_job_and_role_is_refused(
    bench: Bench, client: Client
) -> None:
    code, text = await refused(client.ask(REGISTER, {"jobId": JOB}))
    assert code is grpc.StatusCode.UNKNOWN
    assert "role" in text
    code, text = await refused(client.ask(REGISTER, {"jobId": "no-such-job", "role": "x"}))
    assert (code, "no-such-job" in text) == (grpc.StatusCode.UNKNOWN, True)
    bench.instances["inference"] = "mindie-ms-controller"
    code, _ = await refused(client.ask(REGISTER, {"jobId": "inference", "role": "x"}))
    assert code is grpc.StatusCode.UNKNOWN
    await client.ask(REGISTER, {"jobId": "inference", "role": "mindie-ms-controller"})
    code, text = await refused(client.ask(REGISTER, {"jobId": "", "role": "x" * 257}))
    assert (code, "longer" in text) == (grpc.StatusCode.UNKNOWN, True)


async def test_registration_comes_before_subscription(bench: Bench, client: Client) -> None:
    code, text = await refused(client.listen(SUBSCRIBE, ME).next())
    assert (code, JOB in text) == (grpc.StatusCode.UNKNOWN, True)
    await client.ask(REGISTER, ME)
    code, _ = await refused(client.listen(SUBSCRIBE, {**ME, "role": "other"}).next())
    assert code is grpc.StatusCode.UNKNOWN


async def test_a_new_registration_ends_the_subscription_before_it(
    bench: Bench, client: Client
) -> None:
    stream = await subscribed(client, bench, ME)
    beside = await subscribed(client, bench, {**ME, "role": "second"})
    async with Client(bench.target) as again:
        newer = await subscribed(again, bench, ME)
        assert await stream.next() is None
        assert stream.call.done()
        assert await stream.call.code() is grpc.StatusCode.OK
        bench.put(faulty(JOB, "80E18402"))
        assert await pushed(newer) == (JOB, FAULT, ["80E18402"])
    assert await pushed(beside) == (JOB, FAULT, ["80E18402"])


async def test_client_that_left_must_register_again(bench: Bench, client: Client) -> None:
    stream = await subscribed(client, bench, ME)
    assert bench.turned[-1] == ((JOB, "trainer"), True)
    stream.cancel()
    await until(lambda: bench.turned[-1] == ((JOB, "trainer"), False))
    assert (await refused(client.listen(SUBSCRIBE, ME).next()))[0] is grpc.StatusCode.UNKNOWN
    stream = await subscribed(client, bench, ME)
    bench.put(faulty(JOB, "80E18402"))
    assert await pushed(stream) == (JOB, FAULT, ["80E18402"])


async def test_a_connection_that_breaks_ends_its_subscriptions(bench: Bench) -> None:
    async with Client(bench.target) as client:
        await subscribed(client, bench, ME)
        await subscribed(client, bench, EVERYBODY)
    await until(lambda: [on for _, on in bench.turned].count(False) == 2)
    assert bench.server is not None
    assert bench.server.status().registered == 0


async def test_a_follower_sends_its_clients_away(bench: Bench, client: Client) -> None:
    stream = await subscribed(client, bench, ME)
    assert bench.server is not None
    await bench.server.set_leading(False)
    assert (await refused(stream.next())) == (
        grpc.StatusCode.UNAVAILABLE,
        SubscriptionEnd.STOPPING.value,
    )
    assert (await refused(client.ask(REGISTER, ME)))[0] is grpc.StatusCode.UNAVAILABLE
    server = bench.server
    await server.set_leading(True)
    await until(lambda: server.port)
    async with Client(bench.target) as again:
        code, _ = await refused(again.listen(SUBSCRIBE, ME).next())
        assert code is grpc.StatusCode.UNKNOWN, "nobody registered with this one"
        stream = await subscribed(again, bench, ME)
        bench.put(faulty(JOB, "80E18402"))
        assert await pushed(stream) == (JOB, FAULT, ["80E18402"])


async def test_a_client_finds_the_next_leader_by_itself() -> None:
    one, next_one = Bench(), Bench()
    one.jobs = next_one.jobs = {JOB: faulty(JOB, "80E18402")}
    async with one.serving() as address, Client(address) as client:
        stream = await subscribed(client, one, ME)
        assert (await pushed(stream))[0] == JOB
        assert one.server is not None
        await one.server.stop()
        assert (await refused(stream.next()))[0] is grpc.StatusCode.UNAVAILABLE
        async with next_one.serving(listen=address):
            await until_answered(client)
            stream = await subscribed(client, next_one, ME)
            assert await pushed(stream) == (JOB, FAULT, ["80E18402"])


async def test_a_client_receives_what_ended_while_no_replica_led() -> None:
    one, next_one = Bench(), Bench()
    one.jobs = {JOB: faulty(JOB, "80E18402")}
    next_one.jobs = {JOB: normal(JOB), OTHER: normal(OTHER)}
    async with one.serving() as address, Client(address) as client:
        stream = await subscribed(client, one, ME)
        assert await pushed(stream) == (JOB, FAULT, ["80E18402"])
        next_one.make(listen=address)
        next_one.put(faulty(JOB, "80E18402"))
        next_one.instances["inference"] = "mindie-ms-controller"
        next_one.put(faulty("inference", "80C98009"))
        assert one.server is not None
        await one.server.stop()
        next_one.put(normal(JOB))
        next_one.put(normal("inference"))
        async with next_one.serving_again():
            await until_answered(client)
            stream = await subscribed(client, next_one, ME)
            assert await pushed(stream) == (JOB, "normal", [])
            everything = await subscribed(client, next_one, EVERYBODY)
            assert await pushed(everything) == (JOB, "normal", [])
            next_one.put(faulty(OTHER, "80CD8003"))
            assert await pushed(everything) == (OTHER, "fault", ["80CD8003"])


def test_only_what_ended_unacknowledged_and_just_now_is_sent_again() -> None:
    bench = Bench()
    recoveries = Recoveries(bench)

    def note(message: FaultMsgSignal, at_ms: int, *, in_snapshot: bool = False) -> None:
        bench.jobs[message.job_id] = message
        recoveries.record([message.job_id], at_ms, sent=in_snapshot)

    note(normal(JOB), 0)
    assert list(recoveries.of(JOB, 0)) == [], "it was never ill"
    note(faulty(JOB, "80E18402"), 1)
    note(normal(JOB), 2, in_snapshot=True)
    assert list(recoveries.of(JOB, 2)) == [], "who listened has it"
    note(faulty(JOB, "80E18402"), 3)
    note(normal(JOB), 4)
    assert list(recoveries.of(JOB, 4 + RECOVERIES_KEPT_MS - 1)) == [JOB]
    assert list(recoveries.of(JOB, 4 + RECOVERIES_KEPT_MS)) == []
    note(faulty(OTHER, "80E18402"), 5)
    note(normal(OTHER), 6)
    note(faulty(OTHER, "80E18402"), 7)
    assert list(recoveries.of_all(8)) == [], "it is ill again"


@pytest.mark.slow
async def test_calls_that_wait_while_the_leader_goes() -> None:
    bench = Bench()
    bench.held = asyncio.Event()
    async with bench.serving() as target, Client(target) as client:
        call = asyncio.ensure_future(client.ask("PubFault/SendPublicFault"))
        await until(lambda: bench.received)
        assert bench.server is not None
        await asyncio.wait_for(bench.server.stop(), patience(20))
        assert (await refused(call))[0] is grpc.StatusCode.UNAVAILABLE


async def test_questions(bench: Bench, client: Client) -> None:
    bench.put(faulty(JOB, "80E18402"))
    bench.view = FaultMsgSignal("-1", FAULT, bench.jobs[JOB].nodes)
    answer = await client.ask(GET, {"jobId": "", "role": "x"})
    assert (answer["code"], answer["info"]) == (200, "Succeed")
    assert (answer["faultSignal"]["jobId"], answer["faultSignal"]["signalType"]) == ("-1", FAULT)
    assert answer["faultSignal"]["nodeFaultInfo"][0]["nodeName"] == "n1"
    answer = await client.ask(GET, {"jobId": JOB})
    assert (answer["code"], answer["info"]) == (200, "all info returned")
    assert answer["faultSignal"]["nodeFaultInfo"][0]["faultDevice"][0]["faultCodes"] == ["80E18402"]
    answer = await client.ask(GET, {"jobId": OTHER})
    assert (answer["faultSignal"]["signalType"], "nodeFaultInfo" in answer["faultSignal"]) == (
        "normal",
        False,
    )
    answer = await client.ask(GET, {"jobId": "44444444-0000"})
    info = "job with jobId: 44444444-0000 not found fault info"
    assert answer == {"code": 200, "info": info}


async def test_questions_about_what_can_be_no_job_and_what_could_be_one(client: Client) -> None:
    for job in ("short", "x" * 129, "é" * 65, "job-名字-12345", "\u4e00aaaaaaaa"):
        code, text = await refused(client.ask(GET, {"jobId": job}))
        assert (code, text) == (grpc.StatusCode.UNKNOWN, f"job with jobId: {job} is invalid")
    for job in ("x" * 8, "x" * 128, "é" * 64, "job-\u9fa6-12345"):
        assert (await client.ask(GET, {"jobId": job}))["code"] == 200, job
