"""Bad input around the agent: a clear error, and nothing that was good changes."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from tests.end_to_end.node import Node
from tests.parts.deadlines import patience, wait_until
from tests.parts.places import Folder

if TYPE_CHECKING:
    from pathlib import Path

FAULT = "80E01801"
DEVICES = {"huawei.com/Ascend910": "Ascend910-0", "huawei.com/Ascend910-Unhealthy": ""}


def test_an_address_that_is_taken_keeps_no_fault_back(
    folder_node: Node, tmp_path: Path, built: Path
) -> None:
    folder_node.options = ["--listen", "127.0.0.1:0"]
    folder_node.start()
    folder_node.healthy()
    url = (folder_node.state_dir / "listen").read_text().strip()
    folder_node.waits_for_text(f"listening on {url}\n")
    other = Node(tmp_path / "other", built, Folder(tmp_path / "store"), "node-2")
    try:
        other.options = ["--listen", url.removeprefix("http://")]
        other.start()
        other.healthy()
        other.emulator.occur(1, "80E01801")
        other.until(lambda now: len(now.unhealthy) == 1, "the fault is reported")
        other.waits_for_text("no pages on --listen 127.0.0.1")
        assert other.logged().count("no pages on --listen 127.0.0.1") == 1
        assert "npu_vigil_http_listening 0.0" in other.ask("/metrics")[1]
        folder_node.stop()
        wait_until((other.state_dir / "listen").exists, seconds=30)
        assert (other.state_dir / "listen").read_text().strip() == url
    finally:
        other.close()


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"DeviceInfoCfg": "this is not JSON"},
        {"DeviceInfoCfg": json.dumps({"DeviceInfo": {"DeviceList": 7, "UpdateTime": "x"}})},
        {
            "DeviceInfoCfg": json.dumps(
                {
                    "DeviceInfo": {"DeviceList": DEVICES, "UpdateTime": 99999999999},
                    "CheckCode": "0" * 64,
                }
            )
        },
        {"DeviceInfoCfg": "{}", "ManuallySeparateNPU": ",,;", "UpgradeFaultReason": "[[["},
    ],
    ids=["empty", "no-json", "wrong-types", "wrong-check-code", "nonsense-everywhere"],
)
def test_a_malformed_document_is_replaced(folder_node: Node, data: dict[str, str]) -> None:
    node = folder_node
    node.place.write(node.document, data)
    node.emulator.occur(2, FAULT)
    node.start()
    node.wait(lambda: node.place.read(node.document) != data, "the document is replaced")
    node.until(lambda now: now.codes(2) == {FAULT}, "the fault is shown")
    document = node.shown()
    assert document is not None
    assert abs(document.update_time - time.time()) < 10
    node.waits_for_text("cannot be decoded and is replaced")


def test_chip_isolated_by_another_program_stays_isolated(node: Node) -> None:
    reasons = json.dumps(
        {
            "Ascend910-3": [
                {
                    "upgrade_time": 1700000000000,
                    "fault_code": "80e01801",
                    "fault_level": "ManuallySeparateNPU",
                    "upgrade_type": "FaultFrequency",
                }
            ]
        },
        separators=(",", ":"),
    )
    node.place.write(
        node.document,
        {
            "DeviceInfoCfg": "{}",
            "ManuallySeparateNPU": "Ascend910-3",
            "UpgradeFaultReason": reasons,
        },
    )
    node.start()
    node.until(lambda now: now.unhealthy == {"Ascend910-3"}, "the isolated chip stays so")
    data = node.place.read(node.document)
    assert data is not None
    assert data["ManuallySeparateNPU"] == "Ascend910-3"
    assert data["UpgradeFaultReason"] == reasons
    node.place.write(node.document, data | {"ManuallySeparateNPU": "Ascend910-3,Ascend910-5"})
    node.wait(
        lambda: (node.place.read(node.document) or {})["ManuallySeparateNPU"] == "Ascend910-3",
        "a name that is added at runtime is taken out",
    )
    node.place.write(node.document, data | {"ManuallySeparateNPU": ""})
    assert node.until(lambda now: len(now.free) == 8, "the chip is released") < patience(1)
    data = node.place.read(node.document)
    assert data is not None
    assert (data["ManuallySeparateNPU"], data["UpgradeFaultReason"]) == ("", "{}")

    def upgrades() -> list[tuple[str, str]]:
        return [(change["kind"], change["upgrade"]["code"]) for change in node.changes()]

    # The journal commits beside the publication.
    node.wait(lambda: len(upgrades()) >= 2, "both are journaled")
    assert upgrades() == [("upgraded", "80E01801"), ("released", "80E01801")]


def test_another_writer_is_a_conflict(node: Node) -> None:
    node.start()
    node.healthy()

    def noticed() -> int:
        count: int = node.status()["publications"][0]["foreign_writes"]
        return count

    for number in (1, 2, 3, 4):
        data = node.place.read(node.document)
        assert data is not None
        node.place.write(node.document, data | {"DeviceInfoCfg": "{}"})
        node.wait(lambda number=number: noticed() >= number, "it is noticed")  # type: ignore[misc]
        if number < 4:
            node.until(lambda now: len(now.free) == 8, "the document is repaired", 1)
    node.wait(lambda: node.ask("/readyz")[0] == 503, "it is a conflict", 2)
    _, answer = node.ask("/readyz")
    assert any("conflict" in reason for reason in answer["reasons"])
    labels = f'document="device-info",store="{node.status()["store"]}"'
    metric = f"npu_vigil_publication_conflict{{{labels}}} 1.0"
    node.wait(lambda: metric in node.ask("/metrics")[1], "a scrape shows it", 2)
    node.waits_for_text("conflict")
    assert node.logged().count("conflict") == 1
    node.emulator.occur(1, FAULT)
    node.until(lambda now: now.codes(1) == {FAULT}, "the next try shows it", 10)
