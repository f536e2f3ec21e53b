"""All nodes are stopped for a while, as for an upgrade; an agent that begins then is killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stores.base import Beat
from stores.kubernetes_api.beats import LeaseHeartbeats
from tests.cluster.beating import INTERVAL_SECONDS, THRESHOLD_SECONDS, agents
from tests.cluster.playing import cluster
from tests.contract.documents.node_documents import node_data

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.playing import Cluster

pytestmark = pytest.mark.looptime(resolution=2**-20)

NODES = [f"n{number}" for number in range(5)]
ABSENCE_SECONDS = 300


async def stop(site: Cluster, node: str) -> None:
    """Return the last beat of an agent: its node may be silent for longer."""
    beats = LeaseHeartbeats(site.api.client("agents"))  # type: ignore[arg-type]
    await beats.beat(Beat(node, f"host-{node}", ABSENCE_SECONDS / 3, site.wall_ms))


@pytest.mark.parametrize("restarts", [False, True])
async def test_an_agent_that_is_killed_meanwhile_is_lost_as_soon_as_ever(
    tmp_path: Path, *, restarts: bool
) -> None:
    async with cluster(tmp_path) as site:
        for node in NODES:
            await site.server(node, node_data([], "Healthy"))
        async with agents(site, NODES) as beating:
            site.start()
            await site.pass_time(4 * INTERVAL_SECONDS)
            beating.silent |= set(NODES)
            for node in NODES:
                await stop(site, node)
            await site.pass_time(30)
            if restarts:
                await site.kill()
                site.start()
                await site.pass_time(30)
            beating.silent.remove("n3")
            await site.pass_time(2 * INTERVAL_SECONDS)
            beating.silent.add("n3")
            await site.pass_time(THRESHOLD_SECONDS + INTERVAL_SECONDS + 2)
            lost = {n for n, entry in site.servers.items() if entry["NodeStatus"] == "UnHealthy"}
            assert lost == {"n3"}
