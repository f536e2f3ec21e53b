"""A real agent process in shadow of a writer on a directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.parts.exposition import IN_SHADOW, listed, scraped
from tests.parts.places import Folder
from tests.replay.player import recorded

if TYPE_CHECKING:
    from tests.end_to_end.node import Node

RECORDING = "level-separate-npu"


def test_it_compares_and_writes_nothing(folder_node: Node) -> None:
    node = folder_node
    assert isinstance(node.place, Folder)
    recording = recorded(RECORDING)
    occur = next(step for step in recording["steps"] if step["do"] == "occur")
    healthy, faulty, _ = [row["data"] for row in recording["observed"] if "data" in row]
    node.environment["VIGIL_SHADOW"] = "true"
    node.place.write(node.document, healthy)
    before = {file for file in node.place.root.rglob("*") if not file.name.startswith(".")}
    node.start()
    node.up()
    node.wait(lambda: node.ask("/readyz")[0] == 200, "it is ready")
    node.wait(lambda: shadow(node)["writes"]["same"] == 1, "what was there is right")
    node.place.write(node.document, faulty)
    node.wait(lambda: shadow(node)["writes"]["different"] == 1, "that fault is not there", 15)
    (reported,) = shadow(node)["reported"]
    assert reported["reported"] == f"Ascend910-{occur['chip']}: fault_code {occur['code']} too much"
    assert reported["also"]
    assert reported["field"] == "fault_code"
    node.emulator.occur(occur["chip"], occur["code"])
    node.wait(lambda: shadow(node)["reported"][0]["over_at_ms"] is not None, "now it is")
    shown = scraped(node.ask("/metrics")[1])
    expected = listed(IN_SHADOW)
    assert expected
    assert {name: kind for name, kind in shown.items() if "shadow" in name} == expected
    assert not any(name.startswith("npu_vigil_publication") for name in shown)
    assert node.status()["heartbeat"]["beats"] == 0
    assert node.stop()[0] == 0
    after = {file for file in node.place.root.rglob("*") if not file.name.startswith(".")}
    assert after == before, "no heartbeat, no document"
    assert node.place.read(node.document) == faulty
    assert [row["device"] for row in node.journal("shadow")] == [f"Ascend910-{occur['chip']}"]


def shadow(node: Node) -> Any:
    return node.status()["shadow"]
