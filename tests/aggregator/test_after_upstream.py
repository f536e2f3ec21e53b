"""The first start after the real ClusterD, whose documents alone have what it knew."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from aggregator.processors import separation_documents
from aggregator.processors.chains import ProcessorEngine
from aggregator.processors.separation_documents import NAMESPACE
from stores.base import Changed, Document, DocumentsListed
from tests.aggregator.processors.cases import SHIPPED_POLICY, node_context
from tests.aggregator.public_faults.messages import at
from tests.cluster.playing import KEY, cluster
from tests.contract.documents.clusterd_examples import EXAMPLES
from tests.contract.documents.node_documents import config

if TYPE_CHECKING:
    from pathlib import Path

CHIPS = {"node1": EXAMPLES["E27"]["manual"]}
FAULT = {
    "resource": "CCAE",
    "devIds": [0],
    "faultId": "fault-0001",
    "type": "NPU",
    "faultCode": "220001001",
    "level": "SeparateNPU",
    "faultTime": 1_760_000_123,
}


@pytest.mark.slow
@pytest.mark.looptime(resolution=2**-20)
@pytest.mark.parametrize("elect", [True, False], ids=["elected", "alone"])
async def test_documents_of_the_real_clusterd_count_and_stay(elect: bool, tmp_path: Path) -> None:
    documents: dict[str, dict[str, Any]] = {
        "clusterd-config-cm": {separation_documents.POLICY_KEY: SHIPPED_POLICY},
        separation_documents.CHIPS_NAME: CHIPS,
        "statistic-fault-info": {
            "PublicFaults": json.dumps({"node1": [FAULT]}, separators=(",", ":")),
            "FaultNum": '{"publicFaultNum":1}',
        },
    }
    async with cluster(tmp_path, leader={"elect": elect}) as site:
        for name, data in documents.items():
            thing = {"namespace": "cluster-system", "name": name, "labels": {}, "data": data}
            await site.do({"do": "edit-output", "object": thing})
        await site.node("node1", serial_number="SN-1")
        await site.device("node1", config())
        for _ in range(2):
            site.start()
            await site.pass_time(5)
            assert site.unhealthy("node1") == "Ascend910-0,Ascend910-3,Ascend910-6"
            assert site.devices["node1"]["DeviceList"][KEY].count("Ascend910-") == 5
            shown = {name: site.outputs.get(name) for name in documents}
            assert shown == documents
            await site.kill()


def test_chips_read_from_upstream_are_added_to_kept_ones_until_more_is_kept() -> None:
    ours = ProcessorEngine(1, lambda _: node_context())
    for name, data in (
        (separation_documents.POLICY_NAME, {separation_documents.POLICY_KEY: SHIPPED_POLICY}),
        (separation_documents.CHIPS_NAME, CHIPS),
    ):
        selection = next(one for one in ours.inputs if one.name == name)
        ours.restore({}, at(0))
        ours.observe(0, selection, DocumentsListed((Document(NAMESPACE, name, data),)), at(0))
    both = frozenset(("Ascend910-3", "Ascend910-6"))
    assert ours.separation.of("node1") == both
    ours.restore({}, at(1))
    assert ours.separation.of("node1") == both
    kept = {bucket: ours.text(bucket) for bucket in ours.pop_changed()}
    assert any("Ascend910-6" in (text or "") for text in kept.values())
    # Another one led meanwhile, and released them; our watch is late.
    ours.restore({"policy": ours.text("policy") or ""}, at(2))
    assert ours.separation.of("node1") == frozenset()
    ours.observe(
        0, selection, Changed(Document(NAMESPACE, separation_documents.CHIPS_NAME, CHIPS)), at(3)
    )
    assert ours.separation.of("node1") == frozenset()
