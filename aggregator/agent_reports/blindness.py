"""What agents report of sources that give them no answer, by node and chip.

It comes with the agents' own data key (``contract/documents/vigil_key.py``) in a document of the
node. An agent of an earlier release has neither that key nor ``blind`` in its heartbeat: then
nothing is known, which is not the same as that nothing is blind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator.inputs.node_documents import newest
from contract.pages.blind import BlindStatus
from contract.pages.changes import BlindChange

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aggregator.inputs.node_documents import DocumentCache
    from aggregator.merge.pipeline import Pipeline
    from contract.documents.vigil_key import BlindSource, VigilRecord

HEARTBEAT = "heartbeat"
"""The source of what only the heartbeat of an agent shows."""
_ONLY_THE_HEARTBEAT = "the agent's heartbeat shows that no chip gives it an answer"


def record_of(pipeline: Pipeline, node: str) -> VigilRecord | None:
    """Return the record of the node's own key; ``None`` where there is none that can be read.

    A node may have it in device-info and in node-info, in more than one store. What changed last by
    the node's clock counts; of equal ones that in node-info, and then the one received last.
    """
    records = [
        (report.record.changed_at_ms, place, report.received_at_ms, report.record)
        for place, caches in enumerate(_caches(pipeline))
        for cache in caches
        if (report := cache.reports.get(node)) is not None
    ]
    return max(records, key=lambda record: record[:3])[3] if records else None


def _caches(pipeline: Pipeline) -> Iterator[tuple[DocumentCache[VigilRecord], ...]]:
    yield tuple(source.devices.own_key for source in pipeline.sources)
    yield tuple(source.nodes.own_key for source in pipeline.sources)


def _is_refused(pipeline: Pipeline, node: str) -> bool:
    return any(node in cache.rejected for caches in _caches(pipeline) for cache in caches)


def chip_name(pipeline: Pipeline, node: str, chip: int | None) -> str | None:
    """Return the device name of the chip with this physical id, as documents have it."""
    if chip is None:
        return None
    report = newest(pipeline.device.caches, node)
    entry = pipeline.device.entries.get(node)
    record = report.record if report is not None else None if entry is None else entry.record
    return f"chip {chip}" if record is None else f"{record.chip_type}-{chip}"


def blind_statuses(
    pipeline: Pipeline, node: str, heartbeat_blind: bool | None
) -> tuple[BlindStatus, ...] | None:
    """Return the blind sources of a node; ``None`` where that is not known.

    ``heartbeat_blind`` is ``blind`` of the heartbeat, ``None`` where it has none.
    """
    record = record_of(pipeline, node)
    if (
        record is None
        and (heartbeat_blind is None or _is_refused(pipeline, node))
        and not heartbeat_blind
    ):
        return None
    statuses = tuple(
        BlindStatus(
            source.source, source.since_ms, source.why, chip_name(pipeline, node, source.chip)
        )
        for source in (() if record is None else record.blind)
    )
    if heartbeat_blind and not statuses:
        return (BlindStatus(HEARTBEAT, None, _ONLY_THE_HEARTBEAT),)
    return statuses


class BlindChanges:
    """Finds which sources became blind or answer again. Keeps the last blind sources of
    each node.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._known: dict[str, dict[tuple[str, int | None], BlindSource]] = {}

    def pop_changes(self, now_ms: int) -> Iterable[BlindChange]:
        """Return what changed since the last call; ``now_ms`` is wall time."""
        nodes: set[str] = set()
        for source in self._pipeline.sources:
            for watch in source.watches:
                nodes |= watch.own_key_changed
                watch.own_key_changed.clear()
        return [change for node in sorted(nodes) for change in self._of(node, now_ms)]

    def _of(self, node: str, now_ms: int) -> Iterator[BlindChange]:
        record = record_of(self._pipeline, node)
        before = self._known.pop(node, {})
        now = {
            (source.source, source.chip): source
            for source in (() if record is None else record.blind)
        }
        if now:
            self._known[node] = now
        for key in before | now:
            source = now.get(key, before.get(key))
            assert source is not None
            if before.get(key) == now.get(key):
                continue
            chip = chip_name(self._pipeline, node, source.chip)
            is_over = key not in now
            yield BlindChange(
                node, now_ms, source.source, source.since_ms, source.why, chip, is_over
            )
