"""``dpuinfo-<node>``: faults of RDMA NICs and DPUs, as MindCluster's RDMA device plugin has them.

The plugin writes the whole document on each change and every 5 minutes, and no program deletes it.
Source: ``docs/spec/dpu-info.md``.
"""

from __future__ import annotations

import msgspec

from contract.errors import DocumentError, Problem, quoted
from contract.go import encode as go_json
from contract.go.decode import GoStruct, Int64, decode

NAMESPACE = "kube-system"
PREFIX = "dpuinfo-"
LABEL = ("huawei.com/consumer.clusterd", "true")
DATA_KEY = "DpuInfoCfg"
# Three periods: the plugin writes every 5 minutes.
SILENT_AFTER_MS = 15 * 60_000
"""An ``UpdateTime`` that is older shows only that the plugin is silent."""

MAX_FAULTS = 256
_MAX_NAME, _MAX_DESCRIPTION = 64, 256


class DpuFault(msgspec.Struct, frozen=True, gc=False):
    """A fault of a device, or of the node where ``hca`` is empty.

    ``since_ms`` is when the plugin saw it first (epoch milliseconds, 0 where it names no time).
    """

    hca: str
    code: str
    level: str
    since_ms: int = 0
    description: str = ""

    @property
    def subject(self) -> str:
        """The name of what it is on, for pages and events."""
        return dpu_subject(self.hca)


class DpuInfo(msgspec.Struct, frozen=True, gc=False):
    """The content of a document. ``devices`` is their number; ``left_out`` names what does not
    count.
    """

    update_time_ms: int
    devices: int = 0
    faults: tuple[DpuFault, ...] = ()
    left_out: tuple[Problem, ...] = ()


class _ListedFault(GoStruct, frozen=True):
    code: str = msgspec.field(default="", name="FaultCode")
    time_ms: Int64 = msgspec.field(default=0, name="Time")
    description: str = msgspec.field(default="", name="Description")
    level: str = msgspec.field(default="", name="FaultLevel")


class _ListedDevice(GoStruct, frozen=True):
    hca: str = msgspec.field(default="", name="HcaName")
    interface: str = msgspec.field(default="", name="EthName")
    address: str = msgspec.field(default="", name="IpAddr")
    device_id: str = msgspec.field(default="", name="DeviceID")
    vendor_id: str = msgspec.field(default="", name="VendorID")
    faults: list[_ListedFault] | None = msgspec.field(default=None, name="FaultList")


class _NodeEvent(GoStruct, frozen=True):
    node: str = msgspec.field(default="", name="NodeName")
    faults: list[_ListedFault] | None = msgspec.field(default=None, name="FaultList")


class _Dpus(GoStruct, frozen=True):
    devices: list[_ListedDevice] | None = msgspec.field(default=None, name="DPUList")
    node_event: _NodeEvent | None = msgspec.field(default=None, name="NodeEvent")


class _DpuDocument(GoStruct, frozen=True):
    dpus: _Dpus = msgspec.field(default=_Dpus(), name="DPUInfo")
    update_time_ms: Int64 = msgspec.field(default=0, name="UpdateTime")


def dpu_subject(hca: str) -> str:
    """Return how pages and events name a device; the node's own faults are of ``DPU cards``."""
    return f"HCA {hca}" if hca else "DPU cards"


def is_dpu_subject(subject: str) -> bool:
    """Return whether ``dpu_subject`` gives this name."""
    return subject == dpu_subject("") or subject.startswith("HCA ")


def node_of(name: str) -> str | None:
    """Return the node that the document with this name is about; ``None`` for another document."""
    return name[len(PREFIX) :] or None if name.startswith(PREFIX) else None


def decode_dpu_info(node: str, text: str | None) -> DpuInfo:
    """Return what a document of ``node`` has under its data key. Raises ``DocumentError``.

    A document counts for the node in its name only: a ``NodeEvent`` of another node is left out.
    """
    name = PREFIX + node
    if text is None:
        raise DocumentError(name, DATA_KEY, "the data key is missing")
    document = decode(text, _DpuDocument, name, DATA_KEY)
    # Without a time nothing shows that the plugin is silent (``SILENT_AFTER_MS``).
    if document.update_time_ms <= 0:
        raise DocumentError(name, f"{DATA_KEY}.UpdateTime", "is missing, or is not a time")
    devices = document.dpus.devices or []
    event = document.dpus.node_event
    # Most documents have no fault, so nothing more is computed for them.
    if event is None and not any(device.faults for device in devices):
        return DpuInfo(document.update_time_ms, len(devices))
    faults: dict[tuple[str, str], DpuFault] = {}
    left_out: list[Problem] = []
    for index, device in enumerate(devices):
        where = f"{DATA_KEY}.DPUInfo.DPUList[{index}]"
        if device.faults and not 0 < len(device.hca) <= _MAX_NAME:
            left_out.append(Problem(f"{where}.HcaName", _refused(device.hca)))
        else:
            _add(faults, device.hca, device.faults, where, left_out)
    if event is not None and event.faults:
        where = f"{DATA_KEY}.DPUInfo.NodeEvent"
        # Go writes an empty text for a name that was not set.
        if event.node in ("", node):
            _add(faults, "", event.faults, where, left_out)
        else:
            message = f"is {quoted(repr(event.node))}; the document counts for node {node!r} only"
            left_out.append(Problem(f"{where}.NodeName", message))
    # In one order, so that of too many faults the same ones count in each document.
    ordered = tuple(faults[key] for key in sorted(faults))
    if len(ordered) > MAX_FAULTS:
        message = f"has {len(ordered)} faults, only the first {MAX_FAULTS} count"
        left_out.append(Problem(f"{DATA_KEY}.DPUInfo", message))
    return DpuInfo(
        document.update_time_ms, len(devices), ordered[:MAX_FAULTS], tuple(left_out[:MAX_FAULTS])
    )


def _add(
    faults: dict[tuple[str, str], DpuFault],
    hca: str,
    listed: list[_ListedFault] | None,
    where: str,
    left_out: list[Problem],
) -> None:
    """Add faults of one device. Of the same code the earliest time counts."""
    for index, device in enumerate(listed or ()):
        for member, value in (("FaultCode", device.code), ("FaultLevel", device.level)):
            if not 0 < len(value) <= _MAX_NAME:
                left_out.append(Problem(f"{where}.FaultList[{index}].{member}", _refused(value)))
                break
        else:
            before = faults.get((hca, device.code))
            if before is None or device.time_ms < before.since_ms:
                text = device.description[:_MAX_DESCRIPTION]
                faults[hca, device.code] = DpuFault(
                    hca, device.code, device.level, max(0, device.time_ms), text
                )


def _refused(value: str) -> str:
    if not value:
        return "is empty: the fault does not count"
    return f"has {len(value)} characters, at most {_MAX_NAME} are accepted"


def encode_dpu_info(
    node: str, hcas: tuple[str, ...], faults: tuple[DpuFault, ...], update_time_ms: int
) -> dict[str, str]:
    """Return the data of a document as the plugin writes it, for emulation.

    ``hcas`` are all devices of the node; faults of others are left out, as the plugin has none.
    """
    devices: list[go_json.Value] = [
        {
            "HcaName": hca,
            "EthName": f"eth{number}",
            "DeviceID": "0x0222",
            "VendorID": "0x19e5",
            # Go writes null for a list that got no element.
            "FaultList": _listed(faults, hca) or None,
        }
        for number, hca in enumerate(hcas)
    ]
    of_node = _listed(faults, "")
    event: go_json.Value = {"NodeName": node, "FaultList": of_node} if of_node else None
    content: dict[str, go_json.Value] = {
        "DPUInfo": {"DPUList": devices, "NodeEvent": event},
        "UpdateTime": update_time_ms,
    }
    return {DATA_KEY: go_json.encode(content)}


def _listed(faults: tuple[DpuFault, ...], hca: str) -> list[go_json.Value]:
    return [
        {
            "FaultCode": fault.code,
            "Time": fault.since_ms,
            "Description": fault.description,
            "FaultLevel": fault.level,
        }
        for fault in faults
        if fault.hca == hca
    ]
