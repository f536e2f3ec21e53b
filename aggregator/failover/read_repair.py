"""Reads nodes' documents again where another leader published something else before this one.

That leader may have read more: this replica's watch may be behind or interrupted. Until a node's
documents were read by name, its published entry stays. A store that gives no answer is asked again;
where another one has the node, it is not waited for.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING, NoReturn

from aggregator.inputs.read_by_name import read_by_name
from contract.errors import StoreError
from contract.plural import plural
from pacing.backoff import Backoff
from service.log.ongoing_failure import OngoingFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aggregator.inputs.node_documents import DocumentSource
    from aggregator.merge.pipeline import Pipeline
    from service.clock import Clock
    from stores.base import Document, Store

_log = logging.getLogger(__name__)

# A takeover may concern all nodes. One list is cheaper for the API server than that many reads.
_MAX_SINGLE_READS = 200
"""Most documents that are read one by one; those of more nodes are listed."""


class ReadRepair:
    """Reads from ``stores`` what is unconfirmed in the pipeline; calls ``changed`` after each
    answer.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        stores: Sequence[Store],
        clock: Clock,
        changed: Callable[[], None],
    ) -> None:
        self._pipeline = pipeline
        self._stores = stores
        self._clock = clock
        self._changed = changed
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Start reading if anything is unconfirmed."""
        if self._pipeline.unconfirmed:
            self._wake.set()

    async def run(self) -> NoReturn:
        """Read whenever anything is unconfirmed, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            # A new one for each repair: the trouble of an earlier one is not a reason to wait.
            backoff = Backoff()
            trouble = OngoingFailure(
                _log,
                "the published entries of %s stay, their documents cannot be read: %s",
                "",
                plural(len(self._pipeline.unconfirmed), "node"),
            )
            # Asked again each time: a later report of a node may have confirmed it meanwhile.
            while nodes := self._pipeline.unconfirmed:
                if problem := await self._read(nodes):
                    trouble.record_failure(problem)
                    await asyncio.sleep(backoff.next_seconds())

    async def _read(self, nodes: frozenset[str]) -> str:
        """Read the documents of these nodes; return why some are still unconfirmed, empty
        for none.
        """
        sources = self._pipeline.sources
        with ExitStack() as until_read:
            # An event of a watch in the meantime may be older or newer than what is read.
            listening = {
                watch: until_read.enter_context(watch.listening())
                for source in sources
                for watch in source.watches
            }
            # All stores at once: one that is slow must not delay the answer of another one.
            answers = await asyncio.gather(
                *(
                    _read_store(source, store, nodes)
                    for source, store in zip(sources, self._stores, strict=True)
                )
            )
        read: set[str] = set()
        moved: set[str] = set()
        problem = ""
        for source, answer in zip(sources, answers, strict=True):
            if isinstance(answer, StoreError):
                problem = str(answer)
                continue
            for watch, documents in zip(source.watches, answer, strict=True):
                changed = listening[watch]
                # The watch has shown something newer during the read: that counts, not the answer.
                moved |= changed & nodes
                still = {
                    node: document for node, document in documents.items() if node not in changed
                }
                self._pipeline.read(watch, still, self._clock())
                read |= {node for node, document in still.items() if document is not None}
        # Where a store gave no answer, a node that no other store has may be in that one.
        confirmed = (read if problem else nodes) - moved
        self._pipeline.confirm(confirmed)
        self._changed()
        return problem if nodes - confirmed - moved else ""


async def _read_store(
    source: DocumentSource, store: Store, nodes: frozenset[str]
) -> list[dict[str, Document | None]] | StoreError:
    """Return the documents of these nodes in one store, by watch."""
    try:
        return [
            await read_by_name(store, watch.selection, watch.names_of(nodes), _MAX_SINGLE_READS)
            for watch in source.watches
        ]
    except StoreError as error:
        return error
