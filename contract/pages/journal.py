"""Answers of ``/api/v1/journal``: what a proof of delivery needs of an agent's journal.

Times are epoch milliseconds of the node's clock.
"""

from __future__ import annotations

import msgspec

from contract.pages.history import HistoryEvent, HistorySubject


class HeldEpisode(msgspec.Struct, frozen=True, omit_defaults=True):
    """An episode that held when a snapshot was journaled. ``once``: it has no recovery."""

    episode: str
    subject: HistorySubject
    code: str
    level: str
    first_seen_ms: int
    once: bool = False


class DocumentWrite(msgspec.Struct, frozen=True, omit_defaults=True):
    """An acknowledged write of ``document``, which shows the changes up to the row ``through``.

    ``absent``: the store has none, as desired.
    """

    document: str
    store: str
    through: int
    absent: bool = False


class JournalEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One row of the journal.

    ``kind`` is ``start``, ``stop``, ``snapshot`` (with all that is ``held``), ``changes``,
    ``publication`` (with its ``write``) or ``gap``. Where ``lost_since_ms`` is set, rows since then
    are missing, because of ``reason``.
    """

    sequence: int
    at_ms: int
    kind: str
    held: tuple[HeldEpisode, ...] = ()
    changes: tuple[HistoryEvent, ...] = ()
    write: DocumentWrite | None = None
    lost_since_ms: int | None = None
    reason: str = ""


class JournalPage(msgspec.Struct, frozen=True):
    """A part of the journal of ``node``, oldest first.

    It begins with a snapshot: the newest one before the time that was asked for, else the oldest.
    ``pruned``: rows before it were deleted. ``next`` is the parameter ``after`` of what follows.
    ``at_ms`` is the node's time now.
    """

    node: str
    journal: str
    at_ms: int
    pruned: bool
    entries: tuple[JournalEntry, ...]
    next: int
    more: bool


class JournalRange(msgspec.Struct, frozen=True):
    """Which part of the journal: behind the row ``after``, else from a snapshot on.

    That is the newest one at ``since_ms`` or before it.
    """

    after: int | None = None
    since_ms: int | None = None
    limit: int = 1000
