"""Answers of ``/api/v1/history``. Times are epoch milliseconds.

All rows have one form, at agent and aggregator: severities are words, and no member is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from contract.pages.changes import FaultChange
from contract.pages.faults import FaultNames

if TYPE_CHECKING:
    from contract.documents.episodes import EpisodeEvent


class HistorySubject(msgspec.Struct, frozen=True):
    """Whom a change of a journal is about, see ``contract.observation.Subject``."""

    kind: str
    id: int
    part: str = ""


class HistoryEvent(msgspec.Struct, frozen=True):
    """A change of an episode, as a node has it in its journal (``EpisodeEvent``).

    ``severity`` is a word, ``null`` where the driver gives none.
    """

    sequence: int
    place: int
    episode: str
    kind: str
    subject: HistorySubject
    code: str
    at_ms: int
    old_level: str | None = None
    new_level: str | None = None
    severity: str | None = None
    because: str = ""
    device_fault: bool = False


class HistoryRow(msgspec.Struct, frozen=True):
    """One entry, in the order of ``number``.

    ``event`` is a change that a node has in its ``journal``. Where ``lost`` is not 0 there is none:
    so many rows of the journal are gone. Or it is a change of what is ``published`` of the node
    (``journal`` is empty). ``received_at_ms`` is the clock of the daemon that answers.
    """

    number: int
    node: str
    journal: str
    received_at_ms: int
    event: HistoryEvent | None = None
    lost: int = 0
    published: FaultChange | None = None


class HistoryPage(msgspec.Struct, frozen=True):
    """A part of the history, the newest last. ``next``: the parameter ``after`` of what follows."""

    events: tuple[HistoryRow, ...]
    next: int
    more: bool


class PublishedFault(msgspec.Struct, frozen=True):
    """A fault as it was published, or a status (``code`` is ``status``); see ``FaultChange``."""

    node: str
    subject: str
    code: str
    level: str


class RecordedSpan(msgspec.Struct, frozen=True):
    """From when until when every published change was recorded."""

    since_ms: int
    until_ms: int


class PublishedPage(msgspec.Struct, frozen=True):
    """What was published at ``at_ms``, by node, subject and code.

    ``is_recorded``: a process recorded all changes at that time, which it does from
    ``recorded_since_ms`` on (``null``: not yet), but for the time between two processes.
    ``recorded`` has these times, in their order. ``names`` are those of each code that
    has a name.
    """

    at_ms: int
    is_recorded: bool
    recorded_since_ms: int | None
    faults: tuple[PublishedFault, ...]
    names: dict[str, FaultNames]
    recorded: tuple[RecordedSpan, ...] = ()


class HistoryRange(msgspec.Struct, frozen=True):
    """Which part of the history: of ``node``, behind the number ``after``, received since.

    Without ``after`` and ``since_ms`` it is the newest part.
    """

    node: str | None = None
    since_ms: int | None = None
    after: int | None = None
    limit: int = 1000


def history_event(event: EpisodeEvent) -> HistoryEvent:
    """Return the change of a journal as pages show it."""
    subject = HistorySubject(event.subject.kind, event.subject.id, event.subject.part)
    severity = None if event.severity is None else event.severity.word
    members = {name: getattr(event, name) for name in event.__struct_fields__}
    return HistoryEvent(**(members | {"subject": subject, "severity": severity}))
