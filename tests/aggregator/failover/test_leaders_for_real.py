"""Two real aggregators on a real API server: the one that leads is terminated, killed, paused."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from typing import TYPE_CHECKING

import pytest

from contract.names import LEADER_LEASE
from tests.aggregator.daemon import OUTPUTS, Daemon, until
from tests.aggregator.leaders import LEASE_SECONDS, judge, leads, numbered, role, states
from tests.parts import deadlines
from tests.parts.controlplane import LEASES
from tests.parts.deadlines import patience
from tests.parts.relay import Relay
from tests.parts.tasks import beside
from tests.parts.watching import watching

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from stores.base import Store
    from tests.aggregator.conftest import Make
    from tests.parts.controlplane import ControlPlane
    from tests.parts.watching import Watching

pytestmark = pytest.mark.apiserver

NODES = [f"node-{number:02}" for number in range(25)]


@pytest.fixture
def kind() -> str:
    return "kubernetes"


@pytest.fixture
def lease(tmp_path: Path) -> tuple[str, str]:
    file = tmp_path / "aggregator.toml"
    file.write_text(f"[leader]\nlease_seconds = {LEASE_SECONDS}\n")
    return "--config", str(file)


@pytest.fixture
def two(control_plane: ControlPlane, make: Make, lease: tuple[str, str]) -> tuple[Daemon, Daemon]:
    """Return two aggregators that are not started."""
    one, other = (make("kubernetes:", control_plane.kubeconfig, *lease) for _ in range(2))
    return one, other


async def publish(store: Store, number: int) -> None:
    """Write the state ``number`` of every node."""
    for node in NODES:
        await store.put(numbered(node, number))


def all_are(number: int) -> Callable[[Watching], bool]:
    return lambda seen: states(seen) == dict.fromkeys(NODES, number)


@contextlib.asynccontextmanager
async def storm(store: Store, first: int) -> AsyncIterator[Callable[[], int]]:
    """Change all nodes without pause; yield a function for the last number that all have."""
    number = first

    async def blow() -> None:
        nonlocal number
        while True:
            await publish(store, number + 1)
            number += 1

    async with beside(blow()):
        yield lambda: number


def refused_writes(plane: ControlPlane) -> int:
    """Return how many writes of ConfigMaps the API server refused because of another version."""
    lines = plane.ask("GET", "/metrics")[1].splitlines()
    wanted = ("apiserver_request_total{", 'code="409"', 'resource="configmaps"', 'verb="PUT"')
    found = (line for line in lines if all(one in line for one in wanted))
    return sum(int(line.rpartition(" ")[2]) for line in found)


async def begin(store: Store, two: tuple[Daemon, Daemon]) -> None:
    """Start both aggregators; the first one leads."""
    await publish(store, 0)
    for daemon in two:
        await asyncio.to_thread(daemon.start)
    assert leads(two[0])
    assert role(two[1]).startswith("follower of ")


@pytest.mark.alone
async def test_a_change_and_the_end_of_the_leader_take_no_second(
    store: Store, two: tuple[Daemon, Daemon]
) -> None:
    await begin(store, two)
    one, other = two
    async with watching(store, OUTPUTS) as seen:
        await seen.until(all_are(0))
        began = time.monotonic()
        await store.put(numbered(NODES[3], 1))
        await seen.until(lambda seen: states(seen)[NODES[3]] == 1)
        assert time.monotonic() - began < patience(1.0)
        one.process.signal(signal.SIGTERM)
        await store.put(numbered(NODES[7], 1))
        began = time.monotonic()
        await seen.until(lambda seen: states(seen)[NODES[7]] == 1)
        assert time.monotonic() - began < patience(1.5)
        assert one.process.wait(patience(5)) == 0
        await until(lambda: leads(other))
        await publish(store, 2)
        await seen.until(all_are(2))
        judge(seen)
    assert other.metric("npu_vigil_aggregator_transitions_total") == 1


def lease_seconds(plane: ControlPlane) -> int:
    """Return how long the Lease lasts: longer than configured while renewals take long."""
    seconds: int = plane.request("GET", f"{LEASES}/{LEADER_LEASE}")["spec"]["leaseDurationSeconds"]
    return seconds


async def leads_soon(daemon: Daemon, seconds: float) -> None:
    """Wait until this aggregator leads; where it does not, show its log."""
    await deadlines.until(
        lambda: asyncio.to_thread(leads, daemon),
        lambda: f"it leads: {daemon.log.read_text()[-3000:]}",
        seconds,
    )


async def test_killed_under_a_storm_no_node_is_stale_and_nothing_older_comes_back(
    control_plane: ControlPlane, store: Store, two: tuple[Daemon, Daemon]
) -> None:
    await begin(store, two)
    one, other = two
    async with watching(store, OUTPUTS) as seen:
        async with storm(store, 0) as number:
            await until(lambda: number() >= 3)
            one.kill()
            began, lasts = time.monotonic(), lease_seconds(control_plane)
            await leads_soon(other, lasts + 20)
            took = time.monotonic() - began
            await until(lambda: number() >= 8)
            last = number()
        await publish(store, last + 2)
        await seen.until(all_are(last + 2))
        judge(seen)
    assert took < lasts + patience(5), "three seconds more on a machine that is busy"
    one.start()
    assert not leads(one)


async def test_paused_under_a_storm_it_follows_when_it_goes_on(
    control_plane: ControlPlane, store: Store, two: tuple[Daemon, Daemon]
) -> None:
    await begin(store, two)
    one, other = two
    async with watching(store, OUTPUTS) as seen:
        async with storm(store, 0) as number:
            await until(lambda: number() >= 3)
            one.process.freeze()
            await leads_soon(other, lease_seconds(control_plane) + 20)
            before = number()
            await until(lambda: number() >= before + 2)
            one.process.thaw()
            await until(lambda: role(one) == role(other).replace("leader", "") or not leads(one))
            await until(lambda: number() >= before + 4)
            last = number()
        await publish(store, last + 2)
        await seen.until(all_are(last + 2))
        judge(seen)
        assert leads(other)
        holder = control_plane.request("GET", f"{LEASES}/{LEADER_LEASE}")["spec"]["holderIdentity"]
        assert role(one) == f"follower of {holder}"
        # It follows what the other one writes, so it can lead again.
        other.process.signal(signal.SIGTERM)
        await store.put(numbered(NODES[3], last + 3))
        await seen.until(lambda seen: states(seen)[NODES[3]] == last + 3)
        judge(seen)
    # The other one may have written that before it observed the signal.
    await until(lambda: leads(one))
    await until(lambda: one.metric("npu_vigil_aggregator_transitions_total") == 2)


async def test_a_write_that_was_on_its_way_for_longer_than_the_lease_is_refused(
    control_plane: ControlPlane, store: Store, make: Make, lease: tuple[str, str]
) -> None:
    async with Relay(control_plane.port) as relay:
        one = make("kubernetes:", control_plane.administrator_at(relay.port), *lease)
        other = make("kubernetes:", control_plane.kubeconfig, *lease)
        await publish(store, 0)
        await asyncio.to_thread(one.start)
        await asyncio.to_thread(other.start)
        assert await asyncio.to_thread(leads, one)
        async with watching(store, OUTPUTS) as seen:
            await seen.until(all_are(0))
            before = refused_writes(control_plane)
            relay.hold_requests()
            await store.put(numbered(NODES[5], 1))
            # The whole document is on its way, and nothing else is as large.
            await until(lambda: relay.held_bytes > 10_000)
            await asyncio.to_thread(one.process.freeze)
            # By then the fault is over: there is nothing that the new leader has to write.
            await store.put(numbered(NODES[5], 0))
            await until(lambda: leads(other))
            await until(lambda: other.metric("npu_vigil_publication_touches_total") >= 1)
            assert states(seen)[NODES[5]] == 0
            relay.restore()
            await until(lambda: refused_writes(control_plane) == before + 1)
            one.process.thaw()
            await until(lambda: not leads(one))
            await publish(store, 2)
            await seen.until(all_are(2))
            judge(seen)
