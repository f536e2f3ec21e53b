"""A leader that is paused, in virtual time, and what it does when it goes on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from contract.names import STATE_PREFIX
from tests.aggregator.failover.test_takeover import two
from tests.aggregator.nodes import T0
from tests.aggregator.test_where_clusterd_is_wrong import public
from tests.cluster.replicas import LEASE_SECONDS, replicas
from tests.contract.documents.test_cluster_device import config

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.replicas import Replica, Replicas

pytestmark = pytest.mark.looptime(resolution=2**-20)

DEVICE = "cluster-info-device-0"


def state(number: int) -> dict[str, str]:
    """What a node says in this state, of which the number is published."""
    return config(update_time=T0 + number, SuperPodID=number)


def numbers(world: Replicas) -> dict[str, int]:
    """Node to the state that is published now."""
    return {node: entry["SuperPodID"] for node, entry in world.devices.items()}


def nothing_older_came(world: Replicas) -> bool:
    """Whether neither the state nor the stamp of a node ever went back."""
    last: dict[str, tuple[int, int]] = {}
    for shown in world.played.shown:
        if shown.name != DEVICE or not shown.data:
            continue
        for key, entry in json.loads(shown.data[DEVICE] or "{}").items():
            now = entry["SuperPodID"], entry["UpdateTime"]
            before = last.get(key, now)
            if now[0] < before[0] or now[1] < before[1]:
                return False
            last[key] = now
    return True


def pause_when_it_asks(world: Replicas, replica: Replica, method: str, name: str) -> None:
    """It is paused with the next such request on its way."""
    client = replica.client
    assert client is not None
    real = client.request

    async def request(asked: str, path: str, *arguments: Any, **named: Any) -> tuple[int, bytes]:
        if asked == method and name in path:
            do_not_pause(replica)
            world.pause(replica)
        return await real(asked, path, *arguments, **named)

    client.request = request  # type: ignore[assignment, method-assign]


def do_not_pause(replica: Replica) -> None:
    """Whatever it asks."""
    vars(replica.client).pop("request", None)


@pytest.mark.slow
async def test_a_write_that_a_paused_leader_had_on_its_way_is_refused(tmp_path: Path) -> None:
    async with replicas(tmp_path) as world:
        for node in ("n1", "n2"):
            await world.device(node, state(1))
        one, other = await two(world)
        pause_when_it_asks(world, one, "PUT", DEVICE)
        await world.device("n1", state(2), 1)
        assert numbers(world) == {"n1": 1, "n2": 1}
        # By the time that somebody else leads there is nothing to write.
        await world.device("n1", state(1), LEASE_SECONDS + 1)
        assert other.leads
        await world.pass_time(50)
        world.go_on(one)
        await world.pass_time(1)
        assert one.made.publishers[0].outputs[DEVICE].refused_total == 1
        assert (one.leads, other.leads) == (False, True)
        assert numbers(world) == {"n1": 1, "n2": 1}
        await world.device("n2", state(3), 1)
        await world.killed(other)
        await world.device("n1", state(4), LEASE_SECONDS + 2)
        assert one.leads
        assert numbers(world) == {"n1": 4, "n2": 3}
        assert nothing_older_came(world)


async def test_a_leader_that_is_paused_for_a_minute_writes_nothing_when_it_goes_on(
    tmp_path: Path,
) -> None:
    async with replicas(tmp_path) as world:
        for node in ("n1", "n2"):
            await world.device(node, state(1))
        one, other = await two(world)
        await world.device("n1", state(2))
        world.pause(one)  # it has heard of nothing yet
        await world.pass_time(LEASE_SECONDS + 2)
        assert other.leads
        assert numbers(world) == {"n1": 2, "n2": 1}
        for number in range(3, 27):
            await world.device(f"n{number % 2 + 1}", state(number), 2)
        before = numbers(world)
        assert before == {"n1": 26, "n2": 25}
        shown = len(world.played.shown)
        world.go_on(one)
        await world.pass_time(2)
        assert not one.leads
        assert one.made.leadership.follows
        assert len(world.played.shown) == shown
        assert one.made.pipeline.value(DEVICE).text == world.outputs[DEVICE][DEVICE]
        assert not one.made.readiness.health().not_ready
        assert nothing_older_came(world)


async def test_a_touch_that_comes_late_changes_nothing_and_is_nobodys_write(
    tmp_path: Path,
) -> None:
    async with replicas(tmp_path) as world:
        await world.device("n1", state(1))
        one, other = await two(world)
        pause_when_it_asks(world, one, "PATCH", DEVICE)
        await world.pass_time(60)
        assert other.leads
        await world.device("n1", state(2), 5)
        world.go_on(one)
        await world.pass_time(2**-9)
        await world.device("n1", state(3), 3)
        assert numbers(world) == {"n1": 3}
        output = other.made.publishers[0].outputs[DEVICE]
        assert output.foreign.total == 0
        assert not output.conflict
        assert nothing_older_came(world)


async def test_state_that_a_paused_leader_was_about_to_keep_does_not_replace_newer(
    tmp_path: Path,
) -> None:
    async with replicas(tmp_path) as world:
        await world.node("n1", serial_number="SN-1")
        await world.device("n1", config())
        one, other = await two(world)
        await world.public("p1", public("occur"))
        await world.pass_time(3)
        pause_when_it_asks(world, one, "PUT", STATE_PREFIX)
        await world.public("p2", public("occur", number=2, chips=(1,)))
        await world.pass_time(LEASE_SECONDS + 3)
        assert other.leads
        assert world.unhealthy("n1") == "Ascend910-0,Ascend910-1"
        await world.public("p3", public("recover", number=1))
        await world.pass_time(45)
        assert world.unhealthy("n1") == "Ascend910-1"
        world.go_on(one)
        await world.pass_time(5)
        await world.killed(other)
        await world.pass_time(LEASE_SECONDS + 3)
        assert one.leads
        assert world.unhealthy("n1") == "Ascend910-1"
