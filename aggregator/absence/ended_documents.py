"""Decide what ends a document that its store lacks: its agent, an operator or a deletion. Pure.

* The heartbeat of a node names the documents that its agent owns
  (``contract/documents/write_numbers.py``). A document that it does not name, or names as deleted,
  ends.
* An operator leaves a record (``contract/documents/forget_record.py``). It ends what is absent of a
  node and not later than the record.
* A deletion that the store reported ends a document when it has stood for 2 s and the node does not
  beat. Deletions of more than 3 nodes and a fifth of all within 15 s are more likely a mistake, a
  script or a broken disk than the end of so many nodes. They are held back until the documents are
  there again or an operator ends the nodes.

Nothing ends while the store is not the one that it was (``hold``, ``directory_mark.py``).
``docs/decisions/021``.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

from aggregator.absence.last_known_documents import LastingDocumentWatch
from contract.documents.write_numbers import NoWrites, decode_owned, decode_writes
from contract.sentences import counted, names_in_short, sentence
from service.log.shortened import shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from aggregator.absence.last_known_documents import AbsentDocument
    from aggregator.inputs.node_documents import DocumentSource
    from contract.documents.forget_record import ForgetRecord
    from service.clock import Instant
    from stores.base import Beat

_log = logging.getLogger(__name__)

# More than 3 nodes and a fifth within 15 s (decision 21), as for the silence of nodes.
_MAX_DELETIONS = 3
_MAX_DELETED_PART = 5
_MAX_NAMED = 10
_WINDOW_MS = 15_000
DOCUMENTS = ("device-info", "node-info")
_DELETABLE = "node-info"
"""Agents delete it whenever no part of the server has an alarm."""


class Missing(NamedTuple):
    """A document that the store lacks, as status shows it. ``is_held``: so is its deletion."""

    node: str
    document: str
    since_ms: int
    is_held: bool


class Absence:
    """Absent documents of the store of ``source``, and what ends them."""

    def __init__(self, source: DocumentSource) -> None:
        self.url = source.url
        self.is_held = False
        """Whether nothing of this store ends now, because it may be another one."""
        self.records: dict[str, ForgetRecord] = {}
        """Forget records of operators, by node."""
        self.over: set[str] = set()
        """Nodes that ended, as long as their heartbeat is remembered."""
        self._watches = {
            watch.document: watch
            for watch in source.watches
            if isinstance(watch, LastingDocumentWatch)
        }
        self.watches = tuple(self._watches.values())
        """The watches of the store."""
        # Nothing ends before the first list: a heartbeat could still name the document.
        self._beats: dict[str, Beat] | None = None
        """The last heartbeats, ``None`` before the first list."""
        self._held: set[str] = set()
        self._ended: dict[str, int] = {}
        """Steady time of the deletion by which a node ended lately."""
        self._named: frozenset[str] = frozenset()
        self._requested: set[str] = set()
        self._has_news = True
        self._seen = 0
        self.due_ms: int | None = None
        """The steady time from which on ``is_due``."""

    @property
    def nodes(self) -> frozenset[str]:
        """All nodes of which the store has, or had, a document."""
        return frozenset().union(
            *(watch.present.keys() | watch.absent.keys() for watch in self.watches)
        )

    def knows(self, node: str) -> bool:
        """Return whether anything of the node is kept."""
        return any(node in watch.present or node in watch.absent for watch in self.watches)

    def observe_beats(self, beats: Iterable[Beat]) -> None:
        """Replace the heartbeats of all nodes by those of a listing."""
        self._beats = {beat.node: beat for beat in beats}
        self._has_news = True

    def hold(self, is_held: bool) -> None:
        """Let nothing of this store end while ``is_held``. A deletion of that time ends nothing
        later: it may have been in another store.
        """
        if self.is_held and not is_held:
            self._has_news = True
            # What another directory lacked was reported as deleted there, and proves nothing here.
            for watch in self.watches:
                watch.unconfirm_deletions()
        self.is_held = is_held

    def observe_forgotten(self, record: ForgetRecord) -> None:
        """Apply the forget record of an operator."""
        self.records[record.node] = record
        self._has_news = True

    def observe_one(self, node: str, beats: Iterable[Beat]) -> None:
        """Replace the heartbeat of one node by what was read of it."""
        if self._beats is not None:
            self._beats.pop(node, None)
            self._beats.update((beat.node, beat) for beat in beats)
            self._has_news = True

    def has_beat(self, node: str) -> bool:
        """Return whether the store has a heartbeat of the node."""
        return self._beats is not None and node in self._beats

    def pop_heartbeats_to_read(self, now: Instant) -> frozenset[str]:
        """Return the nodes whose heartbeat is to be read now, each once: a deletion stands that
        their agents may have made.
        """
        reported = {
            node for _, node, absent in self._absent() if absent.is_reported and self.has_beat(node)
        }
        # A node whose deletion is over may be asked again at its next one.
        self._requested &= reported
        requested = {
            node
            for _, node, absent in self._absent()
            if node in reported - self._requested and absent.stands_at_ms <= now.steady_ms
        }
        self._requested |= requested
        return frozenset(requested)

    def is_due(self, now: Instant) -> bool:
        """Return whether ``step`` has something to do. Cheap: it is called for each change."""
        # A document became absent since the last step.
        if self._seen != sum(watch.absences for watch in self.watches):
            return True
        return self._has_news or (self.due_ms is not None and self.due_ms <= now.steady_ms)

    def step(self, beating: Callable[[str], bool | None], now: Instant) -> frozenset[str]:
        """End what has a reason to end; return the nodes about which something changed.

        ``beating`` returns whether a node beats in the store; ``None`` while that is not known.
        """
        self._has_news = False
        ended = self._step(beating, now)
        self.over = {
            node for node in self.over | ended | self.records.keys() if not self.knows(node)
        }
        self._seen = sum(watch.absences for watch in self.watches)
        self.due_ms = self._next_due_ms(now)
        return ended

    def _step(self, beating: Callable[[str], bool | None], now: Instant) -> frozenset[str]:
        if not any(watch.absent for watch in self.watches):
            self._held.clear()
            return frozenset()
        # Everything stays while the store may be another one (decision 22).
        if self.is_held or self._beats is None:
            return frozenset()
        ended: set[str] = set()
        for kind, watch in self._watches.items():
            # A copy: ``end`` takes nodes out of it.
            for node in [*watch.absent]:
                if self._is_ended_by_agent_or_operator(kind, watch, node):
                    ended |= watch.end(node)
                elif self._is_last_write(kind, watch, node):
                    ended |= watch.accept_older(node, now.wall_ms)
        ended |= self._end_deleted(beating, now)
        return frozenset(ended)

    def _is_ended_by_agent_or_operator(
        self, kind: str, watch: LastingDocumentWatch, node: str
    ) -> bool:
        assert self._beats is not None
        record = self.records.get(node)
        beat = self._beats.get(node)
        if record is not None:
            beaten_at_ms = 0 if beat is None else beat.beaten_at_ms
            # A record ends what is not later than itself: a node that writes or beats afterwards is
            # there.
            if record.at_ms >= max(beaten_at_ms, watch.written_at_ms(node) or 0):
                return True
        owned, number = self._documents_of(kind, node)
        if owned is not None and kind not in owned:
            return True
        # A negative number names the write by which the agent deleted its document (decision 17).
        return number < 0 and -number >= (watch.written_at_ms(node) or 0) // 1000

    def _is_last_write(self, kind: str, watch: LastingDocumentWatch, node: str) -> bool:
        """Return whether the older document that the store has is the last write of its agent."""
        at_ms = watch.older_written_at_ms(node)
        return at_ms is not None and self._documents_of(kind, node)[1] == at_ms // 1000

    def _documents_of(self, kind: str, node: str) -> tuple[frozenset[str] | None, int]:
        """Return the documents that the node's heartbeat names as owned by its agent, and the
        number of the last write of this one.

        The documents are ``None`` where it names none, the number 0 where it has none.
        """
        beat = None if self._beats is None else self._beats.get(node)
        if beat is None or beat.is_broken or not beat.writes:
            return None, 0
        try:
            return decode_owned(beat.writes), decode_writes(beat.writes).get(kind, 0)
        except NoWrites:
            return None, 0

    def _end_deleted(self, beating: Callable[[str], bool | None], now: Instant) -> set[str]:
        """End what was deleted, unless too many were deleted at once; return the nodes
        that ended.
        """
        reported = {
            (kind, node): absent for kind, node, absent in self._absent() if absent.is_reported
        }
        self._held &= {node for _, node in reported}
        due = {
            (kind, node): absent.stands_at_ms
            for (kind, node), absent in reported.items()
            if absent.stands_at_ms <= now.steady_ms
            # What was held back once ends only by an operator or by coming again.
            and node not in self._held
            and self._may_end(kind, node, beating(node))
        }
        if not due:
            return set()
        for node, at_ms in [*self._ended.items()]:
            # Twice the window: a deletion counts with those of 15 s before and after it.
            if now.steady_ms - at_ms > 2 * _WINDOW_MS:
                del self._ended[node]
        deleted = dict(self._ended)
        for (_, node), absent in reported.items():
            deleted[node] = max(absent.stands_at_ms, deleted.get(node, 0))
        times = sorted(deleted.values())
        # Nodes that ended lately still count, or the limit would shrink while a script deletes.
        total = len(self.nodes | self._ended.keys())
        ended: set[str] = set()
        for (kind, node), at_ms in due.items():
            first = bisect_left(times, at_ms - _WINDOW_MS)
            many = bisect_right(times, at_ms + _WINDOW_MS) - first
            if _are_many(many, total):
                self._hold_back(node, many)
            else:
                self._ended[node] = at_ms
                ended |= self._watches[kind].end(node)
        return ended

    def _may_end(self, kind: str, node: str, beats: bool | None) -> bool:
        if beats is False:
            return True
        # An agent of an earlier release ends a document by deleting it, and in no other way.
        beat = self._beats.get(node) if self._beats is not None else None
        # Older agents delete node-info when the last alarm ends, and name no documents (decision
        # 21).
        return bool(beats) and kind == _DELETABLE and beat is not None and not beat.writes

    def _hold_back(self, node: str, many: int) -> None:
        if not self._held:
            _log.error(
                "documents of %d nodes were deleted in %s within 15 s: held back, their last state "
                "stays, %s among them. If these nodes are gone: vigil forget NODE... --store %s",
                *(many, self.url, node, self.url),
            )
        self._held.add(node)

    def _absent(self) -> Iterator[tuple[str, str, AbsentDocument]]:
        for kind, watch in self._watches.items():
            for node, absent in watch.absent.items():
                yield kind, node, absent

    # For people.

    def missing(self, now: Instant) -> tuple[Missing, ...]:
        """Return what the store lacks, without absences that may be short."""
        return tuple(
            Missing(node, kind, absent.since_ms, node in self._held)
            for kind, node, absent in sorted(self._absent())
            if absent.named_at_ms <= now.steady_ms
        )

    def problem(self, now: Instant) -> tuple[str | None, bool]:
        """Return a text of what the store lacks, and whether that is too much for the aggregator to
        be ready.
        """
        nodes = {document.node for document in self.missing(now)}
        if not nodes:
            return None, False
        held_count = sum(node in self._held for node in nodes)
        lacking = counted(
            len(self.nodes),
            "{store} lacks documents of {lacking} of {count} node, their last state stays: {nodes}",
            "{store} lacks documents of {lacking} of {count} nodes, their last state stays: "
            "{nodes}",
            store=self.url,
            lacking=len(nodes),
            nodes=names_in_short(sorted(nodes), _MAX_NAMED),
        )
        if held_count:
            lacking = sentence(
                "{reason}; of {count} a deletion is held back", reason=lacking, count=held_count
            )
        text = sentence("{reason}; vigil forget NODE ends one that is gone", reason=lacking)
        return text, _are_many(len(nodes), len(self.nodes))

    def log_changes(self, now: Instant) -> None:
        """Log which nodes begin to miss a document, and that none does any more."""
        nodes = frozenset(document.node for document in self.missing(now))
        if nodes - self._named:
            _log.warning(
                "%s lacks documents that it had, the last state of these nodes stays: %s",
                self.url,
                shortened(sorted(nodes - self._named)),
            )
        if self._named and not nodes:
            _log.info("%s has all documents again, or their nodes were ended", self.url)
        self._named = nodes

    def _next_due_ms(self, now: Instant) -> int | None:
        """Return the steady time at which a deletion stands, or an absence is to be shown."""
        due = (
            at_ms
            for _, _, absent in self._absent()
            for at_ms in (absent.stands_at_ms, absent.named_at_ms)
            if at_ms > now.steady_ms
        )
        return min(due, default=None)


def _are_many(nodes: int, total: int) -> bool:
    """Return whether so many of the known nodes are too many to be gone at once."""
    return nodes > _MAX_DELETIONS and nodes * _MAX_DELETED_PART > total
