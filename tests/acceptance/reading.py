"""The documents as their readers see them, without any code of the project."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

DEVICE_PREFIX = "mindx-dl-deviceinfo-"
CLUSTER_PREFIX = "cluster-info-device-"


def go_json(value: object) -> str:
    """JSON as Go's encoder writes it; ``value`` has its members in the right order."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    for plain, escaped in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(plain, escaped)
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def signed(devices: dict[str, str], update_time: int) -> str:
    """A ``DeviceInfoCfg`` with the right check code."""
    inner = {"DeviceList": dict(sorted(devices.items())), "UpdateTime": update_time}
    check = hashlib.sha256(go_json(inner).encode()).hexdigest()
    outer = {"DeviceInfo": inner, "SuperPodID": -2, "ServerIndex": -2, "CheckCode": check}
    return go_json(outer)


@dataclass(frozen=True)
class Shown:
    """What a node's entry says: chips by names, codes and levels by chip."""

    free: frozenset[str]
    unhealthy: frozenset[str]
    levels: dict[tuple[str, str], str]
    update_time: int

    def codes(self, chip: int) -> set[str]:
        """Codes of the chip with this physical id."""
        return {code for name, code in self.levels if name == f"Ascend910-{chip}"}


def has(chip: int, *codes: str) -> Callable[[Shown], bool]:
    """Whether the chip with this physical id has just these codes."""
    return lambda shown: shown.codes(chip) == set(codes)


def device_info(data: dict[str, str]) -> Shown:
    """Read ``mindx-dl-deviceinfo-<node>``, strictly."""
    text = data["DeviceInfoCfg"]
    outer = json.loads(text)
    assert go_json(outer) == text, "not as Go would write it"
    inner = outer["DeviceInfo"]
    assert list(inner) == ["DeviceList", "UpdateTime"]
    assert list(inner["DeviceList"]) == sorted(inner["DeviceList"])
    assert outer["CheckCode"] == hashlib.sha256(go_json(inner).encode()).hexdigest()
    return _shown(inner["DeviceList"], inner["UpdateTime"])


def cluster_info(data: dict[str, str]) -> dict[str, Shown]:
    """Read ``cluster-info-device-N``, strictly; nodes by name."""
    nodes: dict[str, Shown] = {}
    for text in data.values():
        content = json.loads(text)
        assert go_json(content) == text, "not as Go would write it"
        assert list(content) == sorted(content)
        for name, entry in content.items():
            assert name.startswith(DEVICE_PREFIX)
            assert list(entry)[:2] == ["DeviceList", "UpdateTime"]
            node = name.removeprefix(DEVICE_PREFIX)
            nodes[node] = _shown(entry["DeviceList"], entry["UpdateTime"])
    return nodes


def _shown(devices: dict[str, str], update_time: Any) -> Shown:
    assert type(update_time) is int

    def names(suffix: str) -> frozenset[str]:
        return frozenset(filter(None, devices[f"huawei.com/Ascend910{suffix}"].split(",")))

    levels = {
        (fault["npu_name"], code): item["fault_level"]
        for fault in json.loads(devices["huawei.com/Ascend910-Fault"])
        for code, item in fault["fault_time_and_level_map"].items()
    }
    return Shown(names(""), names("-Unhealthy"), levels, update_time)
