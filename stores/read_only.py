"""A store that can be read and cannot be written, whatever is done with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stores.base import Beat, Document, LastWriter, Selection, Store, UsageEvent, WatchEvent
    from stores.refusals import Refusals


class ReadOnly:
    """``store`` without its writing half.

    To call a writing method is a mistake of the program and raises ``AssertionError``. There are
    no ``objects``, ``cluster`` and ``channel``: what could be done with them would be seen by
    others.
    """

    objects = None
    cluster = None
    channel = None
    leader_lease = None
    leader_lock = None
    mark = None

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def url(self) -> str:
        """The store's address as the operator gave it."""
        return self._store.url

    @property
    def absence_is_deletion(self) -> bool:
        """See ``Store``."""
        return self._store.absence_is_deletion

    @property
    def missed_changes(self) -> int | None:
        """See ``Store``."""
        return self._store.missed_changes

    @property
    def largest_document(self) -> int | None:
        """See ``Store``."""
        return self._store.largest_document

    @property
    def refusals(self) -> Refusals:
        """What is refused of its heartbeats and messages."""
        return self._store.refusals

    async def get(self, namespace: str, name: str) -> Document | None:
        """Read one document; ``None`` when there is none."""
        return await self._store.get(namespace, name)

    async def list(self, selection: Selection) -> tuple[Document, ...]:
        """Read all selected documents."""
        return await self._store.list(selection)

    def watch(self, selection: Selection) -> AsyncIterator[WatchEvent]:
        """Follow the selected documents for ever."""
        return self._store.watch(selection)

    def usage(self, node: str) -> AsyncIterator[UsageEvent] | None:
        """Follow which chips the pods of a node use, for ever."""
        return self._store.usage(node)

    async def beats(self, node: str | None = None) -> tuple[Beat, ...]:
        """Return the heartbeats of all nodes, or of one."""
        return await self._store.beats(node)

    async def writer(self, namespace: str, name: str) -> LastWriter | None:
        """Return the last writer of a document's data."""
        return await self._store.writer(namespace, name)

    async def other_writer(self, namespace: str, name: str) -> LastWriter | None:
        """Return the last other program or person that changed a document."""
        return await self._store.other_writer(namespace, name)

    async def close(self) -> None:
        """Give connections back."""
        await self._store.close()

    async def put(self, document: Document, *, expected: str | None = None) -> str:
        """Refuse the write."""
        del expected
        _refuse(f"put {document.namespace}/{document.name}")

    async def put_shown(self, document: Document, *, expected: str | None = None) -> Document:
        """Refuse the write."""
        del expected
        _refuse(f"put {document.namespace}/{document.name}")

    async def delete(self, namespace: str, name: str, *, expected: str | None = None) -> None:
        """Refuse the write."""
        del expected
        _refuse(f"delete {namespace}/{name}")

    async def beat(self, beat: Beat) -> None:
        """Refuse the write."""
        _refuse(f"beat for {beat.node}")

    async def dry_run_beat(self, node: str) -> None:
        """Refuse the dry run, although nothing would be stored: it is sent as a write."""
        _refuse(f"make a dry run of a beat for {node}")

    async def forget_beat(self, node: str) -> None:
        """Refuse the write."""
        _refuse(f"forget the beat of {node}")

    async def touch(self, namespace: str, name: str, *, expected: str | None = None) -> None:
        """Refuse the write."""
        del expected
        _refuse(f"touch {namespace}/{name}")


def _refuse(what: str) -> NoReturn:
    raise AssertionError(f"a store that is only to be read was asked to {what}")
