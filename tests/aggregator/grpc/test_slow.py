"""Subscribers that do not keep up: they cost a name per job and get the newest state."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from aggregator.grpc.interfaces import FAULT, DeviceFaultInfo, FaultMsgSignal
from tests.aggregator.grpc.bench import EVERYBODY, Bench, node_faults, normal, pushed, subscribed
from tests.aggregator.grpc.upstream import Client
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CHANGES, JOBS = 10_000, 20
REASON = "x" * 2_000


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    bench.jobs = {f"job-{number:04}": normal(f"job-{number:04}") for number in range(JOBS)}
    async with bench.serving():
        yield bench


def long(job: str, change: int) -> FaultMsgSignal:
    """Return a message of 2 KB that equals no earlier one."""
    device = DeviceFaultInfo("1", "NPU", (str(change),), "UnHealthy", fault_reasons=(REASON,))
    return FaultMsgSignal(job, FAULT, (node_faults("n1", device),))


@pytest.mark.slow
async def test_one_that_never_reads_blocks_no_other(bench: Bench) -> None:
    names = sorted(bench.jobs)
    async with Client(bench.target) as quick, Client(bench.target) as slow:
        stuck = await subscribed(slow, bench, {**EVERYBODY, "role": "slow"})
        stream = await subscribed(quick, bench, EVERYBODY)
        seen: dict[str, str] = {}

        async def follow() -> None:
            while len(seen) < JOBS or any(int(code) < CHANGES - JOBS for code in seen.values()):
                job, _, codes = await pushed(stream)
                seen[job] = codes[0]

        following = asyncio.ensure_future(follow())
        await asyncio.sleep(0)
        tracemalloc.start()
        try:
            for change in range(CHANGES):
                bench.put(long(names[change % JOBS], change))
                if change % 100 == 0:
                    await asyncio.sleep(0)
            await asyncio.wait_for(following, patience(40))
            kept = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert kept < CHANGES * len(REASON) / 10, "what nobody reads is not kept"
        newest = {name: bench.jobs[name].nodes[0].devices[0].fault_codes[0] for name in names}
        assert seen == newest
        # Who leads no more does not wait for it either; there a third one is stuck.
        await subscribed(quick, bench, {**EVERYBODY, "role": "stuck"})
        # What it did not read is not sent to it one by one: it soon gets the newest of each.
        late: dict[str, str] = {}
        messages = 0
        while late != newest:
            job, _, codes = await pushed(stuck)
            late[job] = codes[0]
            messages += 1
        assert messages < CHANGES / 4
        for change in range(CHANGES // 10):
            bench.put(long(names[change % JOBS], CHANGES + change))
            await asyncio.sleep(0)
        assert bench.server is not None
        await asyncio.wait_for(bench.server.stop(), patience(20))
        assert bench.server.status().subscribers == 0
