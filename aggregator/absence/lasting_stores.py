"""Stores that may come back without what they had: what is kept of them, and what ends it.

A broker without persistence or a directory whose mount is missing shows no documents, and its nodes
were not deleted by that (``docs/decisions/021``). So the last state of each such store is in the
state directory (``LastKnown``), ``Absence`` decides what ends a document that it lacks, its mark
shows whether it is the same directory as before, and operators end nodes by forget records.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from aggregator.absence.directory_mark import DirectoryMarks
from aggregator.absence.ended_documents import Absence
from aggregator.absence.forget_requests import ForgetRequests
from aggregator.absence.last_known import LastKnown, LastKnownStore
from aggregator.absence.last_known_documents import LastingDocumentWatch
from aggregator.inputs.node_documents import DocumentSource
from contract.names import DEFAULT_MAX_NODES

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from aggregator.liveness.monitor import HeartbeatMonitor
    from service.clock import Clock, Instant
    from stores.base import Beat, Store


class LastingStores:
    """The stores, of ``stores`` by URL, whose absence of a document is not a deletion.

    ``changed`` is called when a step has something to do.
    """

    def __init__(
        self,
        stores: Mapping[str, Store],
        state_dir: Path,
        clock: Clock,
        changed: Callable[[], None],
        max_nodes: int = DEFAULT_MAX_NODES,
    ) -> None:
        self._stores = {
            url: store for url, store in stores.items() if not store.absence_is_deletion
        }
        self._clock = clock
        self._changed = changed
        self._max_nodes = max_nodes
        self.last_known = LastKnown(state_dir, clock)
        self.absences: dict[str, Absence] = {}
        """What each store lacks, by URL."""
        self.marks = DirectoryMarks(
            stores, state_dir, lambda url: self.absences[url].nodes, changed
        )
        self._forgetting: dict[str, ForgetRequests] = {}

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs of these stores."""
        return tuple(self._stores)

    def source(self, url: str, has_agent: Callable[[str], bool]) -> DocumentSource:
        """Return the source of the nodes' documents in any store.

        ``has_agent`` returns whether a node beats, or has beaten, in it.
        """
        if url not in self._stores:
            return DocumentSource(url, max_nodes=self._max_nodes)
        keep = partial(self.last_known.record, url)
        watch = partial(LastingDocumentWatch, keep=keep, has_agent=has_agent)
        source = DocumentSource(url, watch, self._max_nodes)
        self.absences[url] = Absence(source)
        return source

    def follow_requests(
        self,
        touch_period_seconds: float,
        *,
        is_there: Callable[[str], bool],
        may_write: Callable[[], bool],
    ) -> None:
        """Make what follows the requests of operators to forget nodes; see ``ForgetRequests``."""
        for url, absence in self.absences.items():
            self._forgetting[url] = ForgetRequests(
                self._stores[url],
                absence,
                self._clock,
                touch_period_seconds,
                is_there=is_there,
                may_write=may_write,
                changed=self._changed,
            )

    def restore_stores(
        self, last_known: Mapping[str, LastKnownStore], monitor: HeartbeatMonitor
    ) -> bool:
        """Restore what an earlier run has read; return whether that was all of every store."""
        now_ms = self._clock().wall_ms
        for url, absence in self.absences.items():
            store = last_known.get(url, LastKnownStore())
            # Each watch takes what is of its namespace and prefix, and ignores the rest.
            for document in store.documents.values():
                for watch in absence.watches:
                    watch.restore_document(document, now_ms)
            for node, beat in store.beats.items():
                monitor.restore_beat(url, node, beat.holder, beat.interval_ms)
        # One store without a complete record is enough for absence to prove nothing.
        return all(url in last_known and last_known[url].is_complete for url in self.absences)

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Follow the requests of operators in tasks of the group."""
        for url, forgetting in self._forgetting.items():
            tasks.create_task(forgetting.run(), name=f"follow what is forgotten in {url}")

    def record_listed(self, sources: Iterable[DocumentSource]) -> None:
        """Record which of these stores were listed: what is recorded of them is all of it."""
        for source in sources:
            if source.url in self.absences and source.listed:
                self.last_known.record_listed(source.url)

    def observe_beats(self, url: str, beats: tuple[Beat, ...]) -> bool:
        """Observe a listing of heartbeats; return whether a step may have something to end."""
        self.marks.observe_beats(url, beats)
        absence = self.absences.get(url)
        if absence is None:
            return False
        absence.observe_beats(beats)
        return bool(absence.over) or any(watch.absent for watch in absence.watches)

    def end_absent(self, monitor: HeartbeatMonitor, now: Instant) -> frozenset[str]:
        """End the documents that stores lack and that have a reason to end; return the nodes to be
        judged again.
        """
        ended: set[str] = set()
        for url, absence in self.absences.items():
            # First: nothing may end while the directory is another one.
            absence.hold(self.marks.problem(url) is not None)
            if not absence.is_due(now):
                continue
            ended |= absence.step(partial(monitor.beats, url), now)
            # A node whose heartbeat is still there would be lost at once if it were forgotten.
            gone = frozenset(node for node in absence.over if not absence.has_beat(node))
            monitor.forget(url, gone)
            # A node with a heartbeat stays in ``over`` until that is gone, too.
            absence.over -= gone
            absence.log_changes(now)
            self._forgetting[url].request_heartbeats()
        return frozenset(ended)
