"""Data of the ConfigMaps that agents of a node write: device-info and node-info."""

from __future__ import annotations

from typing import Any

from contract.go import encode as go_json

KEY = "huawei.com/Ascend910"


def fault(
    chip: int, level: str, codes: str, times: dict[str, Any] | None = None, kind: str = "Card"
) -> dict[str, Any]:
    """Return a fault object as a device plugin writes it."""
    times = {codes: (1760000000000, level)} if times is None else times
    return {
        "fault_type": f"{kind}Unhealthy",
        "npu_name": f"Ascend910-{chip}",
        "large_model_fault_level": level,
        "fault_level": level,
        "fault_handling": level,
        "fault_code": codes,
        "fault_time_and_level_map": {
            code: {"fault_time": time, "fault_level": own} for code, (time, own) in times.items()
        },
    }


def names(chips: Any) -> str:
    """Return a comma list of chips."""
    return ",".join(f"Ascend910-{chip}" for chip in chips)


def config(
    faults: Any = (),
    *,
    chips: int = 8,
    unhealthy: tuple[int, ...] = (),
    network: tuple[int, ...] = (),
    devices: dict[str, str] | None = None,
    update_time: Any = 1760000000,
    **outer: Any,
) -> dict[str, str]:
    """Return the data of a device-info ConfigMap, check code included."""
    if devices is None:
        away = {*unhealthy, *network}
        devices = {
            KEY: names(chip for chip in range(chips) if chip not in away),
            f"{KEY}-Fault": faults if isinstance(faults, str) else go_json.encode(list(faults)),
            f"{KEY}-NetworkUnhealthy": names(network),
            f"{KEY}-Recovering": "",
            f"{KEY}-Unhealthy": names(unhealthy),
        }
    inner = {"DeviceList": devices, "UpdateTime": update_time}
    text = {
        "DeviceInfo": inner,
        "SuperPodID": -2,
        "ServerIndex": -2,
        "CheckCode": go_json.check_code(inner),
        **outer,
    }
    return {"DeviceInfoCfg": go_json.encode(text)}


def node_data(devices: object, status: str, update_time: str = "") -> dict[str, str]:
    inner: dict[str, Any] = {"FaultDevList": devices, "NodeStatus": status}
    outer: dict[str, Any] = {"NodeInfo": inner, "CheckCode": go_json.check_code(inner)}
    return {"NodeInfo": go_json.encode(outer), "updateTime": update_time}
