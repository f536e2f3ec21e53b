"""A store in memory for virtual time: an API server that can be away, or take calls and be silent.

Real stores are tested for themselves; a real one would make virtual time stand still.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace

from contract.errors import StoreConflict, StoreUnavailable
from stores.base import Changed, Deleted, Document, Interrupted, Listed, Selection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stores.base import WatchEvent


class RecordedCluster:
    """The part of a ``Store`` that a publisher needs, for one document."""

    url = "recording"

    def __init__(self) -> None:
        self.document: Document | None = None
        self.writes = 0
        self._version = 0
        self._is_up = True
        self._answers = asyncio.Event()
        self._answers.set()
        self._watches: list[asyncio.Queue[WatchEvent]] = []

    def change(self, document: Document | None) -> None:
        """Put a document there, or take it away, whoever does it."""
        gone, self.document = self.document, document
        if document is not None:
            self._version += 1
            self.document = replace(document, version=str(self._version))
            self._tell(Changed(self.document))
        elif gone is not None:
            self._tell(Deleted(gone.namespace, gone.name))

    def do(self, action: str) -> None:
        """What happens to the API server."""
        match action:
            case "stop":
                self._is_up = False
                self._tell(Interrupted("connection refused"))
            case "start (answering)":
                self._is_up = True
                self._tell(self._listed())
            case "pause":
                self._answers.clear()
            case "resume":
                self._answers.set()
            case other:
                raise AssertionError(f"the recorded API server cannot {other}")

    async def get(self, namespace: str, name: str) -> Document | None:
        await self._request()
        return self.document

    async def put(self, document: Document, *, expected: str | None = None) -> str:
        await self._request()
        if expected != ("" if self.document is None else self.document.version):
            raise StoreConflict("somebody else was faster")
        self.writes += 1
        self.change(document)
        return str(self._version)

    async def delete(self, namespace: str, name: str) -> None:
        await self._request()
        self.writes += 1
        self.change(None)

    async def watch(self, selection: Selection) -> AsyncIterator[WatchEvent]:
        events: asyncio.Queue[WatchEvent] = asyncio.Queue()
        self._watches.append(events)
        yield self._listed() if self._is_up else Interrupted("connection refused")
        while True:
            yield await events.get()

    async def _request(self) -> None:
        await self._answers.wait()
        await asyncio.sleep(2**-8)
        if not self._is_up:
            raise StoreUnavailable("connection refused")

    def _listed(self) -> Listed:
        return Listed(() if self.document is None else (self.document,))

    def _tell(self, event: WatchEvent) -> None:
        for events in self._watches:
            events.put_nowait(event)
