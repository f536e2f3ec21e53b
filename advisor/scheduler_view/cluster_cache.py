"""What the scheduler's informers make of ConfigMaps (``docs/spec/consumers.md#1.2`` and 1.4).

A ConfigMap without the label is invisible, one that cannot be read changes nothing, entries of
devices and switches are merged, and those of hosts replaced.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from advisor.options import Profile
from advisor.report import Finding, FindingSeverity
from advisor.scheduler_view import document_entries
from advisor.scheduler_view.state import SeenConfigMap
from contract import names
from contract.documents.device_info import DEVICE_INFO_KEY, SWITCH_INFO_KEY
from contract.documents.node_info import DATA_KEY as NODE_INFO_KEY
from contract.errors import DocumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from advisor.options import AdvisorOptions
    from advisor.scheduler_view.document_entries import (
        VolcanoDeviceEntry,
        VolcanoNodeEntry,
        VolcanoSwitchEntry,
    )
    from advisor.scheduler_view.state import SchedulerState
    from advisor.snapshot import StoredConfigMap

E = TypeVar("E")
TOUCHED = "npu-vigil/touched"
"""When a document of ours was touched last."""


class DecodedDocuments:
    """The entries of documents by node, decoded once for each text."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[str, dict[str, Any]]] = {}
        self._versions: dict[str, tuple[StoredConfigMap, str]] = {}

    def read(
        self, decode: Callable[[str, str], dict[str, E]], text: str, name: str, prefix: str
    ) -> dict[str, E]:
        """Return what ``decode`` makes of a document; the key is without ``prefix``.

        An entry that did not change is the same object as before. Raises ``DocumentError``.

        Source: docs/spec/consumers.md#1.2.
        """
        known = self._found.get(name)
        if known is not None and known[0] == text:
            return known[1]
        before: dict[str, E] = {} if known is None else known[1]
        found = {}
        for key, one in decode(text, name).items():
            node = key.removeprefix(prefix)
            old = before.get(node)
            found[node] = one if old is None or old != one else old
        self._found[name] = (text, found)
        return found

    def version(self, one: StoredConfigMap) -> str:
        """Return what tells this content from another."""
        if one.resource_version:
            return f"{one.uid}:{one.resource_version}"
        known = self._versions.get(_key(one))
        if known is None or known[0] is not one:
            known = self._versions[_key(one)] = (one, _digest(one))
        return known[1]

    def keep(self, configmaps: Iterable[StoredConfigMap]) -> None:
        """Forget the documents that are not there any more."""
        there = {one.name for one in configmaps}
        for name in [name for name in self._found if name not in there]:
            del self._found[name]
        for key in [key for key, (one, _) in self._versions.items() if one.name not in there]:
            del self._versions[key]


class ClusterCache:
    """The caches of the scheduler, moved by the ConfigMaps of one session."""

    def __init__(
        self, state: SchedulerState, options: AdvisorOptions, documents: DecodedDocuments
    ) -> None:
        self.changed: set[str] = set()
        """Nodes of which an entry is another than in ``state``."""
        self._documents = documents
        self.devices: dict[str, VolcanoDeviceEntry] = dict(state.devices)
        self.switches: dict[str, VolcanoSwitchEntry] = dict(state.switches)
        self.nodes: dict[str, VolcanoNodeEntry] = dict(state.nodes)
        self.seen: dict[str, SeenConfigMap] = dict(state.configmaps)
        self.findings: list[Finding] = []
        self.crashed_by = ""
        self._cluster = options.use_cluster_info
        self._corrected = options.profile is Profile.CORRECTED
        self._problems: dict[str, Finding] = {}

    def read(self, configmaps: Iterable[StoredConfigMap]) -> None:
        """Read the ConfigMaps of a session in the order of their writes, deletions first."""
        listed = list(configmaps)
        there = {_key(one) for one in listed if self._is_visible(one)}
        for key in sorted(self.seen.keys() - there):
            self._delete(key)
        for one in listed:
            key, version = _key(one), self._documents.version(one)
            seen = self.seen.get(key)
            if not self._is_visible(one):
                if seen is not None:
                    self._delete(key)
                continue
            if seen is None or seen.version != version or not seen.is_readable:
                self._problems.pop(key, None)
                self._write(key, version, one)
        self.findings += [self._problems[key] for key in sorted(self._problems)]

    def _is_visible(self, one: StoredConfigMap) -> bool:
        """Whether the informer has it: namespace, name and label (consumers#1.2)."""
        if self._cluster:
            label, value = names.CLUSTER_LABEL
            return (
                one.namespace == names.CLUSTER_NAMESPACE
                and one.labels.get(label) == value
                and (
                    one.name.startswith((names.CLUSTER_DEVICE_PREFIX, names.CLUSTER_SWITCH_PREFIX))
                    or one.name == names.CLUSTER_NODE_NAME
                )
            )
        label, value = names.REPORT_LABEL
        return one.labels.get(label) == value and (
            (
                one.namespace == names.DEVICE_INFO_NAMESPACE
                and one.name.startswith(names.DEVICE_INFO_PREFIX)
            )
            or (
                one.namespace == names.NODE_INFO_NAMESPACE
                and one.name.startswith(names.NODE_INFO_PREFIX)
            )
        )

    def _write(self, key: str, version: str, one: StoredConfigMap) -> None:
        try:
            found, event_at_ms = self._take(one)
        except DocumentError as error:
            before = self.seen.get(key)
            self.seen[key] = SeenConfigMap(
                version,
                before.nodes if before else (),
                is_readable=False,
                event_at_ms=before.event_at_ms if before else 0,
            )
            self._problems[key] = Finding(
                FindingSeverity.ERROR,
                "CONFIGMAP_SKIPPED",
                f"ConfigMap {key}",
                f"The scheduler skips it and keeps what it had before: {error.where}: {error.what}",
            )
            return
        known = self.seen.get(key)
        if known is not None and known.nodes == found:
            found = known.nodes
        self.seen[key] = SeenConfigMap(version, found, event_at_ms=event_at_ms)

    def _take(self, one: StoredConfigMap) -> tuple[tuple[str, ...], int]:
        """Return the nodes of a ConfigMap and its last event, having taken over its entries."""
        if one.name == names.CLUSTER_NODE_NAME:
            hosts = self._documents.read(
                document_entries.read_nodes, _value(one, one.name), one.name, names.NODE_INFO_PREFIX
            )
            self._note(self.nodes, hosts)
            self._note(hosts, self.nodes)
            self.nodes = hosts
            return tuple(hosts), _touched_ms(one)
        if one.name.startswith(names.CLUSTER_DEVICE_PREFIX):
            devices = self._documents.read(
                document_entries.read_devices,
                _value(one, one.name),
                one.name,
                names.DEVICE_INFO_PREFIX,
            )
            self._forget_omitted(self.devices, one, devices)
            self._note(devices, self.devices)
            self.devices.update(devices)
            newest = max((entry.UpdateTime for entry in devices.values()), default=0)
            return tuple(devices), _touched_ms(one) or newest * 1000
        if one.name.startswith(names.CLUSTER_SWITCH_PREFIX):
            switches = self._documents.read(
                document_entries.read_switches,
                _value(one, one.name),
                one.name,
                names.SWITCH_INFO_PREFIX,
            )
            self._forget_omitted(self.switches, one, switches)
            self._note(switches, self.switches)
            self.switches.update(switches)
            newest = max((entry.UpdateTime for entry in switches.values()), default=0)
            return tuple(switches), _touched_ms(one) or newest * 1000
        if one.name.startswith(names.NODE_INFO_PREFIX):
            node = one.name.removeprefix(names.NODE_INFO_PREFIX)
            self.changed.add(node)
            self.nodes[node] = document_entries.read_node_info(_value(one, NODE_INFO_KEY), one.name)
            return (node,), _touched_ms(one)
        return self._take_device_info(one)

    def _take_device_info(self, one: StoredConfigMap) -> tuple[tuple[str, ...], int]:
        """Take over a device-info document (direct mode); an empty text ends the scheduler."""
        node = one.name.removeprefix(names.DEVICE_INFO_PREFIX)
        text = _value(one, DEVICE_INFO_KEY)
        if not text:
            if self._corrected:
                text = "an empty DeviceInfoCfg is skipped as any other that cannot be read"
                self.findings.append(_divergence(2, f"ConfigMap {_key(one)}", text))
            else:
                self.crashed_by = _key(one)
            raise DocumentError(one.name, DEVICE_INFO_KEY, "is empty; the scheduler crashes on it")
        device = document_entries.read_device_info(text, one.name)
        switch = one.data.get(SWITCH_INFO_KEY)
        if switch:
            self.switches[node] = document_entries.read_switch_info(switch, one.name)
        self.changed.add(node)
        self.devices[node] = device
        return (node,), _touched_ms(one) or device.UpdateTime * 1000

    def _forget_omitted(
        self,
        cache: dict[str, VolcanoDeviceEntry] | dict[str, VolcanoSwitchEntry],
        one: StoredConfigMap,
        now: object,
    ) -> None:
        """Drop entries that left their document; upstream keeps them (consumers#8-1)."""
        before = self.seen.get(_key(one))
        if not self._corrected or before is None or not isinstance(now, dict):
            return
        for node in before.nodes:
            if node not in now and not self._is_elsewhere(node, _key(one)):
                cache.pop(node, None)
                self.changed.add(node)
                text = f"its entry has left {one.name}: it does not count any more"
                self.findings.append(_divergence(1, f"Node {node}", text))

    def _note(self, new: Mapping[str, object], old: Mapping[str, object]) -> None:
        """Note the nodes of which an entry is another, or was not there."""
        for node, entry in new.items():
            before = old.get(node)
            if before is not entry and before != entry:
                self.changed.add(node)

    def _is_elsewhere(self, node: str, key: str) -> bool:
        kind = key.rpartition("-")[0]
        return any(
            node in seen.nodes
            for other, seen in self.seen.items()
            if other != key and other.startswith(kind)
        )

    def _delete(self, key: str) -> None:
        seen = self.seen.pop(key)
        self._problems.pop(key, None)
        name = key.partition("/")[2]
        if name == names.CLUSTER_NODE_NAME:
            self.changed.update(self.nodes)
            self.nodes = {}
            return
        if not seen.is_readable:
            return
        self.changed.update(seen.nodes)
        for node in seen.nodes:
            if name.startswith((names.CLUSTER_DEVICE_PREFIX, names.DEVICE_INFO_PREFIX)):
                self.devices.pop(node, None)
            if name.startswith((names.CLUSTER_SWITCH_PREFIX, names.DEVICE_INFO_PREFIX)):
                self.switches.pop(node, None)
            if name.startswith(names.NODE_INFO_PREFIX):
                self.nodes.pop(node, None)


def kind_of(key: str) -> str:
    """Return what a ConfigMap of the caches is about: ``device``, ``switch`` or ``host``."""
    name = key.partition("/")[2]
    if name == names.CLUSTER_NODE_NAME or name.startswith(names.NODE_INFO_PREFIX):
        return "host"
    return "switch" if name.startswith(names.CLUSTER_SWITCH_PREFIX) else "device"


def has(key: str, kind: str) -> bool:
    """Whether a ConfigMap has entries of a kind; one of an agent has its switch, too."""
    of_agent = key.partition("/")[2].startswith(names.DEVICE_INFO_PREFIX)
    return kind_of(key) == kind or (of_agent and kind == "switch")


def _key(one: StoredConfigMap) -> str:
    return f"{one.namespace}/{one.name}"


def _divergence(section: int, called: str, text: str) -> Finding:
    return Finding(FindingSeverity.WARNING, "UPSTREAM_DIVERGES", called, text, section)


def _digest(one: StoredConfigMap) -> str:
    """Return what tells this content from another, where the object has no version."""
    digest = hashlib.sha256()
    for texts in (one.labels, one.annotations, one.data):
        for key in sorted(texts):
            digest.update(f"{len(key)}:{key}{len(texts[key])}:".encode("utf-8", "replace"))
            digest.update(texts[key].encode("utf-8", "replace"))
    return digest.hexdigest()


def _value(one: StoredConfigMap, key: str) -> str:
    text = one.data.get(key)
    if text is None:
        raise DocumentError(one.name, key, "is missing")
    return text


def _touched_ms(one: StoredConfigMap) -> int:
    """Return when a document of ours was touched, in Unix milliseconds; 0 where it was not."""
    try:
        touched = datetime.fromisoformat(one.annotations.get(TOUCHED, ""))
        return int(touched.timestamp() * 1000) if touched.tzinfo is not None else 0
    except (ValueError, OverflowError):
        return 0
