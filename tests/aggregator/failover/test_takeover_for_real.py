"""Two real aggregators on a real API server: what a leader answered or kept outlives it."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import grpc
import grpc.aio
import pytest

from stores.address import open_store
from tests.aggregator.daemon import OUTPUTS, Daemon, entries, until
from tests.aggregator.grpc.upstream import Client
from tests.aggregator.leaders import LEASE_SECONDS, every_document, leads, numbered
from tests.aggregator.nodes import published, unhealthy
from tests.cluster.playing import public_message
from tests.parts import deadlines
from tests.parts.watching import watching

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from stores.base import Store
    from tests.aggregator.conftest import Make
    from tests.parts.controlplane import ControlPlane
    from tests.parts.watching import Watching

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(90)]

SEND = "PubFault/SendPublicFault"
LISTENS = re.compile(r"serving gRPC on (\S+),")


@pytest.fixture
async def store(control_plane: ControlPlane) -> AsyncIterator[Store]:
    opened = open_store("kubernetes:", control_plane.kubeconfig)
    yield opened
    await opened.close()


@pytest.fixture
async def two(
    store: Store, control_plane: ControlPlane, make: Make, tmp_path: Path
) -> tuple[Daemon, Daemon]:
    """Start a leader and a follower with a node of eight chips."""
    file = tmp_path / "aggregator.toml"
    file.write_text(
        f"[leader]\nlease_seconds = {LEASE_SECONDS}\n"
        '[grpc]\nlisten = "127.0.0.1:0"\nplaintext = true\n'
    )
    options = ("--config", str(file))
    one, other = (make("kubernetes:", control_plane.kubeconfig, *options) for _ in range(2))
    for number in range(8):
        await store.put(numbered(f"n{number}", 0))
    for daemon in (one, other):
        await asyncio.to_thread(daemon.start)
    assert await asyncio.to_thread(leads, one)
    return one, other


def place_of(number: int) -> tuple[str, int]:
    """Return the node and the chip of a fault."""
    return f"n{number % 8}", number // 8


async def send_faults(daemon: Daemon, numbers: range, answered: set[int]) -> None:
    """Send these faults, one after the other, until no replica answers."""
    await until(lambda: LISTENS.search(daemon.log.read_text()) is not None)
    target = LISTENS.findall(daemon.log.read_text())[-1]
    async with Client(target) as client:
        for number in numbers:
            node, chip = place_of(number)
            message = public_message("occur", number=number, node=node, chips=(chip,))
            try:
                answer = await client.ask(SEND, message)
            except grpc.aio.AioRpcError:
                continue
            if answer.get("code", 0) == 0:
                answered.add(number)


def are_shown(numbers: set[int]) -> Callable[[Watching], bool]:
    def shown(seen: Watching) -> bool:
        now = entries(seen)
        return all(
            f"Ascend910-{chip}" in unhealthy(now[node]) for node, chip in map(place_of, numbers)
        )

    return shown


def stamps_grow(seen: Watching) -> bool:
    """Return whether the stamps of each node never decrease."""
    stamps: dict[str, int] = {}
    for document in every_document(seen):
        for node, entry in published(document.data[document.name]).items():
            if entry["UpdateTime"] < stamps.get(node, 0):
                return False
            stamps[node] = entry["UpdateTime"]
    return True


async def test_fault_acknowledged_by_a_killed_leader_is_published_by_the_next(
    store: Store, two: tuple[Daemon, Daemon]
) -> None:
    one, other = two
    answered: set[int] = set()
    async with watching(store, OUTPUTS) as seen:
        sending = asyncio.create_task(send_faults(one, range(32), answered))
        # With longer steps all may be answered before the kill.
        await deadlines.until(lambda: len(answered) >= 5, step_seconds=0.002)
        one.kill()
        await sending
        before = len(answered)
        assert before < 32
        await until(lambda: leads(other))
        await seen.until(are_shown(answered))
        await send_faults(other, range(32, 40), answered)
        assert len(answered) == before + 8
        await seen.until(are_shown(answered))
        assert stamps_grow(seen)


async def test_fault_acknowledged_by_a_resumed_leader_is_durable(
    store: Store, two: tuple[Daemon, Daemon]
) -> None:
    one, other = two
    answered: set[int] = set()
    async with watching(store, OUTPUTS) as seen:
        await send_faults(one, range(2), answered)
        assert answered == {0, 1}
        one.process.freeze()
        # These lie in its sockets until it goes on, when another replica leads.
        sending = [
            asyncio.create_task(send_faults(one, range(n, n + 1), answered)) for n in range(8, 12)
        ]
        await until(lambda: leads(other))
        await seen.until(are_shown(answered))
        one.process.thaw()
        await asyncio.gather(*sending)
        await until(lambda: not leads(one))
        await seen.until(are_shown(answered))
        # Back to the first one: it knows no more and no less than what was answered.
        await send_faults(other, range(16, 20), answered)
        other.kill()
        await until(lambda: leads(one))
        await seen.until(are_shown(answered))
        shown = {
            number
            for number in range(64)
            if f"Ascend910-{place_of(number)[1]}" in unhealthy(entries(seen)[place_of(number)[0]])
        }
        assert shown == answered
        assert stamps_grow(seen)
