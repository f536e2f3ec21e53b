"""Nodes that fall silent before, while and after one leader follows another."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from contract.names import CLUSTER_NODE_NAME
from tests.cluster.beating import INTERVAL_SECONDS, THRESHOLD_SECONDS, agents
from tests.cluster.replicas import EITHER_END, LEASE_SECONDS, begin_two, end_leader, replicas
from tests.contract.documents.node_documents import node_data
from tests.parts.examples import mostly_slow

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.replicas import Replica, Replicas

pytestmark = pytest.mark.looptime(resolution=2**-20)

NODES = [f"n{number}" for number in range(10)]
LATE_SECONDS = INTERVAL_SECONDS + 2
"""From when a node is silent until that is published: beats are listed once per interval."""


async def servers(site: Replicas) -> None:
    """Publish that all servers are well."""
    for node in NODES:
        await site.server(node, node_data([], "Healthy"))


def lost(site: Replicas) -> set[str]:
    """Return the nodes that are published as lost."""
    return {node for node, entry in site.servers.items() if entry["NodeStatus"] == "UnHealthy"}


def ever_lost(site: Replicas, since_ms: int = 0) -> list[set[str]]:
    """Return the successive sets of nodes that were published as lost, without repetitions."""
    found: list[set[str]] = []
    for one in site.played.shown:
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
    """Return whether the brake holds a silent node."""
    return replica.made.heartbeat_monitor.lost_nodes.brake is not None


@pytest.mark.slow
@EITHER_END
async def test_lost_node_stays_lost_until_it_beats(tmp_path: Path, *, killed: bool) -> None:
    async with replicas(tmp_path) as site, agents(site, NODES) as beating:
        await servers(site)
        one, other = await begin_two(site)
        await site.pass_time(20)
        beating.silent.add("n3")
        await site.pass_time(30)
        assert lost(site) == {"n3"}
        await end_leader(site, one, other, killed=killed)
        third = await site.begin("third", 30)
        await end_leader(site, other, third, killed=killed)
        await site.pass_time(30)
        # All of them end, and one is begun that has listened to nothing.
        await site.killed(third)
        await site.pass_time(40)
        await site.begin("fourth", LEASE_SECONDS + 30)
        assert lost(site) == {"n3"}
        assert ever_lost(site) == [set(), {"n3"}]
        beating.silent.clear()
        await site.pass_time(12)
        assert ever_lost(site) == [set(), {"n3"}, set()]


@EITHER_END
@pytest.mark.parametrize("before", mostly_slow([1, 8, 14], 3))
async def test_node_silent_before_a_takeover_is_lost_in_time(
    tmp_path: Path, before: int, *, killed: bool
) -> None:
    async with replicas(tmp_path) as site, agents(site, NODES) as beating:
        await servers(site)
        one, other = await begin_two(site)
        await site.pass_time(20)
        beating.silent.add("n0")
        began = site.at_ms
        await site.pass_time(before)
        await end_leader(site, one, other, killed=killed)
        passed = (site.at_ms - began) / 1000
        await site.pass_time(max(0.0, THRESHOLD_SECONDS + LATE_SECONDS - passed))
        assert lost(site) == {"n0"}
        assert ever_lost(site) == [set(), {"n0"}]


@pytest.mark.slow
async def test_no_node_is_lost_because_a_replica_has_just_begun(tmp_path: Path) -> None:
    async with replicas(tmp_path) as site, agents(site, NODES) as beating:
        await servers(site)
        for number in range(4):
            life = await site.begin(f"life-{number}", 17)
            await site.killed(life)
            await site.pass_time(40)
        beating.silent.add("n1")
        await site.pass_time(100)  # no replica runs, and it beats again before one starts
        began = site.at_ms
        await site.begin("last", THRESHOLD_SECONDS - INTERVAL_SECONDS - 1)
        beating.silent.clear()
        await site.pass_time(60)
        assert ever_lost(site) == [set()]
        beating.silent.add("n1")
        await site.pass_time(30)
        assert ever_lost(site, began) == [set(), {"n1"}]


@pytest.mark.slow
@EITHER_END
async def test_node_that_fell_silent_without_a_leader_is_lost_one_threshold_later(
    tmp_path: Path, *, killed: bool
) -> None:
    async with replicas(tmp_path) as site, agents(site, NODES) as beating:
        await servers(site)
        one = await site.begin("one", 20)
        await (site.killed(one) if killed else site.stop(one))
        beating.silent.add("n1")
        await site.pass_time(300)
        other = await site.begin("other", THRESHOLD_SECONDS - 1)
        assert lost(site) == set()
        await site.pass_time(1 + LATE_SECONDS + LEASE_SECONDS)
        assert other.leads
        assert lost(site) == {"n1"}


@pytest.mark.slow
@EITHER_END
@pytest.mark.parametrize("before", [3, 12, 30])
async def test_many_at_once_are_never_lost_under_any_leader(
    tmp_path: Path, before: int, *, killed: bool
) -> None:
    async with replicas(tmp_path) as site, agents(site, NODES) as beating:
        await servers(site)
        one, other = await begin_two(site)
        await site.pass_time(20)
        beating.silent |= set(NODES[:5])
        await site.pass_time(before)
        await end_leader(site, one, other, killed=killed)
        await site.pass_time(60)
        assert ever_lost(site) == [set()]
        assert brakes(other)
        # The next one has listened to nothing.
        await site.killed(other)
        last = await site.begin("last", LEASE_SECONDS + 60)
        assert last.leads
        assert ever_lost(site) == [set()]
        assert brakes(last)
        beating.silent.clear()
        await site.pass_time(20)
        assert not brakes(last)
        assert ever_lost(site) == [set()]


@pytest.mark.slow
async def test_node_lost_while_the_leader_is_paused_is_lost_for_it_too(tmp_path: Path) -> None:
    async with replicas(tmp_path) as site, agents(site, NODES) as beating:
        await servers(site)
        one, other = await begin_two(site)
        await site.pass_time(20)
        site.pause(one)
        beating.silent.add("n1")
        await site.pass_time(60)
        assert other.leads
        assert lost(site) == {"n1"}
        site.go_on(one)
        await site.pass_time(3)
        await site.killed(other)
        await site.pass_time(LEASE_SECONDS + 60)
        assert one.leads
        assert ever_lost(site) == [set(), {"n1"}]


@pytest.mark.slow
async def test_an_outage_between_two_leaders_is_nobodys_silence(tmp_path: Path) -> None:
    async with replicas(tmp_path) as site, agents(site, NODES):
        await servers(site)
        one, other = await begin_two(site)
        await site.pass_time(20)
        site.api.go_down()
        await site.pass_time(45)
        site.api.come_back()
        await site.killed(one)
        await site.pass_time(60)
        assert other.leads
        assert ever_lost(site) == [set()]
