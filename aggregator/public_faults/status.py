"""Outcomes of messages, for people and metrics."""

from __future__ import annotations

import logging
from collections import Counter, deque
from typing import TYPE_CHECKING

import msgspec

from stores.refusals import Refused, Spacing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aggregator.public_faults.kept_messages import MessageOrigin
    from aggregator.public_faults.validation import Foreign
    from contract.errors import Problem
    from contract.refusal import Reason
    from service.clock import Instant

_log = logging.getLogger(__name__)

_MAX_ORIGINS = 1000
_MAX_REFUSALS = 100
_MAX_SHOWN = 10


class RefusedMessage(msgspec.Struct, frozen=True):
    """A problem that was refused at ``at_ms`` (wall time) in a message of ``origin``."""

    at_ms: int
    origin: str
    where: str
    what: str


class Count(msgspec.Struct, frozen=True):
    """How many messages of a resource, and reports in them, had this outcome since the process
    began.
    """

    resource: str
    verdict: str
    number: int


class PublicFaultStatus(msgspec.Struct, frozen=True):
    """Status of public faults.

    ``standing`` faults hold on ``nodes`` nodes, ``unplaced`` of them on chips that no document
    names yet. ``held`` reports of gRPC and ``waiting`` messages wait for the nodes to be known, or
    for limits. ``absent`` reports of documents are about nodes that are not there. ``away`` has
    deleted nodes to the wall time since when. ``troubles`` has by origin what is wrong with its
    newest message, ``refused`` what was refused last. ``table`` is where codes and resources are
    from, ``table_problems`` what is wrong with such places.
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
    refused: tuple[RefusedMessage, ...]
    table: str
    table_problems: tuple[str, ...]


class OutcomeLog:
    """Counts outcomes, and logs once when messages of an origin begin to be refused and once when
    that ends.
    """

    def __init__(self) -> None:
        self.troubles: dict[str, str] = {}
        self._named: set[str] = set()
        """Origins whose trouble is in the log, and its end is not yet."""
        self._spacing = Spacing()
        self.refused: deque[RefusedMessage] = deque(maxlen=_MAX_REFUSALS)
        self._counts: Counter[tuple[str, str]] = Counter()

    @property
    def counts(self) -> tuple[Count, ...]:
        """All counts in a stable order."""
        return tuple(Count(*key, number) for key, number in sorted(self._counts.items()))

    def count(self, resource: str, verdict: str) -> None:
        """Add one to a count."""
        self._counts[resource, verdict] += 1

    def judged(self, origin: str, problems: Iterable[Problem], now: Instant) -> None:
        """Record the result for the newest message of ``origin``; without problems it is good."""
        problems = tuple(problems)
        for problem in problems:
            self.refused.append(RefusedMessage(now.wall_ms, origin, problem.where, problem.what))
        if not problems:
            self._end(origin, "everything is accepted again")
            return
        text = "; ".join(map(str, problems[:_MAX_SHOWN]))
        if len(problems) > _MAX_SHOWN:
            text += f"; and {len(problems) - _MAX_SHOWN} more"
        if origin not in self.troubles:
            if len(self.troubles) >= _MAX_ORIGINS:
                return
            if self._spacing.allows(origin, now.steady_ms):
                self._named.add(origin)
                _log.warning("%s: refused: %s", origin, text)
        self.troubles[origin] = text

    def refuse(self, origin: str, problem: Problem, now_ms: int) -> None:
        """Record a problem that was found after its message was accepted; that happens once."""
        self.refused.append(RefusedMessage(now_ms, origin, problem.where, problem.what))
        _log.warning("%s: refused: %s", origin, problem)

    def gone(self, origin: str) -> None:
        """Record that the document of ``origin`` is gone."""
        self._end(origin, "what was refused is gone")

    def _end(self, origin: str, how: str) -> None:
        if self.troubles.pop(origin, None) is not None and origin in self._named:
            self._named.discard(origin)
            _log.info("%s: %s", origin, how)


class Rejections:
    """Documents of which something does not belong to their place, by store and reason."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[int, Reason]] = Counter()
        """By number of the store: how many texts came with something foreign."""
        self._now: dict[MessageOrigin, Foreign] = {}

    def judged(self, origin: MessageOrigin, foreign: Foreign | None) -> None:
        """Record what of the newest text of a document is ``foreign``."""
        if foreign is None:
            self._now.pop(origin, None)
            return
        self.counts[origin.source, foreign.reason] += 1
        if origin in self._now or len(self._now) < _MAX_ORIGINS:
            self._now[origin] = foreign

    def gone(self, origin: MessageOrigin) -> None:
        """Record that the document is gone."""
        self._now.pop(origin, None)

    def now(self, source: int) -> tuple[Refused, ...]:
        """Return what is refused in the store with this number."""
        return tuple(
            Refused(origin.place, foreign.reason, str(foreign.problem))
            for origin, foreign in sorted(self._now.items(), key=lambda item: item[0])
            if origin.source == source
        )
