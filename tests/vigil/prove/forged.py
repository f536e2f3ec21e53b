"""Journals and histories that are forged by a script: what happened, and what of it got lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.names import device_info_name, node_info_name
from contract.pages.changes import FaultChange
from contract.pages.history import HistoryEvent, HistoryRow, HistorySubject
from contract.pages.journal import DocumentWrite, HeldEpisode, JournalEntry, JournalPage
from vigil.prove.match import ClusterView, entries_of, part_of_name
from vigil.prove.presences import NodeJournal

if TYPE_CHECKING:
    from vigil.prove.match import Key

NODE = "node-1"
T0 = 1_800_000_000_000
LEVEL = "SeparateNPU"


class Site:
    """A node and an aggregator whose journal and history are written by hand.

    Times are seconds since ``T0``; the aggregator's clock is the node's.
    """

    def __init__(self) -> None:
        self.entries: list[JournalEntry] = []
        self.rows: list[HistoryRow] = []
        self.shown: dict[Key, str] = {}
        self.withheld: set[Key] = set()
        self.recorded: list[tuple[int, int]] = [(T0, T0 + 10_000_000)]
        self.received: dict[str, dict[str, int]] = {}
        self.ahead_ms = 0
        self.pruned = False
        self._sequence = 0
        self.snapshot(0)

    def _append(self, seconds: float, kind: str, **members: object) -> int:
        self._sequence += 1
        at_ms = T0 + int(seconds * 1000) + self.ahead_ms
        entry = JournalEntry(self._sequence, at_ms, kind, **members)  # type: ignore[arg-type]
        self.entries.append(entry)
        return self._sequence

    def snapshot(self, seconds: float, *held: HeldEpisode) -> None:
        self._append(seconds, "snapshot", held=held)

    def change(
        self,
        seconds: float,
        kind: str,
        level: str | None,
        *,
        chip: int = 3,
        code: str = "80E18402",
        episode: str = "e1",
        subject: HistorySubject | None = None,
    ) -> int:
        """Journal a change of a code."""
        at_ms = T0 + int(seconds * 1000) + self.ahead_ms
        event = HistoryEvent(
            *(self._sequence + 1, 0, episode, kind, subject or HistorySubject("chip", chip)),
            *(code, at_ms),
            new_level=level,
        )
        return self._append(seconds, "changes", changes=(event,))

    def write(self, seconds: float, through: int | None = None, *, host: bool = False) -> None:
        """Journal an acknowledged write, of all rows so far or up to ``through``."""
        name = node_info_name(NODE) if host else device_info_name(NODE)
        through = self._sequence if through is None else through
        self._append(seconds, "publication", write=DocumentWrite(name, "directory:/x", through))

    def lose(self, since: float, until: float) -> None:
        """Journal that rows are missing, and a snapshot without a fault behind them."""
        at_ms = T0 + int(since * 1000)
        self._append(until, "gap", lost_since_ms=at_ms, reason="the disk is full")
        self.snapshot(until)

    def publish(
        self,
        seconds: float,
        level: str | None,
        *,
        part: str = "Ascend910-3",
        code: str = "80E18402",
    ) -> None:
        """Record a change in the aggregator's history, and show it."""
        key = NODE, part_of_name(part), code
        at_ms = T0 + int(seconds * 1000)
        change = FaultChange(NODE, at_ms, part, code, was=self.shown.get(key), level=level)
        self.rows.append(HistoryRow(len(self.rows), NODE, "", at_ms, published=change))
        if level is None:
            self.shown.pop(key, None)
        else:
            self.shown[key] = level

    def journal(self, now: float) -> NodeJournal:
        """Return the journal as it is read at ``now``."""
        journal = NodeJournal()
        at_ms = T0 + int(now * 1000) + self.ahead_ms
        page = JournalPage(
            *(NODE, "journal-1", at_ms, self.pruned, tuple(self.entries), self._sequence, False)
        )
        journal.add(page)
        return journal

    def cluster(self, now: float, *, with_history: bool = True) -> ClusterView:
        """Return what the aggregator shows at ``now``."""
        return ClusterView(
            at_ms=T0 + int(now * 1000),
            shown=self.shown,
            withheld=self.withheld,
            entries=entries_of(self.rows) if with_history else None,
            recorded=self.recorded,
            received=self.received,
            ahead_ms={NODE: self.ahead_ms},
        )
