"""The way in for gRPC."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace

from agent.publishing.fault_service_call import request_of
from aggregator.grpc.wire_messages import public_fault as received
from aggregator.public_faults.service import answered
from contract.wire import pubfault_pb2 as wire
from tests.aggregator.public_faults.telling import at, begun, one, places, standing, told

if TYPE_CHECKING:
    from aggregator.moment import Moment


def clock() -> Moment:
    return at(0)


async def test_a_request_says_what_was_sent() -> None:
    message = told(
        replace(one(serial_number="s"), fault_location={"npuIp": "10.0.0.1"}, description="why"),
        one("fault-0002", "recover", devices=(1, 2)),
    )
    sent = wire.PublicFaultRequest.FromString(request_of(message).SerializeToString())
    message.faults[1] = replace(message.faults[1], fault_location={})  # type: ignore[index]
    assert await received(sent) == message


async def test_an_empty_request_is_refused() -> None:
    answer = begun().send(await received(wire.PublicFaultRequest()), at(0))
    assert (answer.code, answer.info.split(":")[0]) == (409, "id")


async def test_an_answer_waits_until_the_nodes_are_known() -> None:
    known = places("n1", synced=False)
    faults = begun(known)
    asking = asyncio.create_task(answered(faults, told(one(node="ghost")), clock))
    await asyncio.sleep(0)
    assert not asking.done()
    known.synced = True
    faults.step(at(1))
    answer = await asking
    assert answer.code == 409
    assert "'ghost'" in answer.info


async def test_an_answer_does_not_wait_for_ever() -> None:
    known = places("n1", synced=False)
    faults = begun(known)
    answer = await answered(faults, told(one()), clock, patience_seconds=0.01)
    assert answer.code == 0
    assert "waits until the nodes are known" in answer.info
    known.synced = True
    faults.step(at(1))
    assert standing(faults).keys() == {"0"}
