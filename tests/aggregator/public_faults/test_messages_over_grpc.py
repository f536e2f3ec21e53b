"""The way in for gRPC."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest
from msgspec.structs import replace

from aggregator.wiring import durable_answer
from contract.documents.public_fault import Influence
from contract.documents.public_fault_protobuf import decode, encode
from contract.wire import pubfault_pb2 as wire
from pacing.cooperative import run_to_completion
from tests.aggregator.public_faults.messages import at, begun, fault_message, one, places, standing

if TYPE_CHECKING:
    from aggregator.failover.persistent_state import PersistentState
    from service.clock import Instant


def clock() -> Instant:
    return at(0)


def test_a_request_contains_what_was_sent() -> None:
    message = fault_message(
        replace(one(serial_number="s"), fault_location={"npuIp": "10.0.0.1"}, description="why"),
        one("fault-0002", "recover", devices=(1, 2)),
    )
    sent = wire.PublicFaultRequest.FromString(encode(message).SerializeToString())
    message.faults[1] = replace(message.faults[1], fault_location={})  # type: ignore[index]
    assert run_to_completion(decode(sent)) == message


def test_an_empty_request_is_refused() -> None:
    answer = begun().send(run_to_completion(decode(wire.PublicFaultRequest())), at(0))
    assert (answer.code, answer.info.split(":")[0]) == (409, "id")


async def test_an_answer_waits_until_the_nodes_are_known() -> None:
    known = places("n1", synced=False)
    faults = begun(known)
    asking = asyncio.create_task(faults.apply_when_ready(fault_message(one(node="ghost")), clock))
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
    answer = await faults.apply_when_ready(fault_message(one()), clock, patience_seconds=0.01)
    assert answer.code == 0
    assert "waits until the nodes are known" in answer.info
    known.synced = True
    faults.step(at(1))
    assert standing(faults).keys() == {"0"}


@pytest.mark.slow
async def test_accepted_faults_are_judged_although_the_sender_has_gone() -> None:
    """Cover the time after that: no other call pops the nodes that changed."""
    names = [f"node-{number}" for number in range(2000)]
    faults = begun(places(*names))
    message = fault_message(
        *(one(f"fault-{n % 100:04}", node=name) for n, name in enumerate(names[:100]))
    )
    influence = [Influence(name, "", [0]) for name in names[:1000]]
    message = replace(
        message, faults=[replace(fault, influence=influence) for fault in message.faults or ()]
    )
    judged: set[str] = set()
    no_state = cast("PersistentState", None)
    call = asyncio.create_task(durable_answer(faults, message, no_state, judged.update, clock))
    while not faults.status().standing:  # noqa: ASYNC110
        await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert 0 < faults.status().standing < 100_000
    assert judged
    assert all(faults.standing(name) for name in judged)
    while faults.next_due_ms() == 0:
        judged |= faults.step(at(0))
    assert judged == {name for name in names if faults.standing(name)}
