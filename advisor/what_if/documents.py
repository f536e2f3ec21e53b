"""The documents of a snapshot, written anew for single nodes as our daemons write them.

With the switch ``useClusterInfoManager`` these are the aggregator's, else those of the agents.
Sources: ``docs/spec/consumers.md#1.2`` to 1.4, 7.1 (M3, M5, M7, M9, M10).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from advisor.scheduler_view.cluster_cache import TOUCHED
from advisor.snapshot import StoredConfigMap
from contract.codes.families import FAMILIES, Family, resource_of
from contract.documents import device_info, switch_info
from contract.documents.cluster_device import DeviceRecord, device_record, render_device_entry
from contract.documents.cluster_info import (
    DeviceEntry,
    NodeEntry,
    SwitchEntry,
    entry_texts,
    member,
    record_as_shown,
    value_of,
)
from contract.documents.device_info import DEVICE_INFO_KEY, SWITCH_INFO_KEY, DeviceFault
from contract.documents.node_info import (
    NodeRecord,
    decode_node_info,
    encode_node_info,
    render_node_entry,
)
from contract.documents.switch_info import SwitchRecord, decode_switch_info, render_switch_entry
from contract.errors import DocumentError
from contract.go.decode import decode
from contract.names import (
    CLUSTER_DEVICE_PREFIX,
    CLUSTER_LABEL,
    CLUSTER_NAMESPACE,
    CLUSTER_NODE_NAME,
    CLUSTER_SWITCH_PREFIX,
    DEVICE_INFO_NAMESPACE,
    NODE_INFO_NAMESPACE,
    REPORT_LABEL,
    device_info_name,
    node_info_name,
    switch_info_name,
)
from contract.scheduling import go_integer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from advisor.snapshot import ClusterSnapshot

_Key = tuple[str, str]


class AssumedDocuments:
    """The ConfigMaps of one snapshot. What is put is written last, one after the other."""

    def __init__(self, snapshot: ClusterSnapshot, *, cluster: bool) -> None:
        self._now_ms = snapshot.now_ms
        self._cluster = cluster
        self._maps: dict[_Key, StoredConfigMap] = {}
        for config_map in snapshot.configmaps:
            # Taken out first: of several versions the last one counts, in its place.
            self._maps.pop((config_map.namespace, config_map.name), None)
            self._maps[config_map.namespace, config_map.name] = config_map
        numbers = (
            go_integer(config_map.resource_version) or 0 for config_map in snapshot.configmaps
        )
        self._version = max(numbers, default=0)

    @property
    def configmaps(self) -> tuple[StoredConfigMap, ...]:
        """All of them, in the order of their writes."""
        return tuple(self._maps.values())

    def device(self, node: str) -> DeviceRecord | None:
        """Return what is published of the chips of ``node``; ``None`` where nothing is.

        Raises ``DocumentError`` for what cannot be read.
        """
        if not self._cluster:
            config_map = self._maps.get((DEVICE_INFO_NAMESPACE, device_info_name(node)))
            if config_map is None or DEVICE_INFO_KEY not in config_map.data:
                return None
            return device_record(device_info.decode(config_map.data, config_map.name))
        place = self._place(CLUSTER_DEVICE_PREFIX, device_info_name(node))
        if place is None:
            return None
        name, text = place
        return record_as_shown(decode(text, DeviceEntry, name, f"$.{device_info_name(node)}"), name)

    def put_device(self, node: str, record: DeviceRecord) -> None:
        """Publish ``record`` of ``node``, of which something is published."""
        # Above the last stamp, or the scheduler would drop the entry (M7).
        stamp = max(self._now_ms // 1000, record.update_time + 1)
        text = render_device_entry(node, record, stamp)
        if self._cluster:
            self._put_member(CLUSTER_DEVICE_PREFIX, device_info_name(node), text)
            return
        key = (DEVICE_INFO_NAMESPACE, device_info_name(node))
        config_map = self._maps[key]
        info = msgspec.structs.replace(
            device_info.decode(config_map.data, config_map.name),
            free=record.available,
            unhealthy=record.unhealthy,
            network_unhealthy=record.network_unhealthy,
            recovering=record.recovering,
            faults=_faults_in(text, record.chip_type),
            update_time=stamp,
        )
        data = device_info.encode(info, _family(record))
        self._write(key, {**config_map.data, DEVICE_INFO_KEY: data[DEVICE_INFO_KEY]}, REPORT_LABEL)

    def switch(self, node: str) -> SwitchRecord | None:
        """Return what is published of the switches of ``node``; ``None`` where nothing is."""
        if not self._cluster:
            config_map = self._maps.get((DEVICE_INFO_NAMESPACE, device_info_name(node)))
            return (
                None if config_map is None else decode_switch_info(config_map.name, config_map.data)
            )
        place = self._place(CLUSTER_SWITCH_PREFIX, switch_info_name(node))
        if place is None:
            return None
        entry = decode(place[1], SwitchEntry, place[0], f"$.{switch_info_name(node)}")
        return SwitchRecord((), entry.fault_level, entry.update_time, entry.node_status, ())

    def put_switch(self, node: str, record: SwitchRecord) -> None:
        """Publish ``record`` of ``node``; in direct mode its device-info is there."""
        stamp = max(self._now_ms // 1000, record.update_time + 1)
        record = msgspec.structs.replace(record, update_time=stamp)
        if self._cluster:
            text = render_switch_entry(node, record)
            self._put_member(CLUSTER_SWITCH_PREFIX, switch_info_name(node), text)
            return
        key = (DEVICE_INFO_NAMESPACE, device_info_name(node))
        data = {**self._maps[key].data, SWITCH_INFO_KEY: switch_info.encode_switch_info(record)}
        self._write(key, data, REPORT_LABEL)

    def server(self, node: str) -> NodeRecord | None:
        """Return what is published of the host of ``node``; ``None`` where nothing is."""
        if not self._cluster:
            config_map = self._maps.get((NODE_INFO_NAMESPACE, node_info_name(node)))
            return (
                None if config_map is None else decode_node_info(config_map.name, config_map.data)
            )
        place = self._place(CLUSTER_NODE_NAME, node_info_name(node))
        if place is None:
            return None
        entry = decode(place[1], NodeEntry, place[0], f"$.{node_info_name(node)}")
        return NodeRecord(tuple(entry.FaultDevList or ()), entry.NodeStatus, entry.UpdateTime)

    def put_server(self, node: str, record: NodeRecord) -> None:
        """Publish ``record`` of ``node``."""
        if self._cluster:
            record = msgspec.structs.replace(record, update_time_ms=self._now_ms)
            text = render_node_entry(node, record)
            self._put_member(CLUSTER_NODE_NAME, node_info_name(node), text)
            return
        time = datetime.fromtimestamp(self._now_ms / 1000, UTC).isoformat(timespec="seconds")
        data = encode_node_info(record.faults, record.status, time.replace("+00:00", "Z"))
        self._write((NODE_INFO_NAMESPACE, node_info_name(node)), data, REPORT_LABEL)

    def _entries(self, name: str) -> dict[str, str]:
        config_map = self._maps.get((CLUSTER_NAMESPACE, name))
        text = "" if config_map is None else config_map.data.get(name, "")
        try:
            return entry_texts(text, name)
        except DocumentError:
            return {}  # A reader skips it whole.

    def _names(self, prefix: str) -> list[str]:
        return [
            name
            for namespace, name in self._maps
            if namespace == CLUSTER_NAMESPACE and name.startswith(prefix)
        ]

    def _place(self, prefix: str, key: str) -> tuple[str, str] | None:
        """Return the document that was written last with an entry ``key``, and the entry's text."""
        for name in reversed(self._names(prefix)):
            text = self._entries(name).get(key)
            if text is not None:
                return name, text
        return None

    def _put_member(self, prefix: str, key: str, text: str) -> None:
        place = self._place(prefix, key)
        first = prefix if prefix == CLUSTER_NODE_NAME else f"{prefix}0"
        # A node stays in its document (S2).
        name = min(self._names(prefix), default=first) if place is None else place[0]
        entries = {**self._entries(name), key: text}
        value = value_of(member(entry, entries[entry]) for entry in sorted(entries))
        self._write((CLUSTER_NAMESPACE, name), {name: value}, CLUSTER_LABEL)

    def _write(self, key: _Key, data: Mapping[str, str], label: tuple[str, str]) -> None:
        self._version += 1
        before = self._maps.pop(key, None) or StoredConfigMap(*key)
        self._maps[key] = msgspec.structs.replace(
            before,
            data=dict(data),
            labels={**before.labels, label[0]: label[1]},
            # The write is the newest event; an earlier touch would make the document look old.
            annotations={k: v for k, v in before.annotations.items() if k != TOUCHED},
            resource_version=str(self._version),
        )


def _faults_in(entry: str, chip_type: str) -> tuple[DeviceFault, ...]:
    """Return the faults of a rendered entry, merged as the wire has them."""
    devices = decode(entry, DeviceEntry, "entry").DeviceList or {}
    text = devices[f"{resource_of(chip_type)}-Fault"]
    return tuple(decode(text, list[DeviceFault], "entry"))


def _family(record: DeviceRecord) -> Family:
    """Return a family that writes its chips as ``record`` has them; nothing else of it is used."""
    return next(family for family in FAMILIES.values() if family.device_type == record.chip_type)
