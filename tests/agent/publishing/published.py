"""Documents for tests of the publisher, and a store that fails as a test sets it.

The documents are ours alone, and no other program may change them.
"""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from agent.publishing.publication import ACKNOWLEDGED
from agent.publishing.publisher import DesiredDocument, DocumentPublisher, absent
from contract.errors import DocumentError, StoreError, StoreUnavailable
from stores.base import Document
from stores.directory import files
from stores.directory.store import DirectoryStore
from tests.parts.deadlines import stand_in_waits, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from stores.kubernetes_api.store import KubernetesStore


SPACE, NAME = "kube-system", "mindx-dl-deviceinfo-n"
LABELS = {"mx-consumer-cim": "true"}
PLACE = "mindx-dl", "mindx-dl-nodeinfo-n"


class PlainDocument:
    """A ``PublishedDocument``; tests override what they are about."""

    def __init__(self, namespace: str, name: str) -> None:
        self.namespace = namespace
        self.name = name
        self.is_other_agent_alive = False

    @property
    def has_rival(self) -> bool:
        return self.is_other_agent_alive

    def desired(self) -> DesiredDocument | None:
        raise NotImplementedError

    def stamp_of(self, document: Document) -> int | None:
        return int(document.data["stamp"])

    def verify(self, document: Document) -> None:
        pass

    def blocks_updates(self, shown: Document) -> bool:
        return False

    async def before_write(self) -> None:
        await asyncio.sleep(0)

    async def before_repair(self) -> None:
        await asyncio.sleep(0)

    def on_first_read(self, existing: Document | None) -> None:
        pass

    def on_foreign_write(self, foreign: Document) -> bool:
        return False

    def on_write_of_owner(self, before: Document | None, shown: Document | None) -> None:
        pass

    def on_acknowledged(self, document: Document | None, revision: int, through: int) -> None:
        pass

    def on_shown(self) -> None:
        pass

    def on_reconnected(self) -> None:
        pass


class TroubledStore(DirectoryStore):
    """A directory store with outages."""

    error: StoreError | None = None
    loses_answers = False
    vanishes = False
    """Deletes every written document before another program can read it."""
    delay_seconds = 0.0
    get_delay_seconds = 0.0

    def __init__(self, url: str, root: Path) -> None:
        super().__init__(url, root)
        self.written: list[Document] = []
        self.deleted = 0
        self.tries = 0
        self.may_write = asyncio.Event()
        self.may_write.set()

    async def get(self, namespace: str, name: str) -> Document | None:
        if self.error is not None:
            raise self.error
        await stand_in_waits(self.get_delay_seconds / 2)
        document = await super().get(namespace, name)
        await stand_in_waits(self.get_delay_seconds / 2)
        return document

    async def put(self, document: Document, *, expected: str | None = None) -> str:
        self.tries += 1
        if self.error is not None:
            raise self.error
        await stand_in_waits(self.delay_seconds)
        await self.may_write.wait()
        version = await super().put(document, expected=expected)
        self.written.append(document)
        if self.vanishes:
            self.vanishes = False
            files.document_path(self._root, SPACE, NAME).unlink()
        if self.loses_answers:
            self.loses_answers = False
            raise StoreUnavailable("connection reset")
        return version

    async def delete(self, namespace: str, name: str, *, expected: str | None = None) -> None:
        self.tries += 1
        if self.error is not None:
            raise self.error
        await super().delete(namespace, name, expected=expected)
        self.deleted += 1
        if self.loses_answers:
            self.loses_answers = False
            raise StoreUnavailable("connection reset")


def wall_ms() -> int:
    return int(time.time() * 1000)


class PublishedContent(PlainDocument):
    """One publisher with its desired document."""

    def __init__(self, root: Path, store: type[TroubledStore] = TroubledStore) -> None:
        super().__init__(SPACE, NAME)
        self.store = store(f"directory:{root}", root)
        self.foreign = DirectoryStore(f"directory:{root}", root)
        self.content: str | None = "healthy"
        """What is wanted: empty for no document, ``None`` for what is there."""
        self.refresh_seconds = 300.0
        self.revision = 1
        self.refuses = ""
        self.first_read: list[Document | None] = []
        self.acknowledged: list[tuple[str, int]] = []
        self.shown = 0
        self.foreign_seen: list[str] = []
        self.before_writes = 0
        self.before_repairs = 0
        self.stranger_stops = False
        self.loses_its_name = False
        self.while_committing: Callable[[], None] = lambda: None
        self.publisher = DocumentPublisher(self.store, self, wall_ms, lambda: None)
        self.record = self.publisher.record

    def on_first_read(self, existing: Document | None) -> None:
        self.first_read.append(existing)

    def on_acknowledged(self, document: Document | None, revision: int, through: int) -> None:
        content = "" if document is None else document.data["content"]
        self.acknowledged.append((content, revision))

    def on_shown(self) -> None:
        self.shown += 1

    async def before_repair(self) -> None:
        self.before_repairs += 1
        await asyncio.sleep(0)
        if self.loses_its_name:
            self.content = None

    def desired(self) -> DesiredDocument | None:
        content = self.content
        if content is None:
            return None
        if not content:
            return absent(self.revision)
        return DesiredDocument(
            self.revision,
            content,
            lambda stamp: Document(SPACE, NAME, {"stamp": str(stamp), "content": content}, LABELS),
            self.refresh_seconds,
        )

    def on_foreign_write(self, foreign: Document) -> bool:
        self.foreign_seen.append(foreign.data["content"])
        return foreign.data["content"] == "an operator's"

    def verify(self, document: Document) -> None:
        if self.refuses and self.refuses in document.data["content"]:
            raise DocumentError(NAME, "content", "makes no sense")

    async def before_write(self) -> None:
        self.before_writes += 1
        self.while_committing()

    def render(self, content: str) -> None:
        self.content = content
        self.revision += 1
        self.publisher.wake(int(time.time() * 1000))

    async def writes_foreign(self, content: str, stamp: int | None = None) -> None:
        data = {"stamp": str(stamp or int(time.time())), "content": content}
        await self.foreign.put(Document(SPACE, NAME, data, LABELS))

    async def stored(self) -> dict[str, str]:
        document = await self.foreign.get(SPACE, NAME)
        return {} if document is None else document.data

    async def noticed(self, count: int) -> None:
        await until(lambda: self.record.foreign.total == count, "foreign writes are noticed")

    async def wrote(self, count: int) -> None:
        await until(lambda: self.record.writes[ACKNOWLEDGED] == count, f"{count} writes", 10)

    async def shows(self, content: str, seconds: float = 5) -> float:
        begin = time.monotonic()

        async def is_stored() -> bool:
            return (await self.stored()).get("content") == content

        await until(is_stored, lambda: f"{content} is stored: {self.record}", seconds, 0.005)
        return time.monotonic() - begin


@asynccontextmanager
async def running(place: Path | PublishedContent) -> AsyncIterator[PublishedContent]:
    bench = place if isinstance(place, PublishedContent) else PublishedContent(place)
    task = asyncio.create_task(bench.publisher.run())
    try:
        yield bench
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class ContentOnApiServer(PlainDocument):
    """A publisher on a real API server."""

    def __init__(self, store: KubernetesStore) -> None:
        super().__init__(*PLACE)
        self.content = "faulty"
        self.revision = 1
        self.acknowledged: list[Document | None] = []
        self.publisher = DocumentPublisher(store, self, wall_ms, lambda: None)

    def on_acknowledged(self, document: Document | None, revision: int, through: int) -> None:
        self.acknowledged.append(document)

    def desired(self) -> DesiredDocument:
        if not self.content:
            return absent(self.revision)
        return DesiredDocument(self.revision, self.content, self.stamped, math.inf)

    def stamped(self, stamp: int) -> Document:
        return Document(*PLACE, {"stamp": str(stamp), "content": self.content}, LABELS)

    def render(self, content: str) -> None:
        self.content = content
        self.revision += 1
        self.publisher.wake(int(time.time() * 1000))
