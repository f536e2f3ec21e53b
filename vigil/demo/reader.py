"""Reads the documents as another program would: plain JSON, no codec of the writers.

Formats: ``device-plugin#1.2`` to 1.4 and 5.3, ``noded#2.3``, ``clusterd#2.2``
and 4.1.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from stores.base import Changed, Deleted, DocumentsListed, Selection
from stores.interruption import Interrupted

if TYPE_CHECKING:
    from collections.abc import Callable

    from stores.base import Document, Store

_HARMLESS = frozenset({"NotHandleFault", "SubHealthFault"})
_ISOLATED = "ManuallySeparateNPU"
_LINK_CODES = frozenset({"81078603"})
_DEVICE_PREFIX = "mindx-dl-deviceinfo-"
_NODE_PREFIX = "mindx-dl-nodeinfo-"
_SWITCH_PREFIX = "mindx-dl-switchinfo-"
_HEALTHY = "Healthy"


@dataclass(frozen=True)
class ChipsView:
    """What one document has about the chips of one node.

    ``faults``: physical id to code to level, chips without a fault left out. ``free``,
    ``unhealthy``, ``unlinked`` (their network is unhealthy) and ``isolated`` are physical ids.
    """

    free: frozenset[int] = frozenset()
    unhealthy: frozenset[int] = frozenset()
    unlinked: frozenset[int] = frozenset()
    faults: dict[int, dict[str, str]] = field(default_factory=dict)
    isolated: frozenset[int] = frozenset()

    @classmethod
    def expected(cls, chips: range, faults: dict[int, dict[str, str]]) -> ChipsView:
        """Return the only view that is right for ``faults``: harmless levels leave a chip free."""
        serious = {
            chip: {code for code, level in codes.items() if level not in _HARMLESS}
            for chip, codes in faults.items()
        }
        # A chip whose only fault is its link stays out of this list (device-plugin#1.3).
        unhealthy = frozenset(chip for chip, codes in serious.items() if codes - _LINK_CODES)
        return cls(
            free=frozenset(chips) - unhealthy,
            unhealthy=unhealthy,
            unlinked=frozenset(chip for chip, codes in serious.items() if codes & _LINK_CODES),
            faults={chip: codes for chip, codes in faults.items() if codes},
            isolated=frozenset(
                chip for chip, codes in faults.items() if _ISOLATED in codes.values()
            ),
        )

    def merged(self) -> ChipsView:
        """Return the same in cluster-info, which leaves out the codes that isolate a chip."""
        faults = {
            chip: {code: level for code, level in codes.items() if level != _ISOLATED}
            for chip, codes in self.faults.items()
        }
        return replace(self, faults={chip: codes for chip, codes in faults.items() if codes})


@dataclass(frozen=True)
class HealthView:
    """What a node document or a switch document has: a status, and faults with their levels.

    A fault is a part of the server (``Fan 3``), or a switch fault (code, switch chip and port,
    joined by ``_``).
    """

    status: str = _HEALTHY
    faults: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class DemoNodeView:
    """Everything that documents have about one node.

    ``public``: codes of public faults that hold by the messages about them; the aggregator has
    them among the faults of chips.
    """

    chips: ChipsView
    server: HealthView
    switches: HealthView
    public: frozenset[str]


def _ids(names: str) -> frozenset[int]:
    return frozenset(int(name.rpartition("-")[2]) for name in names.split(",") if name)


def _chips_view(device_list: dict[str, str]) -> ChipsView:
    # The list of free chips has the shortest key; all others add a suffix to it.
    key = min(device_list, key=len)
    # On a 310 it is under the key of another family.
    (fault_list,) = (text for name, text in device_list.items() if name.endswith("-Fault"))
    faults: dict[int, dict[str, str]] = {}
    isolated = set()
    for fault in json.loads(fault_list):
        chip = int(fault["npu_name"].rpartition("-")[2])
        if fault["fault_level"] == _ISOLATED:
            isolated.add(chip)
        for code, entry in fault["fault_time_and_level_map"].items():
            faults.setdefault(chip, {})[code] = entry["fault_level"]
    return ChipsView(
        _ids(device_list[key]),
        _ids(device_list[f"{key}-Unhealthy"]),
        _ids(device_list.get(f"{key}-NetworkUnhealthy", "")),
        faults,
        frozenset(isolated),
    )


def _checked(text: str) -> dict[str, Any]:
    """Return the members of a signed text; raises ``ValueError`` when its check code is wrong."""
    outer: dict[str, Any] = json.loads(text)
    # The digest is of the text as it stands, so the member is cut out and not encoded again.
    start = text.index(":") + 1
    _, end = json.JSONDecoder().raw_decode(text, start)
    if hashlib.sha256(text[start:end].encode()).hexdigest() != outer["CheckCode"]:
        raise ValueError("the check code does not belong to the content")
    return outer


def read_device_info(text: str) -> ChipsView:
    """Read ``DeviceInfoCfg``; raises ``ValueError`` when the check code is wrong."""
    return _chips_view(_checked(text)["DeviceInfo"]["DeviceList"])


def read_cluster_info(text: str) -> dict[str, ChipsView]:
    """Read one ``cluster-info-device-N`` value: node to view."""
    return {
        key.removeprefix(_DEVICE_PREFIX): _chips_view(entry["DeviceList"])
        for key, entry in _entries(text).items()
    }


def _entries(text: str) -> dict[str, Any]:
    entries: dict[str, Any] = json.loads(text) if text else {}
    return entries


def read_public_faults(text: str) -> dict[str, frozenset[str]]:
    """Read ``PublicFault``: node to the codes that stand. Raises ``ValueError``."""
    message = json.loads(text)
    if message["version"] != "1.0" or not message["id"]:
        raise ValueError("this is not a valid message of version 1.0 with an id")
    # Later faults of a message add to earlier ones of the same node.
    standing: dict[str, frozenset[str]] = {}
    for fault in message["faults"]:
        for node in (item["nodeName"] for item in fault["influence"]):
            codes = {fault["faultCode"]} if fault["assertion"] == "occur" else set()
            standing[node] = standing.get(node, frozenset()) | codes
    return standing


def _node_health(entry: dict[str, Any]) -> HealthView:
    return HealthView(
        entry["NodeStatus"],
        {
            f"{part['DeviceType']} {part['DeviceId']}": part["FaultLevel"]
            for part in entry["FaultDevList"] or ()
        },
    )


def _switch_health(entry: dict[str, Any]) -> HealthView:
    levels = entry["FaultTimeAndLevelMap"] or {}
    # That of an A5 is always empty: it has no switch to report.
    return HealthView(
        entry["NodeStatus"] or _HEALTHY,
        {key: fault["fault_level"] for key, fault in levels.items()},
    )


class _Reported:
    """What the documents of one side (the nodes' own, the aggregator's) have now, by node."""

    def __init__(self) -> None:
        self.chips: dict[str, ChipsView] = {}
        self.hosts: dict[str, HealthView] = {}
        self.switches: dict[str, HealthView] = {}
        self.messages: dict[str, dict[str, frozenset[str]]] = {}

    def views(self) -> dict[str, DemoNodeView]:
        """Return node to view; a node is there once its chips are."""
        return {
            node: DemoNodeView(
                chips,
                self.hosts.get(node, HealthView()),
                self.switches.get(node, HealthView()),
                frozenset().union(*(by_node.get(node, ()) for by_node in self.messages.values())),
            )
            for node, chips in self.chips.items()
        }


class DemoReader:
    """Follows all documents of the demo in one store and remembers the present state."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changed = asyncio.Condition()
        self._nodes = _Reported()
        self._cluster: dict[str, _Reported] = {}
        self.errors: list[str] = []

    @property
    def device(self) -> dict[str, DemoNodeView]:
        """Return what the nodes report of themselves."""
        return self._nodes.views()

    @property
    def cluster(self) -> dict[str, DemoNodeView]:
        """Return what the aggregator publishes, over all its documents."""
        whole = _Reported()
        for by_node in self._cluster.values():
            whole.chips |= by_node.chips
            whole.hosts |= by_node.hosts
            whole.switches |= by_node.switches
        return whole.views()

    async def follow(self) -> None:
        """Follow the documents of nodes and of the aggregator until cancelled."""
        report = ("mx-consumer-cim", self._read_report, self._forget_report)
        message = ("mc-consumer-publicfault", self._read_message, self._forget_message)
        cluster = ("mx-consumer-volcano", self._read_cluster, self._forget_cluster)
        async with asyncio.TaskGroup() as group:
            # device-info is in kube-system, node-info in mindx-dl; both have the label of reports.
            for namespace, (label, read, forget) in (
                *(("kube-system", report), ("mindx-dl", report)),
                *(("mindx-dl", message), ("mindx-dl", cluster)),
            ):
                following = self._follow(namespace, (label, "true"), read, forget)
                group.create_task(following, name=f"follow {label} in {namespace}")

    async def _follow(
        self,
        namespace: str,
        label: tuple[str, str],
        read: Callable[[str, dict[str, str]], None],
        forget: Callable[[str], None],
    ) -> None:
        async for event in self._store.watch(Selection(namespace=namespace, label=label)):
            match event:
                case DocumentsListed(documents):
                    for document in documents:
                        self._read(document, read)
                case Changed(document):
                    self._read(document, read)
                case Deleted(_, name):
                    forget(name)
                # What was seen last stays; nothing changed that could be waited for.
                case Interrupted():
                    continue
            async with self._changed:
                self._changed.notify_all()

    def _read(self, document: Document, read: Callable[[str, dict[str, str]], None]) -> None:
        try:
            read(document.name, document.data)
        # Collected, not raised: the demo goes on and names them at its end.
        except (KeyError, ValueError, TypeError) as error:
            self.errors.append(f"{document.namespace}/{document.name}: {error!r}")

    def _read_report(self, name: str, data: dict[str, str]) -> None:
        by_node = self._nodes
        if name.startswith(_DEVICE_PREFIX):
            node = name.removeprefix(_DEVICE_PREFIX)
            chips = read_device_info(data["DeviceInfoCfg"])
            # The key decides here; the levels have what the fault list shows of it.
            by_node.chips[node] = replace(chips, isolated=_ids(data[_ISOLATED]))
            if "SwitchInfoCfg" in data:
                by_node.switches[node] = _switch_health(json.loads(data["SwitchInfoCfg"]))
        elif name.startswith(_NODE_PREFIX):
            node_info = _checked(data["NodeInfo"])["NodeInfo"]
            by_node.hosts[name.removeprefix(_NODE_PREFIX)] = _node_health(node_info)

    def _forget_report(self, name: str) -> None:
        self._nodes.chips.pop(name.removeprefix(_DEVICE_PREFIX), None)
        self._nodes.hosts.pop(name.removeprefix(_NODE_PREFIX), None)

    def _read_message(self, name: str, data: dict[str, str]) -> None:
        self._nodes.messages[name] = read_public_faults(data["PublicFault"])

    def _forget_message(self, name: str) -> None:
        self._nodes.messages.pop(name, None)

    def _read_cluster(self, name: str, data: dict[str, str]) -> None:
        by_node = _Reported()
        if name.startswith("cluster-info-device-"):
            by_node.chips = read_cluster_info(data[name])
        for key, entry in _entries(data[name]).items():
            if key.startswith(_NODE_PREFIX):
                by_node.hosts[key.removeprefix(_NODE_PREFIX)] = _node_health(entry)
            elif key.startswith(_SWITCH_PREFIX):
                by_node.switches[key.removeprefix(_SWITCH_PREFIX)] = _switch_health(entry)
        self._cluster[name] = by_node

    def _forget_cluster(self, name: str) -> None:
        self._cluster.pop(name, None)

    async def wait_until(self, reached: Callable[[], bool], timeout_seconds: float) -> float | None:
        """Wait until ``reached()``; the monotonic time at which it was, ``None`` if it was not."""
        try:
            # The condition is held while the state is compared, so no change is missed.
            async with asyncio.timeout(timeout_seconds), self._changed:
                await self._changed.wait_for(reached)
                return time.monotonic()
        except TimeoutError:
            return None
