"""Subscribers that do not keep up: they cost a name per job and get the newest state."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from tests.aggregator.grpc.test_faults import EVERYBODY, subscribed, told
from tests.aggregator.grpc.upstream import Client
from tests.aggregator.grpc.world import DeviceFault, Message, NodeFaults, World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CHANGES, JOBS = 10_000, 20
REASON = "x" * 2_000


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    world.jobs = {f"job-{number:04}": Message(f"job-{number:04}") for number in range(JOBS)}
    async with world.serving():
        yield world


def long(job: str, change: int) -> Message:
    """A fault of 2 KB that is like none before."""
    device = DeviceFault("1", "NPU", (str(change),), fault_reasons=(REASON,))
    return Message(job, "fault", (NodeFaults("n1", devices=(device,)),))


@pytest.mark.slow
async def test_one_that_never_reads_holds_up_nobody_and_nothing(world: World) -> None:
    names = sorted(world.jobs)
    async with Client(world.target) as quick, Client(world.target) as slow:
        stuck = await subscribed(slow, world, {**EVERYBODY, "role": "slow"})
        stream = await subscribed(quick, world, EVERYBODY)
        seen: dict[str, str] = {}

        async def follow() -> None:
            while len(seen) < JOBS or any(int(code) < CHANGES - JOBS for code in seen.values()):
                job, _, codes = await told(stream)
                seen[job] = codes[0]

        following = asyncio.ensure_future(follow())
        await asyncio.sleep(0)
        tracemalloc.start()
        try:
            for change in range(CHANGES):
                world.put(long(names[change % JOBS], change))
                if change % 100 == 0:
                    await asyncio.sleep(0)
            await asyncio.wait_for(following, 40)
            kept = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert kept < CHANGES * len(REASON) / 10, "what nobody reads is not kept"
        newest = {name: world.jobs[name].nodes[0].devices[0].fault_codes[0] for name in names}
        assert seen == newest
        # Who leads no more does not wait for it either; there a third one is stuck.
        await subscribed(quick, world, {**EVERYBODY, "role": "stuck"})
        # What it did not read is not sent to it one by one: it soon gets the newest of each.
        late: dict[str, str] = {}
        messages = 0
        while late != newest:
            job, _, codes = await told(stuck)
            late[job] = codes[0]
            messages += 1
        assert messages < CHANGES / 4
        for change in range(CHANGES // 10):
            world.put(long(names[change % JOBS], CHANGES + change))
            await asyncio.sleep(0)
        assert world.server is not None
        await asyncio.wait_for(world.server.stop(), 20)
        assert world.server.status().subscribers == 0
