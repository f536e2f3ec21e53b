"""What became of messages, for people and metrics."""

from __future__ import annotations

import logging
from collections import Counter, deque
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from contract.errors import Problem

_log = logging.getLogger(__name__)

_MOST_ORIGINS = 1000
_MOST_REFUSALS = 100
_MOST_SHOWN = 10


class Refusal(msgspec.Struct, frozen=True):
    """Something that was refused, at ``at_ms`` (wall time), of what ``origin`` said."""

    at_ms: int
    origin: str
    where: str
    what: str


class Count(msgspec.Struct, frozen=True):
    """How often this came of what a resource said since the process began."""

    resource: str
    verdict: str
    number: int


class PublicFaultStatus(msgspec.Struct, frozen=True):
    """How it stands with public faults.

    ``standing`` faults on ``nodes`` nodes, ``unplaced`` of them on chips that nobody has told of
    yet. ``held`` is what gRPC brought and ``waiting`` are the messages that wait for the nodes to
    be known, or until more may be said, ``absent`` is what documents say of nodes that are not
    there. ``away`` holds nodes that are no more to the wall time
    since when. ``troubles`` says by origin what was wrong with its newest message, ``refused`` what
    was refused last. ``table`` says where codes and resources are from, ``table_problems`` what is
    wrong with such places.
    """

    synced: bool
    standing: int
    nodes: int
    unplaced: int
    held: int
    waiting: int
    absent: int
    documents: int
    documents_beyond: int
    dropped: int
    away: dict[str, int]
    counts: tuple[Count, ...]
    troubles: dict[str, str]
    refused: tuple[Refusal, ...]
    table: str
    table_problems: tuple[str, ...]


class Record:
    """Counts, and tells the log once when something begins to be refused and once when it ends."""

    def __init__(self) -> None:
        self.troubles: dict[str, str] = {}
        self.refused: deque[Refusal] = deque(maxlen=_MOST_REFUSALS)
        self._counts: Counter[tuple[str, str]] = Counter()

    @property
    def counts(self) -> tuple[Count, ...]:
        """In a stable order."""
        return tuple(Count(*key, number) for key, number in sorted(self._counts.items()))

    def count(self, resource: str, verdict: str) -> None:
        """One more."""
        self._counts[resource, verdict] += 1

    def judged(self, origin: str, problems: Iterable[Problem], now_ms: int) -> None:
        """The newest message of ``origin`` has been judged; without problems it is good."""
        problems = tuple(problems)
        for problem in problems:
            self.refused.append(Refusal(now_ms, origin, problem.where, problem.what))
        if not problems:
            if self.troubles.pop(origin, None) is not None:
                _log.info("%s: everything is taken again", origin)
            return
        what = "; ".join(map(str, problems[:_MOST_SHOWN]))
        if len(problems) > _MOST_SHOWN:
            what += f"; and {len(problems) - _MOST_SHOWN} more"
        if origin not in self.troubles:
            if len(self.troubles) >= _MOST_ORIGINS:
                return
            _log.warning("%s: refused: %s", origin, what)
        self.troubles[origin] = what

    def refuse(self, origin: str, problem: Problem, now_ms: int) -> None:
        """Something was refused after its message was taken; that happens once."""
        self.refused.append(Refusal(now_ms, origin, problem.where, problem.what))
        _log.warning("%s: refused: %s", origin, problem)

    def gone(self, origin: str) -> None:
        """Nobody says that any more."""
        if self.troubles.pop(origin, None) is not None:
            _log.info("%s: what was refused is gone", origin)
