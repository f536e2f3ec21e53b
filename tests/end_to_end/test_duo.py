"""Duo cards, whose two dies a Device Plugin may reset as one (EX-41, device-plugin#V7)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.end_to_end.node import Node
from tests.parts.device_plugin import device_plugin
from tests.parts.places import Folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FAULT = "80E01801"
KEY = "huawei.com/Ascend310P"
NAMES = [f"Ascend310P-{chip}" for chip in range(8)]


@pytest.fixture
def duo(tmp_path: Path, built: Path) -> Iterator[Node]:
    """Yield a server with four cards of two dies; its agent is not started."""
    node = Node(tmp_path, built, Folder(tmp_path / "store"), profile="duo")
    yield node
    node.close()


def devices(node: Node) -> dict[str, Any]:
    """Return the device list of device-info; it is empty before the document exists."""
    data = node.place.read(node.document)
    if data is None:
        return {}
    found: dict[str, Any] = json.loads(data["DeviceInfoCfg"])["DeviceInfo"]["DeviceList"]
    return found


def test_both_dies_of_a_card_where_it_is_set(duo: Node) -> None:
    duo.environment["VIGIL_COMPATIBILITY_DUO_CARDS"] = "together"
    duo.start()
    duo.wait(lambda: devices(duo).get(KEY) == ",".join(NAMES), "all are free")
    duo.emulator.occur(3, FAULT)
    both = ",".join(NAMES[2:4])
    duo.wait(lambda: devices(duo)[f"{KEY}-Unhealthy"] == both, "the whole card", 5)
    clean, faulty = json.loads(devices(duo)[f"{KEY}-Fault"])
    assert (clean["npu_name"], clean["fault_code"], clean["fault_level"]) == (
        NAMES[2],
        "",
        "NormalNPU",
    )
    assert (faulty["npu_name"], faulty["fault_code"]) == (NAMES[3], FAULT)
    assert devices(duo)[KEY] == ",".join([*NAMES[:2], *NAMES[4:]])
    duo.emulator.recover(3, FAULT)
    duo.wait(lambda: devices(duo)[KEY] == ",".join(NAMES), "both are free again", 5)
    assert devices(duo)[f"{KEY}-Fault"] == "[]"


def test_each_die_for_itself_and_the_plugin_is_named_once(duo: Node) -> None:
    with device_plugin("-volcanoType=true", "-hotReset=0") as pid:
        duo.start()
        duo.wait(lambda: devices(duo).get(KEY) == ",".join(NAMES), "all are free")
        duo.emulator.occur(3, FAULT)
        duo.wait(lambda: devices(duo)[f"{KEY}-Unhealthy"] == NAMES[3], "one die", 5)
        duo.wait(lambda: f"process {pid} runs a Device Plugin" in duo.logged(), "it is named")
        assert duo.logged().count("-hotReset=0") == 1
        duo.waits_for_text('compatibility.duo_cards = "together"')
