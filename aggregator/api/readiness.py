"""Whether the aggregator is ready, and the reasons why not."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aggregator.api.status import ProbeStatus
from contract.plural import plural
from contract.sentences import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from aggregator.absence.ended_documents import Absence
    from aggregator.failover.takeover import Takeover
    from aggregator.liveness.unread_heartbeats import Unread
    from aggregator.merge.pipeline import Pipeline
    from aggregator.publish.document_state import WatchedDocument
    from aggregator.publish.publisher import StorePublisher
    from service.clock import Clock
    from service.election.leadership import Leadership
    from service.failing_requests import FailingRequests
    from service.watchdog import Watchdog

_log = logging.getLogger(__name__)

_MAX_START_MS = 10_000


@dataclass(eq=False)
class Readiness:
    """Decides whether this replica is ready, and why not.

    A leader is ready once everything that it knew at first is published. A follower is ready once
    it knows everything and an aggregator leads. ``not_served`` is why a leader's clients are not
    served: it publishes all the same, and is not ready. A replica is not ready either while an
    operation of a store fails for long, or while a store lacks what it had of many nodes
    (``absences``). ``unread`` names the stores whose heartbeats were not read for long, ``marks``
    the directories that are not the known ones. ``warnings`` are about what is written beside
    documents.
    """

    pipeline: Pipeline
    publishers: tuple[StorePublisher, ...]
    takeover: Takeover
    leadership: Leadership
    stalls: Watchdog
    not_served: Callable[[], str | None]
    unread: Callable[[], Iterable[Unread]]
    marks: Callable[[], Iterable[str]]
    absences: Collection[Absence]
    warnings: Callable[[], tuple[str, ...]]
    clock: Clock
    _waits_for: str | None = field(default=sentence("waiting for the stores to answer"), init=False)
    _complete: dict[str, int] | None = field(default=None, init=False)
    _warm_ms: int | None = field(default=None, init=False)
    _is_past_start: bool = field(default=False, init=False)

    def await_start(self, reason: str | None) -> None:
        """Set what the start waits for; ``None`` once it waits for nothing."""
        self._waits_for = reason

    def await_publication(self) -> None:
        """Wait until the stores have what is known now: this replica begins to lead."""
        names = self.pipeline.documents
        self._complete = {name: self.pipeline.revision(name) for name in names}
        self._waits_for = sentence("waiting for the first publication")

    def look(self) -> None:
        """End the wait once the stores have what was known when this replica began to lead."""
        if self._complete is None:
            return
        for publisher in self.publishers:
            for name, revision in self._complete.items():
                output = publisher.outputs.get(name)
                if output is None or output.acknowledged < revision:
                    self._waits_for = sentence(
                        "waiting for {document} to be in {store}",
                        document=name,
                        store=publisher.store.url,
                    )
                    return
        self._complete = None
        self._waits_for = None
        _log.info("everything known is published: %s", plural(len(self.pipeline.nodes), "node"))

    def is_past_start(self) -> bool:
        """Return whether this replica has been ready, or has known everything for 10 s.

        Before that, rows of all nodes would delay the first publication. A leader that cannot
        publish shows what it knows after that time.
        """
        if not self._is_past_start and self.takeover.is_warm:
            now_ms = self.clock().steady_ms
            if self._warm_ms is None:
                self._warm_ms = now_ms
            is_late = now_ms - self._warm_ms >= _MAX_START_MS
            self._is_past_start = is_late or self._waits_for is None or self._follows()
        return self._is_past_start

    def health(self) -> ProbeStatus:
        """Return what probes ask for; cheap."""
        not_served = self.not_served()
        served = () if not_served is None else (not_served,)
        if self._waits_for is None or self._follows():
            reasons = (*served, *self.marks(), *self._failing())
        else:
            unread = (
                sentence(
                    "{store} cannot be read: {reason}",
                    store=source.url,
                    reason=source.interrupted,
                )
                for source in self.pipeline.sources
                if source.interrupted is not None
            )
            reasons = (self._waits_for, *unread, *self.marks(), *served)
        return ProbeStatus(self.stalls.stalled(), reasons, self._warnings())

    def _failing(self) -> Iterator[str]:
        """Yield what has failed for long. A refusal of one document of many is not enough."""
        now_ms = self.clock().steady_ms
        for operation, requests, of_many in self._asked():
            problem = requests.problem(operation, now_ms, of_many=of_many)
            if problem is not None:
                yield problem
        yield from (unread.text for unread in self.unread() if unread.is_long)
        yield from self._lacked(serious=True)

    def _asked(self) -> Iterator[tuple[str, FailingRequests, bool]]:
        """Yield each operation of stores: its name, its failure, and whether it is of several
        documents.
        """
        for source in self.pipeline.sources:
            for watch in source.watches:
                operation = sentence(
                    "the watch of {namespace} in {store}",
                    namespace=watch.selection.namespace,
                    store=source.url,
                )
                yield operation, watch.reading, False
        for publisher in self.publishers:
            url, many = publisher.store.url, len(publisher.outputs) > 1
            read = sentence("the watch of our documents in {store}", store=url)
            yield read, publisher.reading, False
            written = sentence("the writing of our documents to {store}", store=url)
            yield written, publisher.writing, many
        election = sentence("the election by {store}", store=self.leadership.elected_by)
        yield election, self.leadership.failing, False

    def _warnings(self) -> tuple[str, ...]:
        """Heartbeats that are not read, documents that cannot be written or that others write."""
        written: list[tuple[str, WatchedDocument[Any]]] = [
            (publisher.store.url, output)
            for publisher in self.publishers
            for _, output in sorted(publisher.outputs.items())
        ]
        for url, views in self.takeover.views.items():
            written += ((url, output) for output in views.outputs)
        return (
            *(unread.text for unread in self.unread() if not unread.is_long),
            *(
                f"{output.name} is not written to {url}: {output.trouble.reason}"
                for url, output in written
                if output.trouble.reason is not None
            ),
            *(
                f"conflict: {output.foreign.writer.changes(output.name)} in {url}"
                for url, output in written
                if output.conflict
            ),
            *self.takeover.persistent_state.conflicts,
            *self._lacked(serious=False),
            *self.warnings(),
        )

    def _lacked(self, *, serious: bool) -> Iterator[str]:
        """Yield what stores lack, where that is a reason not to be ready (``serious``) or none."""
        for absence in self.absences:
            problem, is_serious = absence.problem(self.clock())
            if problem is not None and is_serious is serious:
                yield problem

    def _follows(self) -> bool:
        """Return whether everything is known and another aggregator publishes it."""
        return self.takeover.is_warm and self.leadership.follows
