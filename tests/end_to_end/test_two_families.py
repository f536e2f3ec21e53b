"""Two families in one machine: device-info stays as it was, everything else goes on."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from dcmi_shim.emulator.bmc import BmcAlarm

if TYPE_CHECKING:
    from tests.end_to_end.node import Node

SOURCE = Path(__file__).parents[1] / "dcmi_shim" / "drivers" / "plain.c"


def test_it_is_refused_with_both_names(folder_node: Node, tmp_path: Path) -> None:
    node = folder_node
    library = tmp_path / "mixed/lib64/driver/libdcmi.so"
    library.parent.mkdir(parents=True)
    command = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-lpthread"]
    subprocess.run(command, check=True)
    node.give_bmc(tmp_path)
    steering = tmp_path / "steering"
    steering.mkdir()
    (steering / "fault-1").touch()
    node.driver_root = tmp_path / "mixed"
    node.environment["VIGIL_TEST_DRIVER"] = str(steering)
    node.start()
    node.until(lambda now: now.codes(1) == {"80E01801"}, "a fault")
    node.stop()
    before = node.place.read(node.document)
    (steering / "other-family-1").touch()
    (steering / "fault-1").unlink()
    node.start()
    both = "Ascend910B (910B3: chips 0) and Ascend310P (310P3: chips 1)"
    node.wait(lambda: both in node.logged(), "both are named")
    node.wait(lambda: both in node.status()["driver"]["trouble"], "and shown")
    assert node.ask("/readyz")[0] == 503
    beats = tmp_path / "store/beats/node-1.json"
    beat = beats.read_bytes()
    node.emulator.bmc.occur(BmcAlarm("2C000031", "System"))
    node.wait(lambda: bool(node.parts()), "node-info goes on")
    node.wait(lambda: beats.read_bytes() != beat, "the heartbeat goes on")
    assert node.place.read(node.document) == before
    (steering / "other-family-1").unlink()
    node.until(lambda now: now.unhealthy == frozenset() and not now.faults, "the fault is over", 20)
