"""Entries and whole values of the cluster-info-switch documents, read as their readers do.

Sources: ``docs/spec/clusterd.md#2.2`` and 3.8,
``docs/spec/consumers.md#1.3`` and 7.1 (M1, M3, M4, M9).
"""

from __future__ import annotations

import msgspec

from contract.documents.cluster_info import numbered, verify_value
from contract.documents.switch_info import SwitchInfoCfg, SwitchRecord, record_of_switches
from contract.errors import DocumentError
from contract.go.decode import decode
from contract.names import CLUSTER_SWITCH_PREFIX, SWITCH_INFO_PREFIX


class SwitchEntry(SwitchInfoCfg, frozen=True):
    """A node's member of cluster-info-switch, as Volcano reads it."""

    cm_name: str = msgspec.field(default="", name="CmName")


def cluster_switch_name(index: int) -> str:
    """Name of a switch document and of its only data key."""
    return f"{CLUSTER_SWITCH_PREFIX}{index}"


def cluster_switch_index(name: str) -> int | None:
    """Return the number of a switch document, ``None`` for any other name."""
    return numbered(CLUSTER_SWITCH_PREFIX, name)


def read_switch_entry(key: str, text: str, document: str) -> tuple[str, SwitchRecord]:
    """Return the node that a member of cluster-info-switch is about, and what it contains.

    Raises ``DocumentError`` where a reader would not understand it.
    """
    entry = decode(text, SwitchEntry, document, f"$.{key}")
    node = key.removeprefix(SWITCH_INFO_PREFIX)
    if node == key or not node or entry.cm_name != key:
        raise DocumentError(document, f"$.{key}", "is not named after the node's switch-info")
    return node, record_of_switches(entry, document, f"$.{key}")


def pre_separate_switch(record: SwitchRecord, chips_in_use: bool | None) -> SwitchRecord:
    """Decide the status of a node whose switch level is a pre-separation (clusterd#3.8).

    Busy chips keep it ``Healthy``, idle ones make it ``UnHealthy``; ``None`` (not known) leaves
    what the node reported.
    """
    if chips_in_use is None or record.status == "UnHealthy" or record.level != "PreSeparate":
        return record
    return msgspec.structs.replace(record, status="Healthy" if chips_in_use else "UnHealthy")


def healed_switch(record: SwitchRecord) -> SwitchRecord:
    """Return ``record`` without any fault (M9)."""
    return msgspec.structs.replace(record, events=(), level="", status="Healthy", times=())


def verify_switch_value(value: str, document: str, nodes: int) -> None:
    """Read a value that is about to be written as its readers will.

    Raises ``DocumentError`` when one of ``nodes`` entries would not arrive.
    """
    verify_value(_typed_entries, value, document, nodes)


_typed_entries = msgspec.json.Decoder(dict[str, SwitchEntry])
