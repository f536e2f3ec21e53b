"""A store that can be read and cannot be written, whatever is done with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from typing_extensions import override

from stores.base import Store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from stores.base import (
        Beat,
        Document,
        LastWriter,
        PagedWatchEvent,
        Selection,
        UsageEvent,
        WatchEvent,
    )


class ReadOnly(Store):
    """``store`` without its writing half.

    To call a writing method is a mistake of the program and raises ``AssertionError``. There are
    no ``objects``, ``cluster``, ``device_taints`` and ``channel``: what could be done with them
    would be seen by others.
    """

    objects = None
    cluster = None
    device_taints = None
    channel = None
    leader_lease = None
    leader_lock = None
    mark = None

    def __init__(self, store: Store) -> None:
        self._store = store
        self.url = store.url
        self.absence_is_deletion = store.absence_is_deletion
        self.refusals = store.refusals

    @property
    @override
    def certificate_ends_ms(self) -> Mapping[str, int]:
        return self._store.certificate_ends_ms

    @property
    @override
    def missed_changes(self) -> int | None:
        return self._store.missed_changes

    @property
    @override
    def largest_document(self) -> int | None:
        return self._store.largest_document

    @override
    async def get(self, namespace: str, name: str) -> Document | None:
        return await self._store.get(namespace, name)

    @override
    async def list(self, selection: Selection) -> tuple[Document, ...]:
        return await self._store.list(selection)

    @override
    def watch(self, selection: Selection) -> AsyncIterator[WatchEvent]:
        return self._store.watch(selection)

    @override
    def watch_by_page(self, selection: Selection) -> AsyncIterator[PagedWatchEvent]:
        return self._store.watch_by_page(selection)

    @override
    def usage(self, node: str) -> AsyncIterator[UsageEvent] | None:
        return self._store.usage(node)

    @override
    async def beats(self, node: str | None = None) -> tuple[Beat, ...]:
        return await self._store.beats(node)

    @override
    async def writer(self, namespace: str, name: str) -> LastWriter | None:
        return await self._store.writer(namespace, name)

    @override
    async def other_writer(self, namespace: str, name: str) -> LastWriter | None:
        return await self._store.other_writer(namespace, name)

    @override
    async def close(self) -> None:
        await self._store.close()

    async def put(self, document: Document, *, expected: str | None = None) -> NoReturn:
        """Refuse the write."""
        del expected
        _refuse(f"put {document.namespace}/{document.name}")

    # One method for both: ``NoReturn`` fits the types of either.
    put_shown = put

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


def _refuse(action: str) -> NoReturn:
    raise AssertionError(f"a store that is only to be read was asked to {action}")
