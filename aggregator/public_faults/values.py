"""Reports and faults as values, and their rows in buckets, each small enough for one document.

A row's bucket follows from the node it is about, or from the document. One with many rows is in
parts: their number doubles, and never shrinks while the process lives.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Protocol, TypeAlias
from zlib import crc32

import msgspec

from aggregator.plugin import LAST
from aggregator.state_buckets import ChangedBuckets, bucket_of, decoded
from contract.documents.public_fault import LAST_DEVICE
from contract.go.decode import Int64

if TYPE_CHECKING:
    from collections.abc import Mapping

PIECE = 500
"""Influences, faults or documents after which others have their turn: a few milliseconds."""

Key: TypeAlias = tuple[str, str, str]
"""Node, resource and fault id."""

Device: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=LAST_DEVICE)]
"""Physical id of a chip."""


class PublicFaultReport(msgspec.Struct, frozen=True, array_like=True):
    """What a message reports of one fault on one node.

    ``reported_at_ms`` is the message's own time, ``received_at_ms`` ours; both are wall times.
    ``serial_number`` names the node where ``node`` is empty, until it is known whose it is.
    ``devices`` are physical ids.
    """

    node: str
    serial_number: str
    resource: str
    fault_id: str
    fault_type: str
    code: str
    assertion: str
    devices: tuple[Device, ...]
    time_seconds: Int64
    reported_at_ms: Int64
    received_at_ms: Int64

    @property
    def key(self) -> Key:
        """The fault that it is about."""
        return self.node, self.resource, self.fault_id


class _OneFault(msgspec.Struct, frozen=True, array_like=True):
    """What is known of one fault of one node."""

    node: str
    resource: str
    fault_id: str

    @property
    def key(self) -> Key:
        """The fault that it is about."""
        return self.node, self.resource, self.fault_id


class ActivePublicFault(_OneFault, frozen=True, array_like=True):
    """A fault that holds. Times in milliseconds are wall times.

    ``level`` is the last one that a table gave its code. ``reported_at_ms`` and ``received_at_ms``
    are those of the newest message about it. ``ends_at_ms``: when it ends by itself. ``placed``:
    its chips are known to exist.
    """

    fault_type: str
    code: str
    level: str
    devices: tuple[Device, ...]
    time_seconds: Int64
    added_at_ms: Int64
    reported_at_ms: Int64
    received_at_ms: Int64
    ends_at_ms: Int64 | None
    placed: bool


class UnplacedFault(msgspec.Struct, frozen=True, array_like=True):
    """A report of the document at ``place`` about a node that does not exist.

    ``digest`` is that of its text. ``is_all``: nothing else of it was refused.
    """

    report: PublicFaultReport
    place: str
    digest: str
    is_all: bool


class EndedFault(_OneFault, frozen=True, array_like=True):
    """A fault that has ended a moment ago."""

    reported_at_ms: Int64
    received_at_ms: Int64


class FaultOutcome(StrEnum):
    """The outcome of a report."""

    ADDED = "added"
    KNOWN = "known"
    """It holds already: nothing of it changes (clusterd#4.4)."""
    ENDED = "ended"
    ENDING = "ending"
    """It holds for 5 s at least."""
    ABSENT = "absent"
    """A recovery of a fault that does not hold."""
    OVERTAKEN = "overtaken"
    """A newer message was applied."""
    FULL = "full"


class NodeLookup(Protocol):
    """What is known of nodes, for reports about them."""

    @property
    def synced(self) -> bool:
        """Whether every store has listed its nodes once, and so a node that is not here does not
        exist.
        """

    def has_node(self, node: str) -> bool:
        """Return whether there is a Node object or a document of this node."""

    def chips(self, node: str) -> frozenset[str] | None:
        """Return the names of its chips; ``None`` where none was reported yet."""

    def node_of(self, serial_number: str) -> str | None:
        """Return the node with this serial number; ``None`` where none has it."""


_BUCKETS = 32
_MAX_ROWS = 1000
"""Per part: a row has less than 800 bytes."""

Row: TypeAlias = (
    ActivePublicFault | EndedFault | PublicFaultReport | UnplacedFault | tuple[str, ...] | int
)
_Name: TypeAlias = tuple[str, tuple[str, ...]]


class PersistedRows(msgspec.Struct, frozen=True, omit_defaults=True):
    """The rows of one bucket, or of all.

    ``held`` are reports that wait until nodes are known, in the order in which they were sent.
    ``documents``: place to the digests of applied texts. ``away``: deleted node to the wall time at
    which that was noticed. ``absent`` are reports about nodes that do not exist yet.
    """

    faults: tuple[ActivePublicFault, ...] = ()
    over: tuple[EndedFault, ...] = ()
    held: tuple[PublicFaultReport, ...] = ()
    documents: dict[str, tuple[str, ...]] = {}
    away: dict[str, Int64] = {}
    absent: tuple[UnplacedFault, ...] = ()


_decoder = msgspec.json.Decoder(PersistedRows)


class Rows:
    """All rows by bucket, and which buckets changed."""

    def __init__(self) -> None:
        self._parts: dict[str, int] = {}
        self._buckets: dict[str, dict[_Name, Row]] = {}
        self._changed = ChangedBuckets()

    def put(self, kind: str, key: tuple[str, ...], row: Row) -> None:
        """Keep a row; the first of ``key`` decides about its bucket, all of it about the part."""
        bucket = self._bucket(kind, key)
        rows = self._buckets.setdefault(bucket, {})
        rows[kind, key] = row
        self._changed.add(bucket)
        if len(rows) > _MAX_ROWS:
            self._split(_home(kind, key))

    def put_quietly(self, kind: str, key: tuple[str, ...], row: Row) -> None:
        """Put a row whose change alone need not be stored."""
        rows = self._buckets.get(self._bucket(kind, key), {})
        if (kind, key) in rows:
            rows[kind, key] = row

    def drop(self, kind: str, key: tuple[str, ...]) -> None:
        """Remove a row."""
        bucket = self._bucket(kind, key)
        rows = self._buckets.get(bucket, {})
        if rows.pop((kind, key), None) is not None:
            self._changed.add(bucket)
            if not rows:
                del self._buckets[bucket]

    def clear(self) -> None:
        """Remove all rows; ``compare`` decides afterwards what changed by that."""
        self._buckets.clear()

    def compare(self, texts: Mapping[str, str]) -> None:
        """Compare with the texts that are stored: only what differs has changed."""
        names = texts.keys() | self._buckets.keys()
        self._changed = ChangedBuckets(name for name in names if self.text(name) != texts.get(name))

    def pop_changed(self) -> frozenset[str]:
        """Return the buckets that changed since the last call."""
        return self._changed.pop()

    def text(self, bucket: str) -> str | None:
        """Return the text of a bucket."""
        bucket_rows = self._buckets.get(bucket)
        if not bucket_rows:
            return None
        rows = {name: bucket_rows[name] for name in sorted(bucket_rows)}
        state = PersistedRows(
            tuple(row for row in rows.values() if isinstance(row, ActivePublicFault)),
            tuple(row for row in rows.values() if isinstance(row, EndedFault)),
            tuple(row for row in rows.values() if isinstance(row, PublicFaultReport)),
            {key[0]: row for (_, key), row in rows.items() if isinstance(row, tuple)},
            {key[0]: row for (_, key), row in rows.items() if isinstance(row, int)},
            tuple(row for row in rows.values() if isinstance(row, UnplacedFault)),
        )
        return msgspec.json.encode(state, order="sorted").decode()

    def _bucket(self, kind: str, key: tuple[str, ...]) -> str:
        home = _home(kind, key)
        part = crc32("\0".join(key).encode()) % self._parts.get(home, 1)
        return f"{home}-{part}" if part else home

    def _split(self, home: str) -> None:
        parts = self._parts.get(home, 1)
        names = [home, *(f"{home}-{part}" for part in range(1, parts))]
        rows = {row: value for name in names for row, value in self._buckets.pop(name, {}).items()}
        self._parts[home] = parts * 2
        for (kind, key), row in rows.items():
            bucket = self._bucket(kind, key)
            self._buckets.setdefault(bucket, {})[kind, key] = row
            self._changed.add(bucket)
        self._changed.add(*names)


def _home(kind: str, key: tuple[str, ...]) -> str:
    """Return the owner that decides the bucket of a row.

    What a document reports is in the buckets of its nodes: it was applied when these are stored.
    """
    prefix = LAST if kind == "document" else ""
    return prefix + bucket_of(key[0], _BUCKETS, "02")


def read_rows(texts: Mapping[str, str]) -> tuple[PersistedRows, list[str]]:
    """Return the rows in these buckets together, and which of these could not be read."""
    buckets, unreadable = decoded(texts, _decoder.decode)
    states = tuple(buckets.values())
    documents: dict[str, tuple[str, ...]] = {}
    away: dict[str, int] = {}
    for state in states:
        documents |= state.documents
        away |= state.away
    waiting = sorted(
        (report for s in states for report in s.held), key=lambda report: report.received_at_ms
    )
    return (
        PersistedRows(
            tuple(fault for state in states for fault in state.faults),
            tuple(ended for state in states for ended in state.over),
            tuple(waiting),
            documents,
            away,
            tuple(unplaced for state in states for unplaced in state.absent),
        ),
        unreadable,
    )
