"""What operators and agents say about nodes that a store lacks: read, and removed when done.

Follows the records of ``vigil forget NODE`` in one store, and reads the heartbeat of a node whose
document was deleted: its agent may have done it.
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aggregator.absence.rules import Absence
    from service.clock import Clock
    from stores.base import Store

_log = logging.getLogger(__name__)

RECORDS = Selection(namespace=FORGET_NAMESPACE, has_label=FORGET_LABEL[0])
_FEW = 50
"""Heartbeats of more nodes are waited for."""
_TICK_SECONDS = 1.0
_ASK_AGAIN_SECONDS = 30.0


class ForgetRequests:
    """Does so for the store of ``absence``.

    ``is_there``: whether anything of a node is published. ``may_write``: whether we lead.
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
        self._asked: set[str] = set()
        self._asks = asyncio.Event()
        self._came = asyncio.Event()

    async def run(self) -> NoReturn:
        """Go on until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            url = self._store.url
            tasks.create_task(self._follow(), name=f"follow records about nodes in {url}")
            tasks.create_task(self._ask(), name=f"read heartbeats of deleted nodes in {url}")
            tasks.create_task(self._remove(), name=f"remove records about nodes in {url}")
        raise AssertionError("the tasks never end")

    def look(self) -> None:
        """See whose heartbeat is to be read now."""
        asked = self._absence.take_asked(self._clock())
        if asked and len(asked) <= _FEW:
            self._asked |= asked
            self._asks.set()

    async def _ask(self) -> NoReturn:
        while True:
            await self._asks.wait()
            self._asks.clear()
            asked, self._asked = self._asked, set()
            for node in sorted(asked):
                try:
                    self._absence.observe_one(node, await self._store.beats(node))
                except StoreError:
                    continue  # the next list has it
            self._changed()

    async def _follow(self) -> NoReturn:
        while True:
            try:
                async for event in self._store.watch(RECORDS):
                    match event:
                        case DocumentsListed(documents):
                            self._take(documents)
                        case Changed(document):
                            self._take((document,))
                raise StoreError(f"the watch of {self._store.url} ended")
            except StoreRefused as error:
                _log.warning("records of vigil forget cannot be read: %s", error)
            await asyncio.sleep(_ASK_AGAIN_SECONDS)

    def _take(self, documents: Iterable[Document]) -> None:
        for document in documents:
            try:
                record = decode_forget_record(document.name, document.data)
            except DocumentError as error:
                _log.warning(
                    "%s is left out, it is no record of vigil forget: %s", document.name, error
                )
                continue
            if self._absence.records.get(record.node) != record:
                _log.info("node %s is forgotten, by %s", record.node, record.by)
                self._absence.observe_forgotten(record)
        self._came.set()
        self._changed()

    async def _remove(self) -> NoReturn:
        """Delete each record a touch period after nothing is left to do for it."""
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
                elif now_ms - done_at_ms.setdefault(node, now_ms) >= self._touch_period_ms:
                    await self._delete(node)
            await asyncio.sleep(_TICK_SECONDS)

    def _is_pending(self, node: str) -> bool:
        """Whether the node is on its way out, or waits for the store to be the one that it was."""
        is_ending = self._is_there(node) and not self._absence.knows(node)
        return is_ending or self._absence.is_held

    async def _delete(self, node: str) -> None:
        if self._may_write():
            try:
                await self._store.delete(FORGET_NAMESPACE, forget_record_name(node))
            except StoreError as error:
                _log.debug("the record about %s stays: %s", node, error)
                return
        self._absence.records.pop(node, None)
