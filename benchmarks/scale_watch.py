"""What readers of the cluster documents see, and what it took to write that."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from contract.names import (
    CLUSTER_DEVICE_PREFIX,
    CLUSTER_LABEL,
    CLUSTER_NAMESPACE,
    STATE_LABEL,
    STATE_NAMESPACE,
    device_info_name,
)
from stores.base import Changed, Deleted, Document, DocumentsListed, Selection
from stores.kubernetes_api import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stores.base import Store

_SELECTION = Selection(namespace=CLUSTER_NAMESPACE, label=CLUSTER_LABEL)
_KEPT = Selection(namespace=STATE_NAMESPACE, has_label=STATE_LABEL)
# What a touch sends, as it cannot be seen from the watch.
_PATCH_BYTES = len(b'{"metadata":{"annotations":{"npu-vigil/touched":"2026-01-01T00:00:00.000Z"}}}')
_UNHEALTHY = '-Unhealthy":"'


class _Entry(msgspec.Struct):
    DeviceList: dict[str, str]


_entries = msgspec.json.Decoder(dict[str, _Entry])


@dataclass
class Counted:
    """Writes since it was made. ``at``: monotonic times of all of them, touches too; ``kept`` are
    those of kept state, which no reader watches.
    """

    at: list[float] = field(default_factory=list)
    data_writes: int = 0
    touches: int = 0
    kept: int = 0
    sent_bytes: int = 0

    @property
    def most_in_a_second(self) -> int:
        """The greatest number of writes in any second."""
        # A window over sorted times: both ends only move forward.
        first, most = 0, 0
        for last, at in enumerate(self.at):
            while at - self.at[first] >= 1.0:
                first += 1
            most = max(most, last - first + 1)
        return most


class Readers:
    """A watch of the cluster documents; every change of them is counted."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.documents: dict[str, Document] = {}
        self.counted = Counted()
        self.listed = asyncio.Event()
        self._waiting: list[tuple[Callable[[Document], bool], asyncio.Future[float]]] = []

    async def run(self) -> None:
        """Watch until cancelled."""
        await asyncio.gather(self._watch(), self._watch_kept())

    async def _watch_kept(self) -> None:
        async for event in self._store.watch(_KEPT):
            match event:
                case Changed(document):
                    self.counted.sent_bytes += len(wire.config_map_body(document, document.version))
                case Deleted():
                    pass
                case _:
                    continue
            self.counted.at.append(time.monotonic())
            self.counted.kept += 1

    async def _watch(self) -> None:
        async for event in self._store.watch(_SELECTION):
            match event:
                case DocumentsListed(documents):
                    self.documents = {document.name: document for document in documents}
                    for document in documents:
                        self._observe(document)
                    self.listed.set()
                case Changed(document):
                    self._count(document)
                    self.documents[document.name] = document
                    self._observe(document)

    def _count(self, document: Document) -> None:
        before = self.documents.get(document.name)
        self.counted.at.append(time.monotonic())
        # The same data with another version is a touch.
        if before is not None and before.data == document.data:
            self.counted.touches += 1
            self.counted.sent_bytes += _PATCH_BYTES
        else:
            self.counted.data_writes += 1
            self.counted.sent_bytes += len(wire.config_map_body(document, document.version))

    def _observe(self, document: Document) -> None:
        now = time.monotonic()
        # A copy: those that are done leave the list in the loop.
        for one in tuple(self._waiting):
            is_it, found = one
            if is_it(document):
                self._waiting.remove(one)
                if not found.done():
                    found.set_result(now)

    def count(self) -> Counted:
        """Count from now on."""
        self.counted = Counted()
        return self.counted

    def shows(self, node: str, unhealthy: str) -> asyncio.Future[float]:
        """Return when (monotonic) the unhealthy chips of a node are these."""
        # Searched as text: to decode 128 KB for each event would delay the time that is measured.
        end = f'"CmName":"{device_info_name(node)}"'

        def is_it(document: Document) -> bool:
            text = document.data.get(document.name, "")
            at = text.find(end)
            if at < 0:
                return False
            # The list stands before the name of its node, in one entry.
            listed = text[text.rfind(_UNHEALTHY, 0, at) + len(_UNHEALTHY) : at]
            return listed.partition('"')[0] == unhealthy

        return self._until(is_it)

    def shows_all(
        self, nodes: Iterable[str], unhealthy: str | None = None
    ) -> asyncio.Future[float]:
        """Return when all of these nodes are there, with these unhealthy chips if that is asked."""
        missing = {device_info_name(node) for node in nodes}

        def is_it(document: Document) -> bool:
            if not document.name.startswith(CLUSTER_DEVICE_PREFIX):
                return False
            text = document.data.get(document.name, "")
            for key, entry in (_entries.decode(text) if text else {}).items():
                listed = next(v for k, v in entry.DeviceList.items() if k.endswith("0-Unhealthy"))
                if unhealthy is None or listed == unhealthy:
                    missing.discard(key)
            return not missing

        found = self._until(is_it)
        # What is there already raises no event any more.
        for document in self.documents.values():
            self._observe(document)
        return found

    def _until(self, is_it: Callable[[Document], bool]) -> asyncio.Future[float]:
        found: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._waiting.append((is_it, found))
        return found

    @property
    def largest(self) -> str:
        """The text of the largest device document."""
        documents = self.documents.items()
        texts = [d.data[name] for name, d in documents if name.startswith(CLUSTER_DEVICE_PREFIX)]
        return max(texts, key=len)

    def doubled(self) -> int:
        """Return how many nodes are in two documents, as it is shown now."""
        seen: list[str] = []
        for document in self.documents.values():
            if document.name.startswith(CLUSTER_DEVICE_PREFIX):
                text = document.data.get(document.name, "")
                seen += _entries.decode(text) if text else {}
        return len(seen) - len(set(seen))
