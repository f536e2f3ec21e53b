"""The Lease of the aggregator that leads, on a real API server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from contract.errors import StoreConflict
from contract.names import LEADER_LEASE
from stores.address import open_store
from stores.base import LeaderElectionRecord
from tests.parts.controlplane import LEASES
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stores.base import LeaderLease
    from stores.interruption import Interrupted
    from tests.parts.controlplane import ControlPlane

pytestmark = pytest.mark.apiserver


@pytest.fixture
async def lease(control_plane: ControlPlane) -> AsyncIterator[LeaderLease]:
    store = open_store("kubernetes:", control_plane.kubeconfig)
    assert store.leader_lease is not None
    yield store.leader_lease
    await store.close()


def spec(plane: ControlPlane) -> dict[str, Any]:
    found: dict[str, Any] = plane.request("GET", f"{LEASES}/{LEADER_LEASE}")["spec"]
    return found


async def test_lease_is_taken_renewed_released_and_refused_to_a_late_holder(
    control_plane: ControlPlane, lease: LeaderLease
) -> None:
    record = await lease.read()
    assert record == LeaderElectionRecord("", 0)
    first = await lease.write(LeaderElectionRecord("a", 10))
    with pytest.raises(StoreConflict):
        await lease.write(LeaderElectionRecord("b", 10))
    second = await lease.write(await lease.write(first))
    assert second.version != first.version, "a renewal is a change"
    assert await lease.read() == second
    shown = spec(control_plane)
    assert (shown["holderIdentity"], shown["leaseDurationSeconds"]) == ("a", 10)
    assert shown["acquireTime"] < shown["renewTime"]
    with pytest.raises(StoreConflict):
        await lease.write(LeaderElectionRecord("b", 10, 1, first.version))
    given_up = await lease.write(LeaderElectionRecord("", 1, 0, second.version))
    taken = await lease.write(LeaderElectionRecord("b", 10, 1, given_up.version))
    assert spec(control_plane)["leaseTransitions"] == 1
    # The API server makes one that was deleted anew for its holder, or for who is faster.
    control_plane.request("DELETE", f"{LEASES}/{LEADER_LEASE}")
    await lease.write(taken)
    with pytest.raises(StoreConflict):
        await lease.write(LeaderElectionRecord("a", 10))
    control_plane.request("DELETE", f"{LEASES}/{LEADER_LEASE}")
    await lease.write(LeaderElectionRecord("a", 10))
    with pytest.raises(StoreConflict):
        await lease.write(taken)


async def test_it_is_followed(control_plane: ControlPlane, lease: LeaderLease) -> None:
    seen: asyncio.Queue[LeaderElectionRecord | Interrupted] = asyncio.Queue()

    async def follow() -> None:
        async for event in lease.watch():
            seen.put_nowait(event)

    task = asyncio.create_task(follow())
    async with asyncio.timeout(patience(20)):
        assert await seen.get() == LeaderElectionRecord("", 0)
        first = await lease.write(LeaderElectionRecord("a", 10))
        assert await seen.get() == first
        second = await lease.write(first)
        assert await seen.get() == second
        control_plane.request("DELETE", f"{LEASES}/{LEADER_LEASE}")
        assert await seen.get() == LeaderElectionRecord("", 0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
