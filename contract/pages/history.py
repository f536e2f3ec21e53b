"""Answers of ``/api/v1/history``. Times are epoch milliseconds."""

from __future__ import annotations

import msgspec

from contract.documents.episodes import EpisodeEvent
from contract.pages.changes import FaultChange


class HistoryRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry, in the order of ``number``.

    ``event`` is a change that a node has in its ``journal``. Where ``lost`` is not 0 there is none:
    so many rows of the journal are gone. Or it is a change of what is ``published`` of the node
    (``journal`` is empty). ``received_at_ms`` is the clock of the daemon that answers.
    """

    number: int
    node: str
    journal: str
    received_at_ms: int
    event: EpisodeEvent | None = None
    lost: int = 0
    published: FaultChange | None = None


class HistoryPage(msgspec.Struct, frozen=True):
    """A part of the history, the newest last. ``next``: the parameter ``after`` of what follows."""

    events: tuple[HistoryRow, ...]
    next: int
    more: bool


class HistoryRange(msgspec.Struct, frozen=True):
    """Which part of the history: of ``node``, behind the number ``after``, received since.

    Without ``after`` and ``since_ms`` it is the newest part.
    """

    node: str | None = None
    since_ms: int | None = None
    after: int | None = None
    limit: int = 1000
