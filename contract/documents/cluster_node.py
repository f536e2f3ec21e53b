"""Entries and the whole value of cluster-info-node-cm, read as their readers do.

Sources: ``docs/spec/clusterd.md#2.2`` and 3.8,
``docs/spec/consumers.md#1.3`` and 7.1 (M1, M3, M4, M10).
"""

from __future__ import annotations

import msgspec

from contract.documents.cluster_info import verify_value
from contract.documents.node_info import FaultDevice, NodeRecord
from contract.errors import DocumentError
from contract.go.decode import GoStruct, Int64, decode
from contract.names import NODE_INFO_PREFIX

HEALTHY = "Healthy"
UNHEALTHY = "UnHealthy"
_LEVELS = ("SeparateFault", "PreSeparateFault", "NotHandleFault")
"""Most serious first."""


class NodeEntry(GoStruct, frozen=True):
    """A node's member of cluster-info-node-cm, as Volcano reads it."""

    FaultDevList: list[FaultDevice] | None = None
    NodeStatus: str = ""
    CmName: str = ""
    UpdateTime: Int64 = 0


def read_node_entry(key: str, text: str, document: str) -> tuple[str, NodeRecord]:
    """Return the node that a member of cluster-info-node-cm is about, and what it contains.

    Raises ``DocumentError`` where a reader would not understand it.
    """
    entry = decode(text, NodeEntry, document, f"$.{key}")
    node = key.removeprefix(NODE_INFO_PREFIX)
    if node == key or not node or entry.CmName != key:
        raise DocumentError(document, f"$.{key}", "is not named after the node's node-info")
    return node, NodeRecord(tuple(entry.FaultDevList or ()), entry.NodeStatus, entry.UpdateTime)


def pre_separate_node(record: NodeRecord, chips_in_use: bool | None) -> NodeRecord:
    """Decide the status of a node whose worst fault is a pre-separation (clusterd#3.8).

    Busy chips keep it ``Healthy``, idle ones make it ``UnHealthy``; ``None`` (not known) leaves
    what the node reported.
    """
    worst = next((level for level in _LEVELS if _has(record, level)), None)
    if chips_in_use is None or record.status == "UnHealthy" or worst != "PreSeparateFault":
        return record
    return msgspec.structs.replace(record, status="Healthy" if chips_in_use else "UnHealthy")


def _has(record: NodeRecord, level: str) -> bool:
    return any(device.fault_level == level for device in record.faults)


def lost_node(record: NodeRecord | None) -> NodeRecord:
    """Return what is published of a node that fell silent; its last known faults stay."""
    if record is None:
        return NodeRecord((), UNHEALTHY, 0)
    return msgspec.structs.replace(record, status=UNHEALTHY)


def is_only_silence(record: NodeRecord) -> bool:
    """Return whether ``record`` is what ``lost_node`` makes of a node whose faults do no harm."""
    return record.status == UNHEALTHY and all(
        device.fault_level == "NotHandleFault" for device in record.faults
    )


def missed(text: str) -> int:
    """Return how much an entry would be missed: 0 by no reader, 1 by people, 2 by schedulers (B7).

    Readers take a node without an entry for healthy.
    """
    if f'"NodeStatus":"{HEALTHY}"' not in text:
        return 2
    return 0 if text.startswith('{"FaultDevList":null,') else 1


def verify_node_value(value: str, document: str, nodes: int) -> None:
    """Read the value that is about to be written as its readers will.

    Raises ``DocumentError`` when one of ``nodes`` entries would not arrive, or when the value is
    too large for the one document there is.
    """
    verify_value(_typed_entries, value, document, nodes)


_typed_entries = msgspec.json.Decoder(dict[str, NodeEntry])
