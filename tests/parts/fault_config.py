"""Fault configurations as files, for agents of tests that cannot wait for the shipped times."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def link_rule(directory: Path, fault_seconds: int, recover_seconds: int) -> dict[str, str]:
    """Write a rule for links that are down; return the environment that passes it to an agent."""
    directory.mkdir(parents=True, exist_ok=True)
    rule = {
        "EventId": ["81078603"],
        "FaultTimeout": fault_seconds,
        "RecoverTimeout": recover_seconds,
        "FaultHandling": "PreSeparateNPU",
    }
    (directory / "faultCustomization.json").write_text(json.dumps({"FaultDuration": [rule]}))
    return {"VIGIL_FAULT_CONFIG_DIR": str(directory)}
