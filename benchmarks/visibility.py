"""When a change of the hardware becomes visible to a reader of the API server."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from aggregator.scheduler_signals.observed_nodes import KIND
from contract.names import (
    CLUSTER_DEVICE_PREFIX,
    CLUSTER_LABEL,
    CLUSTER_NODE_NAME,
    CLUSTER_SWITCH_PREFIX,
    DEVICE_INFO_NAMESPACE,
    DEVICE_INFO_PREFIX,
    NODE_INFO_NAMESPACE,
    NODE_INFO_PREFIX,
    REPORT_LABEL,
    SWITCH_INFO_PREFIX,
)
from contract.node_signals import NodeSignals
from stores.base import Changed, Deleted, Document, DocumentsListed, Selection
from stores.cluster import Snapshot, Update
from stores.interruption import Interrupted
from vigil.demo.reader import ChipsView, read_cluster_info, read_device_info

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Set
    from typing import TypeAlias

    from stores.base import Store

    Place: TypeAlias = int | str
    Views: TypeAlias = Mapping[tuple["Kind", str], Set[tuple[Place, str]]]


class Kind(Enum):
    """What a fault is of; each has documents of its own."""

    CHIP = auto()
    SWITCH = auto()
    HOST = auto()


@dataclass(eq=False)
class Change:
    """A fault that begins (``occurs``) or ends on a node; times from ``perf_counter``.

    ``place`` is a chip's number, a part of the server (``Fan 3``), or empty for a switch, whose
    ``code`` names the port.
    """

    node: str
    place: Place
    code: str
    occurs: bool
    at: float = 0.0
    device_info_at: float | None = None
    cluster_info_at: float | None = None
    seen: asyncio.Event = field(default_factory=asyncio.Event)
    kind: Kind = Kind.CHIP
    taints: bool = False
    """Whether the Node gets a taint by it."""
    taint_at: float | None = None

    @property
    def is_seen(self) -> bool:
        """Whether it is visible wherever it is to be."""
        documents = (self.device_info_at, self.cluster_info_at)
        return None not in documents and (not self.taints or self.taint_at is not None)

    def is_in(self, views: Views) -> bool:
        """Return whether a document shows it; ``views`` is what it shows of which nodes."""
        view = views.get((self.kind, self.node))
        return view is not None and ((self.place, self.code) in view) == self.occurs


class Visibility:
    """Follows the documents as their readers do and stamps what it waits for."""

    def __init__(self, store: Store) -> None:
        self.first_seen: dict[str, float] = {}
        self.in_cluster_info: set[str] = set()
        self.interruptions: list[str] = []
        self._store = store
        self._waiting: list[Change] = []

    def expect(self, change: Change) -> None:
        """Stamp ``change`` when it becomes visible; to be called right before it is made."""
        self._waiting.append(change)
        change.at = time.perf_counter()

    async def follow_device_info(self) -> None:
        """Follow what the nodes publish of chips and switches, until cancelled."""
        await self._follow(Selection(DEVICE_INFO_NAMESPACE, label=REPORT_LABEL), self._device_info)

    async def follow_node_info(self) -> None:
        """Follow what the nodes publish of the server, until cancelled."""
        await self._follow(Selection(NODE_INFO_NAMESPACE, label=REPORT_LABEL), self._node_info)

    async def follow_cluster_info(self) -> None:
        """Follow what the aggregator publishes, until cancelled."""
        await self._follow(Selection("mindx-dl", label=CLUSTER_LABEL), self._cluster_info)

    async def follow_taints(self) -> None:
        """Follow the taints that the aggregator writes to Nodes, until cancelled."""
        assert self._store.cluster is not None, "only an API server has Nodes"
        async for event in self._store.cluster.objects(KIND):
            now = time.perf_counter()
            match event:
                case Snapshot(nodes):
                    for node, signals in nodes.items():
                        self._taints(node, signals, now)
                case Update(node, NodeSignals() as signals):
                    self._taints(node, signals, now)
                case Interrupted(reason):
                    self.interruptions.append(reason)

    def _taints(self, node: str, signals: NodeSignals, now: float) -> None:
        for change in self._waiting:
            is_shown = bool(signals.fault_taints) == change.occurs
            if change.taints and change.taint_at is None and change.node == node and is_shown:
                change.taint_at = now
        self._forget_seen()

    async def _follow(
        self, selection: Selection, read: Callable[[str, Mapping[str, str], float], None]
    ) -> None:
        async for event in self._store.watch(selection):
            now = time.perf_counter()
            match event:
                case DocumentsListed(documents):
                    for document in documents:
                        read(document.name, document.data, now)
                case Changed(document):
                    read(document.name, document.data, now)
                case Deleted(_, name):
                    read(name, {}, now)
                case Interrupted(reason):
                    self.interruptions.append(reason)

    def _device_info(self, name: str, data: Mapping[str, str], now: float) -> None:
        node = name.removeprefix(DEVICE_INFO_PREFIX)
        self.first_seen.setdefault(node, now)
        self._reported(
            {
                (Kind.CHIP, node): _chips(read_device_info(data["DeviceInfoCfg"])),
                (Kind.SWITCH, node): _ports(json.loads(data["SwitchInfoCfg"])),
            },
            now,
        )

    def _node_info(self, name: str, data: Mapping[str, str], now: float) -> None:
        node = name.removeprefix(NODE_INFO_PREFIX)
        parts = _parts(json.loads(data["NodeInfo"])["NodeInfo"]) if data else frozenset()
        self._reported({(Kind.HOST, node): parts}, now)

    def _reported(self, views: Views, now: float) -> None:
        for change in self._waiting:
            if change.device_info_at is None and change.is_in(views):
                change.device_info_at = now
        self._forget_seen()

    def _cluster_info(self, name: str, data: Mapping[str, str], now: float) -> None:
        views: dict[tuple[Kind, str], Set[tuple[Place, str]]] = {}
        if name.startswith(CLUSTER_DEVICE_PREFIX):
            chips = read_cluster_info(data[name])
            self.in_cluster_info.update(chips)
            views = {(Kind.CHIP, node): _chips(view) for node, view in chips.items()}
        elif name.startswith(CLUSTER_SWITCH_PREFIX):
            for key, entry in json.loads(data[name] or "{}").items():
                views[Kind.SWITCH, key.removeprefix(SWITCH_INFO_PREFIX)] = _ports(entry)
        elif name == CLUSTER_NODE_NAME:
            # A node that is not in it has no faulty part.
            views = {(Kind.HOST, change.node): frozenset() for change in self._waiting}
            for key, entry in json.loads(data[name] or "{}").items():
                views[Kind.HOST, key.removeprefix(NODE_INFO_PREFIX)] = _parts(entry)
        for change in self._waiting:
            if change.cluster_info_at is None and change.is_in(views):
                change.cluster_info_at = now
        self._forget_seen()

    def _forget_seen(self) -> None:
        for change in self._waiting:
            if change.is_seen:
                change.seen.set()
        self._waiting = [change for change in self._waiting if not change.seen.is_set()]


def _chips(view: ChipsView) -> frozenset[tuple[Place, str]]:
    return frozenset((chip, code) for chip, codes in view.faults.items() for code in codes)


def _ports(entry: dict[str, Any]) -> frozenset[tuple[Place, str]]:
    return frozenset(("", key) for key in entry["FaultTimeAndLevelMap"] or ())


def _parts(entry: dict[str, Any]) -> frozenset[tuple[Place, str]]:
    return frozenset(
        (f"{part['DeviceType']} {part['DeviceId']}", code)
        for part in entry["FaultDevList"] or ()
        for code in part["FaultCode"]
    )


class Bare:
    """The cost of one ConfigMap write until a watch shows it, with nothing of ours in between."""

    def __init__(self, store: Store) -> None:
        self.seconds: list[float] = []
        self._store = store
        self._written = 0
        self._shown = asyncio.Queue[tuple[str, float]]()

    async def follow(self) -> None:
        """Follow the document, until cancelled."""
        async for event in self._store.watch(Selection("default", "bare")):
            if isinstance(event, Changed):
                self._shown.put_nowait((event.document.data["number"], time.perf_counter()))

    def taken(self) -> list[float]:
        """Return what was measured since the last call, in seconds."""
        seconds, self.seconds = self.seconds, []
        return seconds

    async def measure(self) -> None:
        """Write once and wait until it is shown. The size is that of a device-info document."""
        self._written += 1
        number = str(self._written)
        document = Document("default", "bare", {"number": number, "filler": "x" * 3000})
        begun = time.perf_counter()
        await self._store.put(document)
        async with asyncio.timeout(10):
            while True:
                shown, at = await self._shown.get()
                if shown == number:
                    self.seconds.append(at - begun)
                    return
