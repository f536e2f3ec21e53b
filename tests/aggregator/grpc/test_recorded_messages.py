"""Every message that the real program was recorded with comes out of our services just so.

What is in a message is decided elsewhere; here it is put in and read by a client.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from aggregator.grpc.interfaces import (
    DeviceFaultInfo,
    FaultMsgSignal,
    NodeFaultInfo,
    SwitchFaultInfo,
)
from tests.aggregator.grpc.bench import GET, REGISTER, Bench, normal, refused, subscribed
from tests.aggregator.grpc.upstream import Client
from tests.parts.deadlines import patience
from tests.vectors import VECTORS

CLIENT = {"jobId": "", "role": "cluster-view"}


def observed(name: str, method: str) -> list[dict[str, Any]]:
    """Return the recording of a method."""
    recording = json.loads((VECTORS / "clusterd" / f"{name}.json").read_text())
    return [one for one in recording["observed"] if one.get("stream") == f"fault.Fault/{method}"]


def a_message(pushed: dict[str, Any]) -> FaultMsgSignal:
    """Return the value from which a recorded message is made again."""
    nodes = []
    for node in pushed["nodeFaultInfo"]:
        devices = tuple(
            DeviceFaultInfo(
                one["deviceId"],
                one["deviceType"],
                tuple(one["faultCodes"]),
                one["faultLevel"],
                tuple(one["faultLevels"]),
                tuple(
                    SwitchFaultInfo(
                        fault["faultCode"],
                        fault["switchChipId"],
                        fault["switchPortId"],
                        fault["faultTime"],
                        fault["faultLevel"],
                    )
                    for fault in one["switchFaultInfos"]
                ),
                tuple(one["faultType"]),
                tuple(one["faultReason"]),
            )
            for one in node["faultDevice"]
        )
        where = node["nodeName"], node["nodeIP"], node["nodeSN"]
        nodes.append(NodeFaultInfo(*where, node["faultLevel"], devices))
    return FaultMsgSignal(pushed["jobId"], pushed["signalType"], tuple(nodes))


def bare(pushed: Any) -> Any:
    """Remove what is empty, which is not on the wire, and uuids."""
    if isinstance(pushed, dict):
        pairs = ((key, bare(value)) for key, value in pushed.items() if key != "uuid")
        return {key: value for key, value in pairs if value not in ([], "", 0)}
    return [bare(one) for one in pushed] if isinstance(pushed, list) else pushed


@pytest.mark.parametrize("job", ["11111111-1111-4111-8111-111111111111", ""])
async def test_the_stream_of_a_job_and_of_the_cluster(job: str) -> None:
    recorded = [
        one["message"]
        for one in observed("job-fault-stream", "SubscribeFaultMsgSignal")
        if one["client"]["jobId"] == job
    ]
    assert len(recorded) == 5
    bench = Bench()
    bench.jobs = {one["jobId"]: normal(one["jobId"]) for one in recorded}
    async with bench.serving() as target, Client(target) as client:
        [registered] = [
            one for one in observed("job-fault-stream", "Register") if one["client"]["jobId"] == job
        ]
        answer = await client.ask(REGISTER, registered["client"])
        assert bare(answer) == bare(registered["message"])
        stream = await subscribed(client, bench, registered["client"])
        for one in recorded:
            bench.put(a_message(one))
            assert bare(await asyncio.wait_for(stream.next(), patience(20))) == bare(one)


async def test_questions_and_their_answers() -> None:
    recorded = observed("fault-query", "GetFaultMsgSignal")
    assert len(recorded) == 6
    for one in recorded:
        bench = Bench()
        pushed = one.get("message", {}).get("faultSignal")
        if pushed is not None:
            bench.view = a_message(pushed)
            bench.jobs = {pushed["jobId"]: bench.view}
        async with bench.serving() as target, Client(target) as client:
            if "error" in one:
                code, text = await refused(client.ask(GET, one["client"]))
                assert {"code": code.name, "details": text} == one["error"]
            else:
                assert bare(await client.ask(GET, one["client"])) == bare(one["message"])
