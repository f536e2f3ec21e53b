"""Reads which nodes operators and agents have ended, of those that a store lacks.

Watches the records of ``vigil forget NODE`` in one store, and removes them when done. Reads the
heartbeat of a node whose document was deleted, because its agent may have deleted it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NoReturn

from contract.documents.forget_record import (
    FORGET_LABEL,
    FORGET_NAMESPACE,
    decode_forget_record,
    forget_record_name,
)
from contract.errors import DocumentError, StoreError, StoreRefused
from stores.base import Changed, Document, DocumentsListed, Selection
from stores.interruption import RETRY_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aggregator.absence.ended_documents import Absence
    from service.clock import Clock
    from stores.base import Store

_log = logging.getLogger(__name__)

RECORDS = Selection(namespace=FORGET_NAMESPACE, has_label=FORGET_LABEL[0])
# Deletions of that many nodes are rather a broken store than so many alarms that ended.
_MAX_SINGLE_READS = 50
"""Most heartbeats that are read singly; heartbeats of more nodes come with the next listing."""
_TICK_SECONDS = 1.0


class ForgetRequests:
    """Applies forget records and heartbeats to ``absence`` of one store.

    ``is_there``: whether anything of a node is published. ``may_write``: whether this replica
    leads.
    """

    def __init__(
        self,
        store: Store,
        absence: Absence,
        clock: Clock,
        touch_period_seconds: float,
        *,
        is_there: Callable[[str], bool],
        may_write: Callable[[], bool],
        changed: Callable[[], None],
    ) -> None:
        self._store = store
        self._absence = absence
        self._clock = clock
        self._touch_period_ms = int(touch_period_seconds * 1000)
        self._is_there = is_there
        self._may_write = may_write
        self._changed = changed
        self._requested: set[str] = set()
        self._is_requested = asyncio.Event()
        self._came = asyncio.Event()

    async def run(self) -> NoReturn:
        """Watch, read and remove until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            url = self._store.url
            tasks.create_task(self._follow(), name=f"follow records about nodes in {url}")
            tasks.create_task(
                self._read_heartbeats(), name=f"read heartbeats of deleted nodes in {url}"
            )
            tasks.create_task(self._remove(), name=f"remove records about nodes in {url}")
        raise AssertionError("the tasks never end")

    def request_heartbeats(self) -> None:
        """Request the heartbeats of nodes whose documents were deleted, unless there
        are too many.
        """
        requested = self._absence.pop_heartbeats_to_read(self._clock())
        if requested and len(requested) <= _MAX_SINGLE_READS:
            self._requested |= requested
            self._is_requested.set()

    async def _read_heartbeats(self) -> NoReturn:
        while True:
            await self._is_requested.wait()
            self._is_requested.clear()
            requested, self._requested = self._requested, set()
            for node in sorted(requested):
                try:
                    self._absence.observe_one(node, await self._store.beats(node))
                except StoreError:
                    continue  # the next list has it
            self._changed()

    async def _follow(self) -> NoReturn:
        while True:
            try:
                async for event in self._store.watch(RECORDS):
                    # A deleted record has had its effect; removing it takes nothing back.
                    match event:
                        case DocumentsListed(documents):
                            self._observe_records(documents)
                        case Changed(document):
                            self._observe_records((document,))
                raise StoreError(f"the watch of {self._store.url} ended")
            except StoreRefused as error:
                _log.warning("records of vigil forget cannot be read: %s", error)
            await asyncio.sleep(RETRY_SECONDS)

    def _observe_records(self, documents: Iterable[Document]) -> None:
        for document in documents:
            try:
                record = decode_forget_record(document.name, document.data)
            except DocumentError as error:
                _log.warning(
                    "%s is ignored, it is not a valid record of vigil forget: %s",
                    document.name,
                    error,
                )
                continue
            if self._absence.records.get(record.node) != record:
                _log.info("node %s is forgotten, by %s", record.node, record.by)
                self._absence.observe_forgotten(record)
        self._came.set()
        self._changed()

    async def _remove(self) -> NoReturn:
        """Delete each record one touch period after it has had its whole effect."""
        done_at_ms: dict[str, int] = {}
        while True:
            records = self._absence.records
            if not records:
                done_at_ms.clear()
                self._came.clear()
                await self._came.wait()
            now_ms = self._clock().steady_ms
            for node in [*records]:
                if self._is_pending(node):
                    done_at_ms.pop(node, None)
                # A second aggregator may read the record later, so it stays for a touch period
                # (decision 21).
                elif now_ms - done_at_ms.setdefault(node, now_ms) >= self._touch_period_ms:
                    await self._delete(node)
            await asyncio.sleep(_TICK_SECONDS)

    def _is_pending(self, node: str) -> bool:
        """Return whether the node is still published, or its store is held (``Absence.hold``)."""
        is_ending = self._is_there(node) and not self._absence.knows(node)
        return is_ending or self._absence.is_held

    async def _delete(self, node: str) -> None:
        # Only the leader deletes; a follower forgets its copy.
        if self._may_write():
            try:
                await self._store.delete(FORGET_NAMESPACE, forget_record_name(node))
            except StoreError as error:
                _log.debug("the record about node %s could not be deleted: %s", node, error)
                return
        self._absence.records.pop(node, None)
