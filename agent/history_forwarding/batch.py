"""Makes batches for the aggregator from rows of the journal. Pure."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from agent.journal.rows import changes_of
from contract.documents.episodes import EpisodeEvent
from contract.errors import JournalError
from stores.base import HistoryBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.journal.rows import JournalRow
    from agent.journal.unacknowledged import UnacknowledgedRows
    from agent.policy.state import Change

log = logging.getLogger("agent.episodes")

MAX_ROW_BYTES = 2 << 20
"""Bytes: a larger row fits into no batch (``stores.mqtt.channel``) and is reported as
lost.
"""

_BECAUSE_LENGTH = 500


def batch_of(node: str, rows: UnacknowledgedRows, after: int) -> HistoryBatch | None:
    """Return the next batch behind ``after``; ``None`` where there is nothing to send."""
    lost = rows.lost
    events: list[EpisodeEvent] = []
    for row in rows.rows:
        try:
            events.extend(_events(row))
        except JournalError as error:
            log.error("the journal: %s; the row is not sent to an aggregator", error)
            lost += 1
    upto = rows.rows[-1].sequence if rows.rows else rows.lost_upto
    if upto <= after:
        return None
    # Each row has a sequence of its own, so no more can be lost between the two.
    return HistoryBatch(node, rows.journal, after, upto, tuple(events), min(lost, upto - after))


def _events(row: JournalRow) -> Iterator[EpisodeEvent]:
    if len(row.body) > MAX_ROW_BYTES:
        raise JournalError(f"row {row.sequence} has {len(row.body)} bytes")
    for place, change in enumerate(changes_of(row)):
        yield episode_event(row.sequence, place, change)


def episode_event(sequence: int, place: int, change: Change) -> EpisodeEvent:
    """Return a change, at ``place`` in the row ``sequence`` of the journal, as a history event."""
    return EpisodeEvent(
        sequence=sequence,
        place=place,
        episode=change.episode,
        kind=change.kind.value,
        subject=change.subject,
        code=change.code,
        at_ms=change.at_ms,
        old_level=change.old_level,
        new_level=change.new_level,
        severity=change.severity,
        because=change.because[:_BECAUSE_LENGTH],
        device_fault=change.device_fault,
    )
