"""Documents that are older than two of their periods while their node beats.

An agent writes each document again in each period, changed or not. One that is older did not come,
as behind a bridge that drops the retain flag: its content may be wrong, and is the last that is
known. Its time and that of the heartbeat are by one clock, the node's.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, NoReturn

from aggregator.inputs.node_documents import newest
from contract.documents import device_info, node_info
from contract.pages.aggregator_status import StaleDocument
from service.log.shortened import shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aggregator.merge.entry_table import EntryTable
    from aggregator.merge.pipeline import Pipeline

_log = logging.getLogger(__name__)

DEVICE_INFO, NODE_INFO = "device-info", "node-info"
# One refresh that fails is not a sign yet: it is repeated within the next period.
_PERIODS = 2
# Fine enough for periods of minutes (REFRESH_SECONDS), and it costs a pass over all nodes.
_POLL_SECONDS = 60.0
# A bridge that drops the retain flag concerns every node; ten names show which bridge it is.
_MAX_SHOWN = 10


def stale_documents(pipeline: Pipeline, node: str, beaten_at_ms: int) -> tuple[StaleDocument, ...]:
    """Return the stale documents of a node whose heartbeat has this time (by its own clock).

    Documents of a generation without a time in it are not judged.
    """
    stale = []
    tables: tuple[tuple[str, EntryTable[Any], float], ...] = (
        (DEVICE_INFO, pipeline.device, device_info.REFRESH_SECONDS),
        (NODE_INFO, pipeline.node, node_info.REFRESH_SECONDS),
    )
    for document, table, period_seconds in tables:
        report = newest(table.caches, node)
        written_at_ms = 0 if report is None else table.kind.age(report.record) * table.kind.unit_ms
        age_seconds = (beaten_at_ms - written_at_ms) / 1000
        # 0 is the age of a generation without a time in its document.
        if written_at_ms and age_seconds > _PERIODS * period_seconds:
            stale.append(StaleDocument(document, age_seconds))
    return tuple(stale)


class StaleDocuments:
    """Logs stale documents. ``alive`` yields the nodes that beat, with the time of their beat."""

    def __init__(self, pipeline: Pipeline, alive: Callable[[], Iterable[tuple[str, int]]]) -> None:
        self._pipeline = pipeline
        self._alive = alive
        self._known: frozenset[str] = frozenset()

    async def run(self) -> NoReturn:
        """Check until cancelled."""
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            self.check()

    def check(self) -> None:
        """Check once."""
        stale = {
            f"{node} ({late.document}, {late.age_seconds:.0f} s)": f"{late.document} of {node}"
            for node, beaten_at_ms in self._alive()
            for late in stale_documents(self._pipeline, node, beaten_at_ms)
        }
        now = frozenset(stale.values())
        # Logged when the first begins and when the last ends, not for each node.
        if now and not self._known:
            _log.warning(
                "documents are older than two of their periods while their nodes beat, and count "
                "as they were last known: %s. Does a bridge or a broker drop the retain flag?",
                shortened(sorted(stale), _MAX_SHOWN),
            )
        elif self._known and not now:
            _log.info("no document is older than two of its periods any more")
        self._known = now
