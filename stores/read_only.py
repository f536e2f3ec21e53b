"""A store that can be read and cannot be written, whatever is done with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from stores.base import Beat, Document, Store


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
        self.url = store.url
        self.absence_is_deletion = store.absence_is_deletion
        self.refusals = store.refusals
        self.get = store.get
        self.list = store.list
        self.watch = store.watch
        self.usage = store.usage
        self.beats = store.beats
        self.writer = store.writer
        self.other_writer = store.other_writer
        self.close = store.close

    @property
    def missed_changes(self) -> int | None:
        """See ``Store``."""
        return self._store.missed_changes

    @property
    def largest_document(self) -> int | None:
        """See ``Store``."""
        return self._store.largest_document

    async def put(self, document: Document, *, expected: str | None = None) -> NoReturn:
        """Refuse the write."""
        del expected
        _refuse(f"put {document.namespace}/{document.name}")

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


def _refuse(what: str) -> NoReturn:
    raise AssertionError(f"a store that is only to be read was asked to {what}")
