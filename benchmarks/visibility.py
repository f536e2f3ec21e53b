"""When a change of the hardware becomes visible to a reader of the API server."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from contract.names import CLUSTER_DEVICE_PREFIX, CLUSTER_LABEL, DEVICE_INFO_PREFIX, REPORT_LABEL
from stores.base import Changed, Document, Interrupted, Listed, Selection
from vigil.demo.reader import ChipsView, read_cluster_info, read_device_info

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stores.base import Store


@dataclass(eq=False)
class Change:
    """A fault that begins (``occurs``) or ends on a chip of a node; times from ``perf_counter``."""

    node: str
    chip: int
    code: str
    occurs: bool
    at: float = 0.0
    device_info_at: float | None = None
    cluster_info_at: float | None = None
    seen: asyncio.Event = field(default_factory=asyncio.Event)

    def is_in(self, views: Mapping[str, ChipsView]) -> bool:
        """Whether the documents show it."""
        view = views.get(self.node)
        return view is not None and (self.code in view.faults.get(self.chip, {})) == self.occurs


class Visibility:
    """Follows device-info and cluster-info as their readers do and stamps what it waits for."""

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
        """Follow what the nodes publish, until cancelled."""
        await self._follow(Selection("kube-system", label=REPORT_LABEL), self._device_info)

    async def follow_cluster_info(self) -> None:
        """Follow what the aggregator publishes, until cancelled."""
        await self._follow(Selection("mindx-dl", label=CLUSTER_LABEL), self._cluster_info)

    async def _follow(self, selection: Selection, read: Callable[[Document, float], None]) -> None:
        async for event in self._store.watch(selection):
            now = time.perf_counter()
            match event:
                case Listed(documents):
                    for document in documents:
                        read(document, now)
                case Changed(document):
                    read(document, now)
                case Interrupted(reason):
                    self.interruptions.append(reason)

    def _device_info(self, document: Document, now: float) -> None:
        node = document.name.removeprefix(DEVICE_INFO_PREFIX)
        self.first_seen.setdefault(node, now)
        views = {node: read_device_info(document.data["DeviceInfoCfg"])}
        for change in self._waiting:
            if change.device_info_at is None and change.is_in(views):
                change.device_info_at = now
        self._forget_seen()

    def _cluster_info(self, document: Document, now: float) -> None:
        if not document.name.startswith(CLUSTER_DEVICE_PREFIX):
            return
        views = read_cluster_info(document.data[document.name])
        self.in_cluster_info.update(views)
        for change in self._waiting:
            if change.cluster_info_at is None and change.is_in(views):
                change.cluster_info_at = now
        self._forget_seen()

    def _forget_seen(self) -> None:
        for change in self._waiting:
            if change.device_info_at is not None and change.cluster_info_at is not None:
                change.seen.set()
        self._waiting = [change for change in self._waiting if not change.seen.is_set()]


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
        """What was measured since this was last asked, in seconds."""
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
