"""Worked examples of the specification of the Device Plugin, compared with a document."""

from __future__ import annotations

import json
from typing import Any

from contract.documents.device_info import DeviceInfo, encode_faults
from tests.compatibility import check, different
from tests.vectors import VECTORS

EXAMPLES = {
    row["id"]: row
    for row in map(
        json.loads, (VECTORS / "device-plugin/worked-examples.jsonl").read_text().splitlines()
    )
}


def answers(info: DeviceInfo, device: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Return what the document contains for each statement of the example about ``device``."""
    found: dict[str, Any] = {
        "health": "Unhealthy" if device in info.unhealthy else "Healthy",
        "network": "Unhealthy" if device in info.network_unhealthy else "Healthy",
        "manual": info.manually_separated,
        "reason": json.loads(info.upgrade_reasons),
        "fault": json.loads(encode_faults(info.faults)),
        "chip": device,
    }
    return {key: found[key] for key in asked}


def judge(
    example: str, info: DeviceInfo, device: str, expect: dict[str, Any] | None = None
) -> None:
    if expect is None:
        expect = {k: v for k, v in EXAMPLES[example]["expect"].items() if k != "event"}
    check(f"device-plugin/{example}", different(expect, answers(info, device, expect)))
