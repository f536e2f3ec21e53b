"""Foreign text that came into our documents while no replica ran hurts no node, above all
no other.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from contract.names import CLUSTER_NODE_NAME
from tests.cluster.playing import broken, cluster
from tests.contract.documents.clusterd_examples import EXAMPLES
from tests.contract.documents.node_documents import node_data
from tests.parts.examples import mostly_slow

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.looptime(resolution=2**-20)

SWITCH = "cluster-info-switch-0"
KEYS = {
    "cluster-info-device-0": "mindx-dl-deviceinfo-n2",
    SWITCH: "mindx-dl-switchinfo-n2",
    CLUSTER_NODE_NAME: "mindx-dl-nodeinfo-n2",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", KEYS)
async def test_an_entry_of_another_release_keeps_no_other_from_being_published(
    name: str, tmp_path: Path
) -> None:
    async with cluster(tmp_path) as site:
        site.start()
        for node in ("n1", "n2"):
            switch = {"SwitchInfoCfg": EXAMPLES["E17"]["input"]}
            await site.device(node, broken(3) | switch)
            await site.server(node, node_data(None, "UnHealthy"))
        await site.pass_time(1)
        good = site.outputs
        key = KEYS[name]
        other = key.replace("n2", "n1")
        entry = json.loads(good[name][name])[key] | {"UpdateTime": 1_760_000_400, "More": 1}
        await site.end()
        # Its newest document has nothing about the switch: what is published of it stays.
        await site.device("n2", broken(3))
        await site.edit(name, {name: json.dumps({key: entry})})
        site.start()
        await site.pass_time(1)
        shown = json.loads(site.outputs[name][name])
        assert shown[other] == json.loads(good[name][name])[other]
        assert "More" not in shown[key]
        assert list(shown[key]) == list(json.loads(good[name][name])[key])
        if name == "cluster-info-device-0":
            assert shown[key]["UpdateTime"] == 1_760_000_401, "its readers have the other one"


DEEP = "[" * 5000
NONSENSE = ["{", "[]", '{"x":1}', "null", "\u0000", DEEP, f'{{"mindx-dl-deviceinfo-n1":{DEEP}']


@pytest.mark.parametrize("text", mostly_slow(NONSENSE, 4), ids=range(len(NONSENSE)))
async def test_a_document_that_is_nonsense_is_written_anew(text: str, tmp_path: Path) -> None:
    async with cluster(tmp_path) as site:
        site.start()
        await site.device("n1", broken(3))
        await site.server("n1", node_data(None, "UnHealthy"), 1)
        good = site.outputs
        await site.kill()
        for name in good:
            await site.edit(name, {name: text})
        site.start()
        await site.pass_time(1)
        assert site.outputs == good
