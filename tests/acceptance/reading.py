"""The documents as their readers see them, without any code of the project."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

DEVICE_PREFIX = "mindx-dl-deviceinfo-"
NODE_PREFIX = "mindx-dl-nodeinfo-"
SWITCH_PREFIX = "mindx-dl-switchinfo-"
CLUSTER_PREFIX = "cluster-info-device-"
CLUSTER_SWITCH_PREFIX = "cluster-info-switch-"
CLUSTER_NODE = "cluster-info-node-cm"


def go_json(value: object) -> str:
    """Return JSON as Go's encoder writes it; ``value`` has its members in the right order."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    for plain, escaped in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(plain, escaped)
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def signed(devices: dict[str, str], update_time: int) -> str:
    """Return a ``DeviceInfoCfg`` with the right check code."""
    inner = {"DeviceList": dict(sorted(devices.items())), "UpdateTime": update_time}
    check = hashlib.sha256(go_json(inner).encode()).hexdigest()
    outer = {"DeviceInfo": inner, "SuperPodID": -2, "ServerIndex": -2, "CheckCode": check}
    return go_json(outer)


@dataclass(frozen=True)
class Shown:
    """A node's entry: chips by names, codes and levels by chip."""

    free: frozenset[str]
    unhealthy: frozenset[str]
    levels: dict[tuple[str, str], str]
    update_time: int

    def codes(self, chip: int) -> set[str]:
        """Return the codes of the chip with this physical id."""
        return {code for name, code in self.levels if name == f"Ascend910-{chip}"}


def has(chip: int, *codes: str) -> Callable[[Shown], bool]:
    """Return a condition: the chip with this physical id has exactly these codes."""
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


@dataclass(frozen=True)
class Health:
    """The content of a document about servers or switches: a status, and the levels of what is
    broken.

    ``levels`` are by part (``Fan 3``) or by switch fault (code, switch and port joined by ``_``),
    ``codes`` by part.
    """

    status: str
    levels: dict[str, str]
    codes: dict[str, list[str]]


def node_info(data: dict[str, str]) -> Health:
    """Read ``mindx-dl-nodeinfo-<node>``, strictly."""
    outer = json.loads(data["NodeInfo"])
    assert go_json(outer) == data["NodeInfo"], "not as Go would write it"
    inner = outer["NodeInfo"]
    assert list(outer) == ["NodeInfo", "CheckCode"]
    assert list(inner) == ["FaultDevList", "NodeStatus"]
    assert outer["CheckCode"] == hashlib.sha256(go_json(inner).encode()).hexdigest()
    parsed = datetime.fromisoformat(data["updateTime"])
    assert parsed.tzinfo is not None
    assert parsed.microsecond == 0
    return _server(inner)


def switch_info(data: dict[str, str]) -> Health:
    """Read the switch part of ``mindx-dl-deviceinfo-<node>``, strictly."""
    content = json.loads(data["SwitchInfoCfg"])
    assert go_json(content) == data["SwitchInfoCfg"], "not as Go would write it"
    return _switch(content)


def cluster_health(text: str, prefix: str) -> dict[str, Health]:
    """Read ``cluster-info-node-cm`` or ``cluster-info-switch-N``, strictly; nodes by name."""
    content = json.loads(text) if text else {}
    assert not text or go_json(content) == text, "not as Go would write it"
    read = _server if prefix == NODE_PREFIX else _switch
    nodes = {}
    for name, entry in content.items():
        assert name == entry["CmName"]
        assert name.startswith(prefix)
        nodes[name.removeprefix(prefix)] = read(entry)
    return nodes


def _server(content: dict[str, Any]) -> Health:
    assert content["NodeStatus"] in ("Healthy", "PreSeparate", "UnHealthy")
    parts = {f"{one['DeviceType']} {one['DeviceId']}": one for one in content["FaultDevList"] or ()}
    return Health(
        content["NodeStatus"],
        {name: one["FaultLevel"] for name, one in parts.items()},
        {name: one["FaultCode"] for name, one in parts.items()},
    )


def _switch(content: dict[str, Any]) -> Health:
    assert content["NodeStatus"] in ("Healthy", "SubHealthy", "PreSeparate", "UnHealthy")
    faults = [json.loads(text) for text in content["FaultCode"]]
    for text, fault in zip(content["FaultCode"], faults, strict=True):
        assert go_json(fault) == text
    levels = content["FaultTimeAndLevelMap"]
    keys = {
        f"{one['AssembledFaultCode']}_{one['SwitchChipId']}_{one['SwitchPortId']}" for one in faults
    }
    assert keys == set(levels)
    return Health(
        content["NodeStatus"], {key: one["fault_level"] for key, one in levels.items()}, {}
    )
