"""Nodes that fall silent before, while and after one leader follows another."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from contract.names import CLUSTER_NODE_NAME
from tests.aggregator.failover.test_takeover import EITHER_END, end, two
from tests.cluster.beating import INTERVAL_SECONDS, THRESHOLD_SECONDS, agents
from tests.cluster.replicas import LEASE_SECONDS, replicas
from tests.contract.documents.test_cluster_node import node_data

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.replicas import Replica, Replicas

pytestmark = pytest.mark.looptime(resolution=2**-20)

NODES = [f"n{number}" for number in range(10)]
LATE_SECONDS = INTERVAL_SECONDS + 2
"""From when a node is silent until that is published: beats are listed once per interval."""


async def servers(world: Replicas) -> None:
    """All nodes say that they are well."""
    for node in NODES:
        await world.server(node, node_data([], "Healthy"))


def lost(world: Replicas) -> set[str]:
    """Who is published so now."""
    return {node for node, entry in world.servers.items() if entry["NodeStatus"] == "UnHealthy"}


def ever_lost(world: Replicas, since_ms: int = 0) -> list[set[str]]:
    """Who was published so, one set after the other, without repetitions."""
    found: list[set[str]] = []
    for one in world.played.shown:
        if one.name != CLUSTER_NODE_NAME or not one.data or one.at_ms < since_ms:
            continue
        entries = json.loads(one.data[CLUSTER_NODE_NAME] or "{}")
        now = {
            key.removeprefix("mindx-dl-nodeinfo-")
            for key, entry in entries.items()
            if entry["NodeStatus"] == "UnHealthy"
        }
        if not found or found[-1] != now:
            found.append(now)
    return found


def brakes(replica: Replica) -> bool:
    """Whether it holds somebody back who is silent."""
    return replica.made.listener.verdict.brake is not None


@pytest.mark.slow
@EITHER_END
async def test_who_is_lost_stays_lost_until_it_beats(tmp_path: Path, *, killed: bool) -> None:
    async with replicas(tmp_path) as world, agents(world, NODES) as beating:
        await servers(world)
        one, other = await two(world)
        await world.pass_time(20)
        beating.silent.add("n3")
        await world.pass_time(30)
        assert lost(world) == {"n3"}
        await end(world, one, other, killed=killed)
        third = await world.begin("third", 30)
        await end(world, other, third, killed=killed)
        await world.pass_time(30)
        # All of them end, and one is begun that has listened to nothing.
        await world.killed(third)
        await world.pass_time(40)
        await world.begin("fourth", LEASE_SECONDS + 30)
        assert lost(world) == {"n3"}
        assert ever_lost(world) == [set(), {"n3"}]
        beating.silent.clear()
        await world.pass_time(12)
        assert ever_lost(world) == [set(), {"n3"}, set()]


@EITHER_END
@pytest.mark.parametrize("before", [1, 8, 14])
async def test_who_fell_silent_before_is_found_in_time(
    tmp_path: Path, before: int, *, killed: bool
) -> None:
    async with replicas(tmp_path) as world, agents(world, NODES) as beating:
        await servers(world)
        one, other = await two(world)
        await world.pass_time(20)
        beating.silent.add("n0")
        began = world.at_ms
        await world.pass_time(before)
        await end(world, one, other, killed=killed)
        passed = (world.at_ms - began) / 1000
        await world.pass_time(max(0.0, THRESHOLD_SECONDS + LATE_SECONDS - passed))
        assert lost(world) == {"n0"}
        assert ever_lost(world) == [set(), {"n0"}]


@pytest.mark.slow
async def test_nobody_is_lost_because_somebody_has_just_begun(tmp_path: Path) -> None:
    async with replicas(tmp_path) as world, agents(world, NODES) as beating:
        await servers(world)
        for number in range(4):
            life = await world.begin(f"life-{number}", 17)
            await world.killed(life)
            await world.pass_time(40)
        beating.silent.add("n1")
        await world.pass_time(100)  # nobody listens, and it beats again before anybody would know
        began = world.at_ms
        await world.begin("last", THRESHOLD_SECONDS - INTERVAL_SECONDS - 1)
        beating.silent.clear()
        await world.pass_time(60)
        assert ever_lost(world) == [set()]
        beating.silent.add("n1")
        await world.pass_time(30)
        assert ever_lost(world, began) == [set(), {"n1"}]


@pytest.mark.slow
@EITHER_END
async def test_who_fell_silent_while_nobody_listened_is_lost_one_threshold_later(
    tmp_path: Path, *, killed: bool
) -> None:
    async with replicas(tmp_path) as world, agents(world, NODES) as beating:
        await servers(world)
        one = await world.begin("one", 20)
        await (world.killed(one) if killed else world.told_to_end(one))
        beating.silent.add("n1")
        await world.pass_time(300)
        other = await world.begin("other", THRESHOLD_SECONDS - 1)
        assert lost(world) == set()
        await world.pass_time(1 + LATE_SECONDS + LEASE_SECONDS)
        assert other.leads
        assert lost(world) == {"n1"}


@pytest.mark.slow
@EITHER_END
@pytest.mark.parametrize("before", [3, 12, 30])
async def test_many_at_once_are_never_lost_whoever_leads(
    tmp_path: Path, before: int, *, killed: bool
) -> None:
    async with replicas(tmp_path) as world, agents(world, NODES) as beating:
        await servers(world)
        one, other = await two(world)
        await world.pass_time(20)
        beating.silent |= set(NODES[:5])
        await world.pass_time(before)
        await end(world, one, other, killed=killed)
        await world.pass_time(60)
        assert ever_lost(world) == [set()]
        assert brakes(other)
        # The next one has listened to nothing.
        await world.killed(other)
        last = await world.begin("last", LEASE_SECONDS + 60)
        assert last.leads
        assert ever_lost(world) == [set()]
        assert brakes(last)
        beating.silent.clear()
        await world.pass_time(20)
        assert not brakes(last)
        assert ever_lost(world) == [set()]


@pytest.mark.slow
async def test_who_is_lost_while_the_leader_is_paused_is_lost_for_it_too(tmp_path: Path) -> None:
    async with replicas(tmp_path) as world, agents(world, NODES) as beating:
        await servers(world)
        one, other = await two(world)
        await world.pass_time(20)
        world.pause(one)
        beating.silent.add("n1")
        await world.pass_time(60)
        assert other.leads
        assert lost(world) == {"n1"}
        world.go_on(one)
        await world.pass_time(3)
        await world.killed(other)
        await world.pass_time(LEASE_SECONDS + 60)
        assert one.leads
        assert ever_lost(world) == [set(), {"n1"}]


@pytest.mark.slow
async def test_an_outage_between_two_leaders_is_nobodys_silence(tmp_path: Path) -> None:
    async with replicas(tmp_path) as world, agents(world, NODES):
        await servers(world)
        one, other = await two(world)
        await world.pass_time(20)
        world.api.go_down()
        await world.pass_time(45)
        world.api.come_back()
        await world.killed(one)
        await world.pass_time(60)
        assert other.leads
        assert ever_lost(world) == [set()]
