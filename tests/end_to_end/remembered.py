"""What tests and the matrix of remembered chips have in common."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from tests.parts.following import Following
from tests.parts.places import Folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.end_to_end.node import Node
    from tests.parts.following import Version

FAULT, LOST = "80E01801", "40F84E00"
PROFILES = {
    "a2": ("Ascend910", 8),
    "a3": ("Ascend910", 16),
    "910a": ("Ascend910", 8),
    "310p": ("Ascend310P", 4),
    "duo": ("Ascend310P", 8),
    "310": ("Ascend310", 4),
    "a5": ("npu", 8),
}
"""The type of the devices of each profile, and how many there are."""
QUICK = {
    "VIGIL_CHIP_FAULTS_HEALTH_PERIOD_SECONDS": "0.5",
    "VIGIL_CHIP_FAULTS_CARD_LOST_AFTER_SECONDS": "10",
    "VIGIL_DRIVER_PROBE_PERIOD_SECONDS": "1",
    "VIGIL_HEARTBEAT_INTERVAL_SECONDS": "1",
}


def following(node: Node) -> Following:
    """Return a reader of the node's device-info in its directory store."""
    assert isinstance(node.place, Folder)
    return Following(node.place.root / "kube-system" / f"{node.document}.json")


def names(profile: str, *without: int) -> frozenset[str]:
    """Return the device names of a server of ``profile``, except the chips in ``without``."""
    kind, count = PROFILES[profile]
    return frozenset(f"{kind}-{chip}" for chip in range(count) if chip not in without)


def has(name: str, code: str) -> Callable[[Version], bool]:
    """Return a condition: the device has the fault."""
    return lambda now: code in now.levels.get(name, {})


def is_blind(node: Node, chip: int) -> bool:
    """Return whether the agent reports the chip as blind."""
    found = next((one for one in node.status()["chips"] if one["chip"] == chip), None)
    return found is not None and any(one["source"] == "chip-faults" for one in found["blind"])


def forget(node: Node, name: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run ``vigil forget``."""
    command = [sys.executable, "-m", "vigil", "forget", "--chip", name]
    places = ["--state-dir", str(node.state_dir), "--driver-root", str(node.driver_root)]
    return subprocess.run(
        [*command, *places, "--trust-driver", *options],
        env=node.environment,
        capture_output=True,
        text=True,
        check=False,
    )
