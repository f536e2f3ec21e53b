"""Compares what the cluster shows of the node with what its emulated hardware is like."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dcmi_shim.emulator.control import Emulator
from tests.end_to_end.node import shown
from tests.node.cluster import NODE, wait_until
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from tests.parts.controlplane import ControlPlane
    from tests.parts.node_reader import NodeReader

EMULATOR = Path("/var/lib/vigil-emulator")
DEVICE_INFO = f"/api/v1/namespaces/kube-system/configmaps/mindx-dl-deviceinfo-{NODE}"
NODE_INFO = f"/api/v1/namespaces/mindx-dl/configmaps/mindx-dl-nodeinfo-{NODE}"
_CLUSTER = "/api/v1/namespaces/mindx-dl/configmaps/cluster-info-device-0"
_CLUSTER_NODES = "/api/v1/namespaces/mindx-dl/configmaps/cluster-info-node-cm"
_LONGEST_GAP_SECONDS = 60.0
_SILENT_SECONDS = 15.0
"""Three intervals: who is silent for longer, and did not announce it, is published lost."""
_OK = 200

Faults = dict[str, set[str]]


def of_hardware() -> Faults:
    """Return the active codes of each chip of the emulated driver."""
    with closing(Emulator(EMULATOR)) as emulator:
        chips: Any = emulator.status()["chips"]
    return {
        f"Ascend910-{chip['chip']}": {fault["code"] for fault in chip["active"]}
        for chip in chips
        if chip["active"]
    }


def of_device_info(plane: ControlPlane) -> Faults | None:
    """Return the codes in device-info, whose check code must be right; ``None`` without it."""
    data = _data(plane, DEVICE_INFO)
    if data is None or "DeviceInfoCfg" not in data:
        return None
    return {name: set(codes) for name, codes in shown(data).faults.items() if codes}


def of_cluster_info(plane: ControlPlane) -> Faults | None:
    """Return the codes of the node in cluster-info; ``None`` without it."""
    data = _data(plane, _CLUSTER)
    entry = json.loads((data or {}).get("cluster-info-device-0") or "{}").get(
        f"mindx-dl-deviceinfo-{NODE}"
    )
    if entry is None:
        return None
    faults: Faults = {}
    for one in json.loads(entry["DeviceList"]["huawei.com/Ascend910-Fault"]):
        faults.setdefault(one["npu_name"], set()).update(one["fault_time_and_level_map"])
    return {name: codes for name, codes in faults.items() if codes}


def of_parts(plane: ControlPlane, path: str = NODE_INFO) -> list[list[str]]:
    """Return the codes of faulty parts of the server in node-info."""
    data = _data(plane, path)
    if data is None or "NodeInfo" not in data:
        return []
    parts: list[dict[str, Any]] = json.loads(data["NodeInfo"])["NodeInfo"]["FaultDevList"]
    return [part["FaultCode"] for part in parts]


def node_is_published_lost(plane: ControlPlane) -> bool:
    """Return whether cluster-info has the node as unhealthy although it has no faulty part."""
    data = _data(plane, _CLUSTER_NODES) or {}
    entry = json.loads(data.get("cluster-info-node-cm") or "{}").get(f"mindx-dl-nodeinfo-{NODE}")
    return entry is not None and entry["NodeStatus"] == "UnHealthy" and not entry["FaultDevList"]


def compare(plane: ControlPlane, reader: NodeReader, since: float, step: str) -> str:
    """Wait until both documents show what the hardware has and the agent beats.

    Returns the seconds that it took and the longest time without a heartbeat since ``since``.
    Raises ``AssertionError`` where they do not, or where the node was published lost although it
    was not silent.
    """
    begin = time.monotonic()

    def is_true() -> bool:
        truth = of_hardware()
        return truth == of_device_info(plane) == of_cluster_info(plane)

    try:
        wait_until(is_true, f"documents as the hardware after {step}")
    except AssertionError as error:
        found = (of_hardware(), of_device_info(plane), of_cluster_info(plane))
        raise AssertionError(f"{error}: hardware, device-info, cluster-info: {found}") from None
    beats = len(reader.beats(NODE))
    wait_until(lambda: len(reader.beats(NODE)) > beats, f"a heartbeat after {step}", 30.0)
    gap = reader.longest_gap(NODE, since)
    assert gap < patience(_LONGEST_GAP_SECONDS), f"{gap:.1f} s without a heartbeat during {step}"
    lost = [at for at in reader.lost.get(NODE, ()) if at >= since]
    # On a busy machine a container may come back later than three intervals: then it was silent.
    assert not lost or gap > _SILENT_SECONDS, (
        f"published lost during {step}, silent for {gap:.1f} s"
    )
    wait_until(
        lambda: not node_is_published_lost(plane), f"the node is not lost after {step}", 30.0
    )
    return f"true after {time.monotonic() - begin:.1f} s, longest silence {gap:.1f} s"


def _data(plane: ControlPlane, path: str) -> dict[str, str] | None:
    status, answer = plane.ask("GET", path)
    return (answer.get("data") or {}) if status == _OK else None
