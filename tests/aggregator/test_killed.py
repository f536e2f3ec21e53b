"""A kill at any moment: what documents reported before counts afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from contract.names import CLUSTER_NODE_NAME
from tests.cluster.playing import cluster, public_message
from tests.contract.documents.node_documents import config, node_data

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.looptime(resolution=2**-20)

KILL_SECONDS = (0.0, 0.006, 0.03, 0.06, 0.11)
"""Requests take 4 ms here, and state is written every 50 ms."""


@pytest.mark.slow
async def test_a_public_fault_in_a_document_is_not_lost(tmp_path: Path) -> None:
    async with cluster(tmp_path) as site:
        nodes = [f"n{number}" for number in range(len(KILL_SECONDS))]
        for node in ("all", *nodes):
            await site.node(node)
            await site.device(node, config())
        site.start()
        await site.pass_time(5)
        for node, seconds in zip(nodes, KILL_SECONDS, strict=True):
            both: dict[str, Any] = public_message("occur", node=node)
            both["faults"][0]["influence"].append({"nodeName": "all", "deviceIds": [1]})
            await site.public(f"p-{node}", both)
            await site.pass_time(seconds)
            await site.kill()
            site.start()
            await site.pass_time(5)
            assert site.unhealthy(node) == "Ascend910-0", seconds
            assert site.unhealthy("all") == "Ascend910-1", seconds
            await site.public(f"p-{node}", public_message("recover", node=node))
            await site.pass_time(seconds)
            await site.kill()
            site.start()
            await site.pass_time(5)
            assert site.unhealthy(node) == "", seconds


@pytest.mark.slow
@pytest.mark.parametrize("end", ["kill", "end"])
async def test_a_deletion_is_not_lost(end: str, tmp_path: Path) -> None:
    async with cluster(tmp_path) as site:
        site.start()
        await site.pass_time(5)
        for seconds in KILL_SECONDS[:2]:
            await site.server("n1", node_data(None, "UnHealthy"), 2)
            assert "n1" in site.servers
            thing = {"namespace": "mindx-dl", "name": "mindx-dl-nodeinfo-n1"}
            await site.do({"do": "delete-configmap", "object": thing})
            await site.pass_time(seconds)
            await getattr(site, end)()
            site.start()
            await site.pass_time(60)
            assert site.outputs[CLUSTER_NODE_NAME][CLUSTER_NODE_NAME] == "", seconds
