"""Device-info documents of many nodes, and reading what is published about them."""

from __future__ import annotations

import json
from typing import Any

from contract.documents import device_info
from contract.documents.cluster_device import DeviceRecord, device_record
from contract.documents.forget_record import (
    FORGET_LABEL,
    FORGET_NAMESPACE,
    ForgetRecord,
    encode_forget_record,
    forget_record_name,
)
from contract.documents.node_info import FaultDevice, encode_node_info
from contract.go import encode as go_json
from contract.names import (
    DEVICE_INFO_NAMESPACE,
    NODE_INFO_NAMESPACE,
    REPORT_LABEL,
    device_info_name,
    node_info_name,
)
from service.clock import Instant
from stores.base import Document
from tests.contract.documents.node_documents import config, fault

T0 = 1_760_000_000


def instant(seconds: float, steady: float | None = None) -> Instant:
    """Return the time ``seconds`` after ``T0``; the steady clock may differ."""
    return Instant(int((T0 + seconds) * 1000), int((seconds if steady is None else steady) * 1000))


def report(node: str, data: dict[str, str]) -> Document:
    """Return the device-info ConfigMap of ``node``."""
    name = device_info_name(node)
    return Document(DEVICE_INFO_NAMESPACE, name, data, dict([REPORT_LABEL]))


def node_report(node: str, faults: list[FaultDevice], status: str) -> Document:
    """Return the node-info ConfigMap of ``node``."""
    data = encode_node_info(faults, status, "2026-01-01T08:00:00+08:00")
    return Document(NODE_INFO_NAMESPACE, node_info_name(node), data, dict([REPORT_LABEL]))


def forget_document(record: ForgetRecord) -> Document:
    """Return the document with which an operator ends a node."""
    name, labels = forget_record_name(record.node), dict([FORGET_LABEL])
    return Document(FORGET_NAMESPACE, name, encode_forget_record(record), labels)


def healthy(update_time: int = T0) -> dict[str, str]:
    """Return the data of eight healthy chips."""
    return config(update_time=update_time)


def faulty(chip: int = 3, update_time: int = T0, code: str = "80E18402") -> dict[str, str]:
    """Return the data of eight chips, of which one must be restarted."""
    return config([fault(chip, "RestartNPU", code)], unhealthy=(chip,), update_time=update_time)


def record(data: dict[str, str]) -> DeviceRecord:
    """Return the record of a device-info document."""
    return device_record(device_info.decode(data, "mindx-dl-deviceinfo-x"))


def published(value: str) -> dict[str, Any]:
    """Return the entry of each node in a value."""
    entries = json.loads(value) if value else {}
    return {key.removeprefix("mindx-dl-deviceinfo-"): entry for key, entry in entries.items()}


def unhealthy(entry: dict[str, Any]) -> str:
    """Return the list of unhealthy chips of an entry."""
    text: str = entry["DeviceList"]["huawei.com/Ascend910-Unhealthy"]
    return text


def switch_data(level: str, status: str, update_time: int = T0) -> str:
    """Return a ``SwitchInfoCfg`` with one event, or none where the level is empty."""
    event: dict[str, Any] = {"EventType": 5, "AssembledFaultCode": "[0x00f1ff09,155913,cpu,na]"}
    times: dict[str, Any] = {"k": {"fault_time": T0 * 1000, "fault_level": level}} if level else {}
    return go_json.encode(
        {
            "FaultCode": [go_json.encode(event)] if level else [],
            "FaultLevel": level,
            "UpdateTime": update_time,
            "NodeStatus": status,
            "FaultTimeAndLevelMap": times,
        }
    )


def with_switch(node: str, level: str, status: str, update_time: int = T0) -> Document:
    return report(node, {**healthy(), "SwitchInfoCfg": switch_data(level, status, update_time)})
