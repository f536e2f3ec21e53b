"""Watches nodes' documents in a store; logs when a refusal of one begins and ends."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from contract.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aggregator.inputs.node_documents import DocumentCache, DocumentWatch, Rejected
    from service.stalls import Stalls
    from stores.base import Store, WatchEvent

_log = logging.getLogger(__name__)


class DocumentLog(Protocol):
    """The log of documents that are refused."""

    def refuse(self, node: str, name: str, reason: str) -> None:
        """Log that a document of a node is refused."""

    def accept(self, node: str, name: str) -> None:
        """Log that it is not any more."""


async def read_documents(
    watch: DocumentWatch,
    store: Store,
    observe: Callable[[DocumentWatch, WatchEvent], None],
    stalls: Stalls,
    log: DocumentLog,
) -> NoReturn:
    """Pass each event of ``watch`` in ``store`` to ``observe``, until cancelled."""
    async for event in store.watch(watch.selection):
        with stalls.busy(f"read {store.url}"):
            interrupted = watch.interrupted
            refused = [dict(cache.rejected) for cache in _caches(watch)]
            observe(watch, event)
            _log_state(watch, store.url, interrupted, refused, log)
    raise StoreError(f"the watch of {store.url} ended")


def _caches(watch: DocumentWatch) -> tuple[DocumentCache[Any], ...]:
    return (*watch.caches, watch.own_key)


def _log_state(
    watch: DocumentWatch,
    url: str,
    interrupted: str | None,
    refused: list[dict[str, Rejected]],
    log: DocumentLog,
) -> None:
    """Log what differs from ``interrupted`` and ``refused``, the state before the event."""
    if watch.interrupted is not None and interrupted is None:
        _log.warning("%s cannot be read: %s", url, watch.interrupted)
    elif watch.interrupted is None and interrupted is not None:
        _log.info("%s answers again", url)
    for cache, before in zip(_caches(watch), refused, strict=True):
        name = cache.kind.name
        for node in cache.rejected.keys() - before.keys():
            log.refuse(node, name, cache.rejected[node].reason)
        for node in before.keys() - cache.rejected.keys():
            log.accept(node, name)
