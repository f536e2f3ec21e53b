"""Shows a device-info document in short, for expectations that are written by hand.

Read without any code of the project. What is empty is left out::

    {"unhealthy": [3], "faults": {"3": {"80CF8000": "RestartNPU"}}, "level": {"3": "RestartNPU"}}

``unhealthy``, ``network`` and ``manual`` are chips of the three lists; ``gone`` are those that are
neither free nor unhealthy, of all ``chips``. ``faults`` has the level of each code by chip, that of
network entries below ``links``; ``level`` and ``link_level`` are those of the entries. ``reasons``
are code, level and kind, sorted. ``switch`` is level, status and the level of each fault.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LISTS = {"unhealthy": "-Unhealthy", "network": "-NetworkUnhealthy"}
_KINDS = {"CardUnhealthy": ("faults", "level"), "CardNetworkUnhealthy": ("links", "link_level")}
_LEVELS = ("fault_level", "fault_handling", "large_model_fault_level")


def snapshot_of(data: Mapping[str, str], chips: int) -> dict[str, Any]:
    """Return what ``data`` contains of chips with the ids 0 to ``chips`` - 1."""
    devices = json.loads(data["DeviceInfoCfg"])["DeviceInfo"]["DeviceList"]
    shown: dict[str, Any] = {name: {} for kind in _KINDS.values() for name in kind}
    for name, suffix in _LISTS.items():
        shown[name] = _chips(_of(devices, suffix) or "")
    listed = {*_chips(_of(devices, "") or ""), *shown["unhealthy"]}
    shown["gone"] = [chip for chip in range(chips) if chip not in listed]
    assert len(listed) == len(shown["unhealthy"]) + len(_chips(_of(devices, "") or ""))
    for fault in json.loads(_of(devices, "-Fault") or "[]"):
        chip, codes = fault["npu_name"].rpartition("-")[2], fault["fault_time_and_level_map"]
        assert sorted(filter(None, fault["fault_code"].split(","))) == sorted(codes)
        (level,) = {fault[key] for key in _LEVELS}
        where, how = _KINDS[fault["fault_type"]]
        assert chip not in shown[where], f"two entries of chip {chip}"
        shown[where][chip] = {code: one["fault_level"] for code, one in codes.items()}
        shown[how][chip] = level
    shown["manual"] = _chips(data.get("ManuallySeparateNPU", ""))
    shown["reasons"] = {
        name.rpartition("-")[2]: sorted(
            [one["fault_code"], one["fault_level"], one["upgrade_type"]] for one in reasons
        )
        for name, reasons in json.loads(data["UpgradeFaultReason"]).items()
    }
    shown["switch"] = _switch(json.loads(data.get("SwitchInfoCfg", "{}")))
    return {name: value for name, value in shown.items() if value}


def _of(devices: Mapping[str, str], suffix: str) -> str | None:
    """Return the value of the key with this suffix, for any family; ``None`` if there is none."""
    ends = [key for key in devices if key.partition("-")[1:] == suffix.partition("-")[1:]]
    assert len(ends) <= 1, ends
    return devices[ends[0]] if ends else None


def _chips(names: str) -> list[int]:
    return sorted(int(name.rpartition("-")[2]) for name in filter(None, names.split(",")))


def _switch(content: Mapping[str, Any]) -> list[Any]:
    levels = content.get("FaultTimeAndLevelMap")
    if not content.get("FaultLevel"):
        assert not levels
        return []
    faults = {key: one["fault_level"] for key, one in (levels or {}).items()}
    return [content["FaultLevel"], content["NodeStatus"], faults]


def surprises(
    recording: Mapping[str, Any], shown: Sequence[tuple[int, Mapping[str, str] | None]]
) -> list[str]:
    """Return the differences from the expectations of ``recording``.

    ``shown`` are documents, each with the time since when it was published (ms).
    """
    found = []
    for expected in recording["expected"]:
        at_ms = expected["at_ms"]
        then = [data for since_ms, data in shown if since_ms <= at_ms]
        want = {key: value for key, value in expected.items() if key not in ("at_ms", "why")}
        data = then[-1] if then else None
        have = {"absent": True} if data is None else snapshot_of(data, recording["chips"])
        if have != want:
            found.append(f"at {at_ms} ms ({expected.get('why', '')}):\n  {want} expected\n  {have}")
    return found
