"""A leader that is paused, in virtual time, and what it does when it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from contract.names import STATE_PREFIX
from tests.cluster.playing import public_message
from tests.cluster.replicas import (
    DEVICE,
    LEASE_SECONDS,
    begin_two,
    nothing_older_came,
    numbered_state,
    pause_when_it_asks,
    replicas,
)
from tests.contract.documents.node_documents import config

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.replicas import Replicas

pytestmark = pytest.mark.looptime(resolution=2**-20)


def numbers(site: Replicas) -> dict[str, int]:
    """Return the published state of each node."""
    return {node: entry["SuperPodID"] for node, entry in site.devices.items()}


@pytest.mark.slow
async def test_a_write_that_a_paused_leader_had_on_its_way_is_refused(tmp_path: Path) -> None:
    async with replicas(tmp_path) as site:
        for node in ("n1", "n2"):
            await site.device(node, numbered_state(1))
        one, other = await begin_two(site)
        pause_when_it_asks(site, one, "PUT", DEVICE)
        await site.device("n1", numbered_state(2), 1)
        assert numbers(site) == {"n1": 1, "n2": 1}
        # By the time that another replica leads there is nothing to write.
        await site.device("n1", numbered_state(1), LEASE_SECONDS + 1)
        assert other.leads
        await site.pass_time(50)
        site.go_on(one)
        await site.pass_time(1)
        assert one.made.publication.publishers[0].outputs[DEVICE].refused_total == 1
        assert (one.leads, other.leads) == (False, True)
        assert numbers(site) == {"n1": 1, "n2": 1}
        await site.device("n2", numbered_state(3), 1)
        await site.killed(other)
        await site.device("n1", numbered_state(4), LEASE_SECONDS + 2)
        assert one.leads
        assert numbers(site) == {"n1": 4, "n2": 3}
        assert nothing_older_came(site)


@pytest.mark.slow
async def test_a_leader_that_is_paused_for_a_minute_writes_nothing_when_it_goes_on(
    tmp_path: Path,
) -> None:
    async with replicas(tmp_path) as site:
        for node in ("n1", "n2"):
            await site.device(node, numbered_state(1))
        one, other = await begin_two(site)
        await site.device("n1", numbered_state(2))
        site.pause(one)  # it has received nothing yet
        await site.pass_time(LEASE_SECONDS + 2)
        assert other.leads
        assert numbers(site) == {"n1": 2, "n2": 1}
        for number in range(3, 27):
            await site.device(f"n{number % 2 + 1}", numbered_state(number), 2)
        before = numbers(site)
        assert before == {"n1": 26, "n2": 25}
        shown = len(site.played.shown)
        site.go_on(one)
        await site.pass_time(2)
        assert not one.leads
        assert one.made.queries.leadership.follows
        assert len(site.played.shown) == shown
        assert one.made.pipeline.value(DEVICE).text == site.outputs[DEVICE][DEVICE]
        assert not one.made.publication.readiness.health().not_ready
        assert nothing_older_came(site)


async def test_a_touch_that_comes_late_changes_nothing_and_is_nobodys_write(
    tmp_path: Path,
) -> None:
    async with replicas(tmp_path) as site:
        await site.device("n1", numbered_state(1))
        one, other = await begin_two(site)
        pause_when_it_asks(site, one, "PATCH", DEVICE)
        await site.pass_time(60)
        assert other.leads
        await site.device("n1", numbered_state(2), 5)
        site.go_on(one)
        await site.pass_time(2**-9)
        await site.device("n1", numbered_state(3), 3)
        assert numbers(site) == {"n1": 3}
        output = other.made.publication.publishers[0].outputs[DEVICE]
        assert output.foreign.total == 0
        assert not output.conflict
        assert nothing_older_came(site)


@pytest.mark.slow
async def test_state_that_a_paused_leader_was_about_to_keep_does_not_replace_newer(
    tmp_path: Path,
) -> None:
    async with replicas(tmp_path) as site:
        await site.node("n1", serial_number="SN-1")
        await site.device("n1", config())
        one, other = await begin_two(site)
        await site.public("p1", public_message("occur"))
        await site.pass_time(3)
        pause_when_it_asks(site, one, "PUT", STATE_PREFIX)
        await site.public("p2", public_message("occur", number=2, chips=(1,)))
        await site.pass_time(LEASE_SECONDS + 3)
        assert other.leads
        assert site.unhealthy("n1") == "Ascend910-0,Ascend910-1"
        await site.public("p3", public_message("recover", number=1))
        await site.pass_time(45)
        assert site.unhealthy("n1") == "Ascend910-1"
        site.go_on(one)
        await site.pass_time(5)
        await site.killed(other)
        await site.pass_time(LEASE_SECONDS + 3)
        assert one.leads
        assert site.unhealthy("n1") == "Ascend910-1"
