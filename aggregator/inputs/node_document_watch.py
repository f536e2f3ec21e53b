"""Watches nodes' documents in a store; logs when a refusal of one begins and ends."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NoReturn, Protocol

from contract.errors import StoreError
from service.log.ongoing_failure import OngoingFailure

if TYPE_CHECKING:
    from collections.abc import Callable

    from aggregator.inputs.node_documents import DocumentWatch
    from service.watchdog import Watchdog
    from stores.base import PagedWatchEvent, Store

_log = logging.getLogger(__name__)


class DocumentLog(Protocol):
    """The log of documents that are refused."""

    def refuse(self, node: str, name: str, reason: str) -> None:
        """Log that a document of a node is refused."""

    def accept(self, node: str, name: str) -> None:
        """Log that a document of a node is accepted again."""


async def read_documents(
    watch: DocumentWatch,
    store: Store,
    observe: Callable[[DocumentWatch, PagedWatchEvent], None],
    stalls: Watchdog,
    log: DocumentLog,
) -> NoReturn:
    """Pass each event of ``watch`` in ``store`` to ``observe``, until cancelled."""
    caches = (*watch.caches, watch.own_key)
    trouble = OngoingFailure(_log, "%s cannot be read: %s", "%s answers again", store.url)
    # By page: the texts of all documents at once would be the peak of a start's memory.
    async for event in store.watch_by_page(watch.selection):
        with stalls.busy(f"read {store.url}"):
            # Copies, since applying the event changes them; the difference is logged once.
            refused = [dict(cache.rejected) for cache in caches]
            observe(watch, event)
            if watch.interrupted is None:
                trouble.end()
            else:
                trouble.record_failure(watch.interrupted)
            for cache, before in zip(caches, refused, strict=True):
                name = cache.kind.name
                for node in cache.rejected.keys() - before.keys():
                    log.refuse(node, name, cache.rejected[node].reason)
                for node in before.keys() - cache.rejected.keys():
                    log.accept(node, name)
    # A watch goes on for ever, also through interruptions, so its end is an error of the store.
    raise StoreError(f"the watch of {store.url} ended")
