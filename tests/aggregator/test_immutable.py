"""Documents that were made immutable: no reader sees a node healthy meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from contract.names import CLUSTER_NODE_NAME
from tests.cluster.playing import DEVICE, broken, cluster
from tests.contract.documents.clusterd_examples import EXAMPLES
from tests.contract.documents.node_documents import node_data

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.looptime(resolution=2**-20)

SWITCH = "cluster-info-switch-0"
ENTRY = "mindx-dl-deviceinfo-n1"


@pytest.mark.parametrize("seconds", [0.0, 0.01, 1.0, 1.9])
async def test_a_document_that_is_deleted_and_created_was_not_deleted(
    seconds: float, tmp_path: Path
) -> None:
    async with cluster(tmp_path) as site:
        site.start()
        await site.device("n1", broken(3), 3)
        before = len(site.played.shown)
        await site.gone("n1", seconds)
        await site.device("n1", broken(3, 4, update_time=1_760_000_100), 5)
        assert site.unhealthy("n1") == "Ascend910-3,Ascend910-4"
        assert site.shown_unhealthy("n1")[-2:] == ["Ascend910-3", "Ascend910-3,Ascend910-4"]
        assert len(site.played.shown) == before + 1
        await site.pass_time(60)
        assert site.shown_unhealthy("n1")[-1] == "Ascend910-3,Ascend910-4"


async def test_a_document_that_stays_away_was_deleted(tmp_path: Path) -> None:
    async with cluster(tmp_path) as site:
        site.start()
        await site.device("n1", broken(3), 3)
        await site.gone("n1", 1.9)
        assert site.unhealthy("n1") == "Ascend910-3"
        await site.pass_time(0.3)
        assert site.unhealthy("n1") == ""


@pytest.mark.slow
@pytest.mark.parametrize("name", [DEVICE, SWITCH, CLUSTER_NODE_NAME])
async def test_a_cluster_document_that_another_program_made_immutable_is_written_again(
    name: str, tmp_path: Path
) -> None:
    async with cluster(tmp_path) as site:
        site.start()
        switch = {"SwitchInfoCfg": EXAMPLES["E17"]["input"]}
        await site.device("n1", broken(3) | switch)
        await site.server("n1", node_data(None, "UnHealthy"))
        await site.pass_time(3)
        right = site.outputs[name]
        path = f"/api/v1/namespaces/mindx-dl/configmaps/{name}"
        status, _ = site.api.ask("PATCH", path, {"immutable": True})
        assert status == 200
        await site.pass_time(1)
        _, there = site.api.ask("GET", path)
        assert "immutable" not in there
        assert there["data"] == right
        await site.device("n1", broken(3, 4, update_time=1_760_000_100), 1)
        assert site.unhealthy("n1") == "Ascend910-3,Ascend910-4"


async def test_the_server_in_memory_refuses_what_a_real_one_does(tmp_path: Path) -> None:
    async with cluster(tmp_path) as site:
        await site.device("n1", broken(3))
        path = f"/api/v1/namespaces/kube-system/configmaps/{ENTRY}"
        assert site.api.ask("PATCH", path, {"immutable": True})[0] == 200
        assert site.api.ask("PATCH", path, {"data": {"a": "b"}})[0] == 422
        assert site.api.ask("PATCH", path, {"immutable": None})[0] == 422
        assert site.api.ask("PATCH", path, {"metadata": {"labels": {"a": "b"}}})[0] == 200
        _, there = site.api.ask("GET", path)
        assert site.api.ask("PUT", path, there | {"data": {}})[0] == 422
        wrong = {"preconditions": {"uid": "another"}}
        assert site.api.ask("DELETE", path, wrong)[0] == 409
