"""How long the journal keeps its rows, and how large its file may be. Blocking."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agent.journal.unacknowledged import delete_unacknowledged, keep_acknowledged
from service.files.database import used_bytes

if TYPE_CHECKING:
    import sqlite3

MAX_AGE_MS = 30 * 86_400_000
MAX_BYTES = 64 << 20
_MAX_ROWS = 500
"""Rows deleted at a time: a commit waits no longer than that."""
_NEVER = (1 << 63) - 1


class Pruned(NamedTuple):
    """What ``prune`` did: ``unacknowledged`` rows of changes were deleted before an
    acknowledgement.
    """

    may_be_more: bool
    unacknowledged: int


def prune(
    connection: sqlite3.Connection, older_than_ms: int, max_bytes: int, acknowledged: int | None
) -> Pruned:
    """Delete some of the oldest rows if they are too old or the file is too large.

    The rows that a restart needs stay: the last snapshot and all since, the last configuration, the
    sent Events and storage faults. So do the rows that a replay from the oldest snapshot needs: the
    fault configuration and the chip allocation of that time.

    Changes behind ``acknowledged`` are still to be sent to an aggregator. They are deleted last,
    while the file is still too large. ``acknowledged`` is ``None`` where no aggregator reads them.
    """
    too_large = used_bytes(connection) > max_bytes
    if acknowledged is not None:
        keep_acknowledged(connection, acknowledged)
    deleted = connection.execute(
        "DELETE FROM rows WHERE sequence IN ("
        "  SELECT sequence FROM rows AS old"
        "  WHERE sequence < (SELECT max(sequence) FROM rows WHERE kind = 'snapshot')"
        # ``IS NOT``, because without such a row ``<>`` compares with NULL and selects nothing.
        "  AND sequence IS NOT (SELECT max(sequence) FROM rows WHERE kind = 'configuration')"
        "  AND sequence IS NOT (SELECT max(sequence) FROM rows WHERE kind = 'events')"
        "  AND sequence IS NOT (SELECT max(sequence) FROM rows WHERE kind = 'public-faults')"
        f"  AND NOT ({_true_at_a_snapshot('usage')})"
        f"  AND NOT ({_true_at_a_snapshot('fault-configuration')})"
        "  AND NOT (kind = 'changes' AND sequence > ?)"
        "  ORDER BY sequence LIMIT ?)"
        " AND (? OR at_ms < ?)",
        (_NEVER if acknowledged is None else acknowledged, _MAX_ROWS, too_large, older_than_ms),
    ).rowcount
    unacknowledged = 0
    if acknowledged is not None and deleted < _MAX_ROWS and used_bytes(connection) > max_bytes:
        unacknowledged = delete_unacknowledged(connection, acknowledged, _MAX_ROWS)
    return Pruned(_MAX_ROWS in (deleted, unacknowledged), unacknowledged)


def _true_at_a_snapshot(kind: str) -> str:
    """Return SQL: the row ``old`` is of ``kind``, and a snapshot comes before the next such row."""
    return (
        f"old.kind = '{kind}' AND"
        " (SELECT min(sequence) FROM rows WHERE kind = 'snapshot' AND sequence > old.sequence)"
        f" < coalesce((SELECT min(sequence) FROM rows WHERE kind = '{kind}'"
        f" AND sequence > old.sequence), {_NEVER})"
    )
