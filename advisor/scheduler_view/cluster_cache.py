"""ConfigMaps as the scheduler's informers keep them (``docs/spec/consumers.md#1.2`` and 1.4).

A ConfigMap without the label is invisible, one that cannot be read changes nothing, entries of
devices and switches are merged, and those of hosts replaced.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from advisor.layered_dict import LayeredDict, layered
from advisor.options import Profile
from advisor.report import Finding
from advisor.scheduler_view import document_entries
from advisor.scheduler_view.document_entries import Entries
from advisor.scheduler_view.state import SeenConfigMap
from contract import names
from contract.documents.device_info import DEVICE_INFO_KEY, SWITCH_INFO_KEY
from contract.documents.node_info import DATA_KEY as NODE_INFO_KEY
from contract.errors import DocumentError
from contract.sentences import sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Iterator, Mapping

    from advisor.options import AdvisorOptions
    from advisor.scheduler_view.document_entries import (
        EntryForm,
        VolcanoDeviceEntry,
        VolcanoNodeEntry,
        VolcanoSwitchEntry,
    )
    from advisor.scheduler_view.state import SchedulerState
    from advisor.snapshot import StoredConfigMap

E = TypeVar("E")
TOUCHED = "npu-vigil/touched"
"""When a document of ours was touched last."""


class Head(NamedTuple):
    """What distinguishes a ConfigMap from others, and which informers have it."""

    configmap: StoredConfigMap
    key: str
    version: str
    """Of its content."""
    is_of_cluster: bool
    is_of_agent: bool
    is_named_for_cluster: bool = False
    """Whether its name is that of a document of the cluster, wherever it is."""
    is_named_for_agent: bool = False


class _Decoded(Generic[E]):
    """The last version of a document that could be read."""

    def __init__(self) -> None:
        self.by_node: dict[str, E] = {}
        self.nodes: tuple[str, ...] = ()
        """The same object as long as they are the same."""
        self._names: list[str] = []
        """Of the node of each entry: two keys may name one."""
        self._text: str | None = None
        self._entries: Entries[E] = Entries({})

    def update(self, form: EntryForm[E], text: str, name: str) -> None:
        """Read a new text. Raises ``DocumentError`` and changes nothing then."""
        # Most sessions read the same texts: one comparison instead of decoding 128 KB.
        if text == self._text:
            return
        before = self._entries
        self._entries = document_entries.read_entries(text, name, form, before)
        self._text = text
        entries = self._entries.entries
        # Names and their order mostly stay, so ``nodes`` remains the same object.
        if tuple(entries) != tuple(before.entries):
            self._names = [key.removeprefix(form.prefix) for key in entries]
            self.nodes = tuple(dict.fromkeys(self._names))
        self.by_node = dict(zip(self._names, entries.values(), strict=True))


class DecodedDocuments:
    """The ConfigMaps of sessions, and their entries by node, decoded once for each text."""

    def __init__(self) -> None:
        self._found: dict[str, _Decoded[Any]] = {}
        # By ``id``: objects of a snapshot are kept alive by it, and ``keep`` forgets the others.
        self._heads: dict[int, Head] = {}

    def read(self, form: EntryForm[E], config_map: StoredConfigMap) -> _Decoded[E]:
        """Return a document. An entry that did not change is the same object as before.

        Raises ``DocumentError``.

        Source: docs/spec/consumers.md#1.2.
        """
        text = _value(config_map, config_map.name)
        decoded: _Decoded[E] | None = self._found.get(config_map.name)
        if decoded is None:
            decoded = self._found[config_map.name] = _Decoded()
        decoded.update(form, text, config_map.name)
        return decoded

    def head(self, config_map: StoredConfigMap) -> Head:
        """Return what distinguishes this ConfigMap from others."""
        cached = self._heads.get(id(config_map))
        if cached is None:
            cached = self._heads[id(config_map)] = _head(config_map)
        return cached

    def keep(self, configmaps: Collection[StoredConfigMap]) -> None:
        """Forget the documents that are not there any more."""
        there = {config_map.name for config_map in configmaps}
        for name in [name for name in self._found if name not in there]:
            del self._found[name]
        # Not more heads than objects: none can be out of date.
        if len(self._heads) > len(configmaps):
            now = set(map(id, configmaps))
            for key in [key for key in self._heads if key not in now]:
                del self._heads[key]


def _head(config_map: StoredConfigMap) -> Head:
    """Return the head of a ConfigMap; namespace, name and label decide which informer has it.

    Source: docs/spec/consumers.md#1.2.
    """
    label, value = names.CLUSTER_LABEL
    is_named_for_cluster = config_map.name == names.CLUSTER_NODE_NAME or config_map.name.startswith(
        (names.CLUSTER_DEVICE_PREFIX, names.CLUSTER_SWITCH_PREFIX)
    )
    is_of_cluster = (
        is_named_for_cluster
        and config_map.namespace == names.CLUSTER_NAMESPACE
        # The informer selects by this label, so without it the document does not exist for the
        # scheduler.
        and config_map.labels.get(label) == value
    )
    label, value = names.REPORT_LABEL
    is_of_device = config_map.name.startswith(names.DEVICE_INFO_PREFIX)
    is_of_host = config_map.name.startswith(names.NODE_INFO_PREFIX)
    is_of_agent = config_map.labels.get(label) == value and (
        (is_of_device and config_map.namespace == names.DEVICE_INFO_NAMESPACE)
        or (is_of_host and config_map.namespace == names.NODE_INFO_NAMESPACE)
    )
    version = (
        f"{config_map.uid}:{config_map.resource_version}"
        if config_map.resource_version
        # Dumps may lack versions; then the content itself distinguishes one from the next.
        else _digest(config_map)
    )
    return Head(
        config_map,
        _key(config_map),
        version,
        is_of_cluster,
        is_of_agent,
        is_named_for_cluster,
        is_of_device or is_of_host,
    )


class ClusterCache:
    """The caches of the scheduler, moved by the ConfigMaps of one session."""

    def __init__(
        self, state: SchedulerState, options: AdvisorOptions, documents: DecodedDocuments
    ) -> None:
        self.changed: set[str] = set()
        """Nodes of which an entry is another than in ``state``."""
        self._documents = documents
        self.devices: LayeredDict[VolcanoDeviceEntry] = layered(state.devices)
        self.switches: LayeredDict[VolcanoSwitchEntry] = layered(state.switches)
        self.nodes: LayeredDict[VolcanoNodeEntry] = layered(state.nodes)
        """The entries of chips, switches and hosts by node."""
        self.seen: dict[str, SeenConfigMap] = dict(state.configmaps)
        self.findings: list[Finding] = []
        self.crashed_by = ""
        self._cluster = options.use_cluster_info
        self._corrected = options.profile is Profile.CORRECTED
        self._problems: dict[str, Finding] = {}

    def read(self, configmaps: Iterable[StoredConfigMap]) -> None:
        """Read the ConfigMaps of a session in the order of their writes, deletions first."""
        heads = [self._documents.head(config_map) for config_map in configmaps]
        there = {head.key for head in heads if self._is_visible(head)}
        # A deletion comes before later writes, because the same node may be in another document
        # now.
        for key in sorted(self.seen.keys() - there):
            self._delete(key)
        for head in heads:
            seen = self.seen.get(head.key)
            if not self._is_visible(head):
                # For an informer with a label selector, a lost label is a deletion.
                if seen is not None:
                    self._delete(head.key)
                continue
            # A document that was unreadable is tried again, to name the problem in each session.
            if seen is None or seen.version != head.version or not seen.is_readable:
                self._problems.pop(head.key, None)
                self._write(head.key, head.version, head.configmap)
        self.findings += [self._problems[key] for key in sorted(self._problems)]
        self.findings += map(self._hidden, filter(self._is_hidden, heads))

    def _is_hidden(self, head: Head) -> bool:
        """Return whether a ConfigMap is called as a document that the scheduler would read."""
        is_named = head.is_named_for_cluster if self._cluster else head.is_named_for_agent
        return is_named and not self._is_visible(head)

    def _hidden(self, head: Head) -> Finding:
        label, value = names.CLUSTER_LABEL if self._cluster else names.REPORT_LABEL
        text = sentence(
            "The scheduler does not see it: wrong namespace, or no label {label}",
            label=f"{label}={value}",
        )
        return Finding.warning("CONFIGMAP_INVISIBLE", f"ConfigMap {head.key}", text)

    def _is_visible(self, head: Head) -> bool:
        return head.is_of_cluster if self._cluster else head.is_of_agent

    def _write(self, key: str, version: str, config_map: StoredConfigMap) -> None:
        try:
            nodes, event_at_ms = self._take(config_map)
        except DocumentError as error:
            # What was read before stays in the caches, so its nodes stay known (consumers#1.2).
            before = self.seen.get(key)
            self.seen[key] = SeenConfigMap(
                version,
                before.nodes if before else (),
                is_readable=False,
                event_at_ms=before.event_at_ms if before else 0,
            )
            self._problems[key] = Finding.error(
                "CONFIGMAP_SKIPPED",
                f"ConfigMap {key}",
                f"The scheduler skips it and keeps what it had before: {error.where}: {error.what}",
            )
            return
        seen = self.seen.get(key)
        if seen is not None and seen.nodes == nodes:
            nodes = seen.nodes
        self.seen[key] = SeenConfigMap(version, nodes, event_at_ms=event_at_ms)

    def _take(self, config_map: StoredConfigMap) -> tuple[tuple[str, ...], int]:
        """Return the nodes of a ConfigMap and its last event, having taken over its entries."""
        if config_map.name == names.CLUSTER_NODE_NAME:
            hosts = self._documents.read(document_entries.NODES, config_map)
            # Both directions: entries that left and entries that came are changes.
            self._note(self.nodes, hosts.by_node)
            self._note(hosts.by_node, self.nodes)
            # Replaced as a whole, where devices and switches are merged (consumers#1.4).
            self.nodes = layered(hosts.by_node)
            return hosts.nodes, _touched_ms(config_map)
        if config_map.name.startswith(names.CLUSTER_DEVICE_PREFIX):
            devices = self._documents.read(document_entries.DEVICES, config_map)
            self._merge(self.devices, config_map, devices)
            return devices.nodes, _touched_ms(config_map) or _newest_ms(devices.by_node.values())
        if config_map.name.startswith(names.CLUSTER_SWITCH_PREFIX):
            switches = self._documents.read(document_entries.SWITCHES, config_map)
            self._merge(self.switches, config_map, switches)
            return switches.nodes, _touched_ms(config_map) or _newest_ms(switches.by_node.values())
        if config_map.name.startswith(names.NODE_INFO_PREFIX):
            node = config_map.name.removeprefix(names.NODE_INFO_PREFIX)
            self.changed.add(node)
            host = document_entries.read_node_info(
                _value(config_map, NODE_INFO_KEY), config_map.name
            )
            self.nodes[node] = host
            return (node,), _touched_ms(config_map)
        return self._take_device_info(config_map)

    def _take_device_info(self, config_map: StoredConfigMap) -> tuple[tuple[str, ...], int]:
        """Take over a device-info document (direct mode); an empty text ends the scheduler."""
        node = config_map.name.removeprefix(names.DEVICE_INFO_PREFIX)
        text = _value(config_map, DEVICE_INFO_KEY)
        if not text:
            if self._corrected:
                text = sentence(
                    "an empty DeviceInfoCfg is skipped as any other that cannot be read"
                )
                self.findings.append(Finding.divergence(f"ConfigMap {_key(config_map)}", text, 2))
            else:
                self.crashed_by = _key(config_map)
            raise DocumentError(
                config_map.name, DEVICE_INFO_KEY, "is empty; the scheduler crashes on it"
            )
        device = document_entries.read_device_info(text, config_map.name)
        switch = config_map.data.get(SWITCH_INFO_KEY)
        if switch:
            self.switches[node] = document_entries.read_switch_info(switch, config_map.name)
        self.changed.add(node)
        self.devices[node] = device
        return (node,), _touched_ms(config_map) or device.UpdateTime * 1000

    def _merge(
        self, cache: LayeredDict[E], config_map: StoredConfigMap, document: _Decoded[E]
    ) -> None:
        """Take the entries of a document into a cache.

        Those that left their document are dropped; upstream keeps them (consumers#8-1).
        """
        entries = document.by_node
        others = cache.others(entries)
        # Found before the update: afterwards the document's earlier nodes are forgotten.
        omitted = list(self._omitted(config_map, entries)) if self._corrected else []
        self._note(others, cache)
        cache.update(others)
        for node in omitted:
            cache.pop(node, None)
            self.changed.add(node)
            text = sentence(
                "its entry has left {name}: it does not count any more", name=config_map.name
            )
            self.findings.append(Finding.divergence(f"Node {node}", text, 1))

    def _omitted(self, config_map: StoredConfigMap, now: Container[str]) -> Iterator[str]:
        """Return the nodes that a document had, and that no document has any more."""
        key = _key(config_map)
        before = self.seen.get(key)
        for node in () if before is None else before.nodes:
            if node not in now and not self._is_elsewhere(node, key):
                yield node

    def _note(self, new: Mapping[str, object], old: Mapping[str, object]) -> None:
        """Note the nodes of which an entry is another, or was not there."""
        for node, entry in new.items():
            before = old.get(node)
            # Identity first: unchanged entries are the same object (``read_entries``).
            if before is not entry and before != entry:
                self.changed.add(node)

    def _is_elsewhere(self, node: str, key: str) -> bool:
        # Documents of one kind differ in the number after the last dash.
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
            self.nodes = LayeredDict({})
            return
        # The informer of such a document has no object from which it could drop entries.
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


@lru_cache(maxsize=1024)
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


def _key(config_map: StoredConfigMap) -> str:
    return f"{config_map.namespace}/{config_map.name}"


def _digest(config_map: StoredConfigMap) -> str:
    """Return what distinguishes this content from another, where the object has no version."""
    digest = hashlib.sha256()
    for texts in (config_map.labels, config_map.annotations, config_map.data):
        for key in sorted(texts):
            # Lengths come before texts, so that texts cannot run into each other.
            digest.update(f"{len(key)}:{key}{len(texts[key])}:".encode("utf-8", "replace"))
            digest.update(texts[key].encode("utf-8", "replace"))
    return digest.hexdigest()


def _value(config_map: StoredConfigMap, key: str) -> str:
    text = config_map.data.get(key)
    if text is None:
        raise DocumentError(config_map.name, key, "is missing")
    return text


def _newest_ms(entries: Iterable[VolcanoDeviceEntry | VolcanoSwitchEntry]) -> int:
    return max((entry.UpdateTime for entry in entries), default=0) * 1000


def _touched_ms(config_map: StoredConfigMap) -> int:
    """Return when a document of ours was touched, in Unix milliseconds; 0 where it was not."""
    try:
        touched = datetime.fromisoformat(config_map.annotations.get(TOUCHED, ""))
        # A time without a zone would be read in the zone of this host.
        return int(touched.timestamp() * 1000) if touched.tzinfo is not None else 0
    except (ValueError, OverflowError):
        return 0
