"""Follows a store's watch and keeps what it shows."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, TypeVar

from stores.base import (
    Changed,
    Deleted,
    Document,
    DocumentsListed,
    ListedPage,
    PagedWatchEvent,
    Selection,
)
from stores.interruption import Interrupted
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from stores.base import Store

_Event = TypeVar("_Event", DocumentsListed, ListedPage, Changed, Deleted, Interrupted)


class Watching:
    """What a watch has shown: every event, and the documents as they are now."""

    def __init__(self) -> None:
        self.events: list[PagedWatchEvent] = []
        self.documents: dict[tuple[str, str], Document] = {}
        self._more = asyncio.Condition()

    async def take(self, event: PagedWatchEvent) -> None:
        """Take in one event."""
        async with self._more:
            self.events.append(event)
            match event:
                case DocumentsListed(documents):
                    self.documents = {(one.namespace, one.name): one for one in documents}
                case Changed(document):
                    self.documents[document.namespace, document.name] = document
                case Deleted(namespace, name):
                    self.documents.pop((namespace, name), None)
            self._more.notify_all()

    async def until(self, happened: Callable[[Watching], bool], seconds: float = 20.0) -> None:
        """Wait until ``happened``."""
        try:
            async with asyncio.timeout(patience(seconds)), self._more:
                await self._more.wait_for(lambda: happened(self))
        except TimeoutError:
            raise AssertionError(f"did not happen; seen: {self.events[-10:]}") from None

    def of(self, kind: type[_Event]) -> list[_Event]:
        """Return the events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]


@contextlib.asynccontextmanager
async def watching(
    store: Store, selection: Selection | None = None, *, by_page: bool = False
) -> AsyncIterator[Watching]:
    """Watch ``store`` for the length of the block; begins with the first ``DocumentsListed``."""
    watch = store.watch_by_page if by_page else store.watch
    seen = Watching()

    async def follow() -> None:
        async for event in watch(selection or Selection()):
            await seen.take(event)

    task = asyncio.create_task(follow(), name="watching")
    try:
        await seen.until(lambda watching: bool(watching.of(DocumentsListed)) or task.done())
        yield seen
        if task.done():
            await task
            raise AssertionError("the watch ended by itself")
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
