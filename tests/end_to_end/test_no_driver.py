"""An agent that is started before its driver is installed."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

from dcmi_shim.emulator.bmc import BmcAlarm
from tests.parts.places import Folder

if TYPE_CHECKING:
    from pathlib import Path

    from tests.end_to_end.node import Node

CHIPS = frozenset(f"Ascend910-{chip}" for chip in range(8))


def test_it_waits_beats_and_reports_the_server(folder_node: Node, tmp_path: Path) -> None:
    node = folder_node
    assert isinstance(node.place, Folder)
    beat = node.place.root / "beats" / f"{node.name}.json"

    def beaten_at_ms() -> int:
        return int(json.loads(beat.read_text())["beaten_at_ms"]) if beat.exists() else 0

    node.give_bmc(tmp_path)
    node.environment["VIGIL_HEARTBEAT_INTERVAL_SECONDS"] = "1"
    installed = node.driver_root
    node.driver_root = tmp_path / "host" / "driver"
    library = str(node.driver_root / "lib64/driver/libdcmi.so")
    node.emulator.bmc.occur(BmcAlarm("06000025", "Fan", 3))
    node.start()
    node.up()
    node.wait(lambda: node.parts() == [("Fan", 3, ["06000025"])], "node-info is published")
    first = beaten_at_ms()
    node.wait(lambda: beaten_at_ms() > first, "it beats")
    status, answer = node.ask("/readyz")
    assert status == 503
    assert any(library in reason for reason in answer["reasons"])
    assert node.ask("/healthz")[0] == 200
    assert node.place.read(node.document) is None, "nothing is known of chips"
    node.waits_for_text("it is searched every 10 s")
    node.waits_for_text(f"{library} (--driver-root): does not exist")
    assert node.logged().count("it is searched every 10 s") == 1
    assert "its files are gone" not in node.logged(), "there never were any"
    process = node.process
    shutil.copytree(installed, node.driver_root)
    node.until(lambda now: now.free == CHIPS, "the driver is found", 20)
    node.wait(lambda: node.ask("/readyz")[0] == 200, "it is ready")
    assert node.process is process
    assert process.status is None
