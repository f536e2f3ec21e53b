"""Sends Kubernetes Events about changes of chips (``docs/spec/device-plugin.md#6.1``).

No caller waits for a request, and no event is dropped. What the API server does not accept now
waits, merged where it is much, and the journal keeps it for the next process. Only what the API
server refuses is not sent again; it is in the journal.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import zip_longest
from typing import TYPE_CHECKING, NoReturn

from agent.journal.rows import RowKind, body_of, changes_of, decoded, inputs_of
from agent.kubernetes_events.correlator import EventCorrelator, Item, Other
from agent.kubernetes_events.event_rules import EventRules
from agent.kubernetes_events.text import Reporter, event_of, releases
from agent.policy.step import PolicyCall
from contract.errors import JournalError, StoreError, StoreForbidden, StoreRefused
from contract.pages.agent_status import EventsStatus
from pacing.backoff import Backoff
from pacing.waiting import wait_for_event
from service.log.ongoing_failure import OngoingFailure
from stores.base import WRITE_SECONDS
from stores.deadline import answered_within

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from agent.journal.file import RestoredJournal
    from agent.journal.journal import Journal
    from agent.journal.rows import JournalRow
    from agent.name_claim import NameClaim
    from agent.policy.state import PolicyState
    from contract.codes.catalogue import Catalogue
    from dcmi_shim.values import Inventory
    from stores.base import ClusterObjects, KubernetesEvent

log = logging.getLogger("agent.events")

_FIRST_PAUSE_SECONDS = 0.1
_LAST_PAUSE_SECONDS = 5.0
_INVENTORY_SECONDS = 10.0
_RIGHTS_SECONDS = 5.0
"""For how long a server that has just started may not know our rights."""
_DOCUMENT_FIRST_SECONDS = 0.05
"""How long Events wait for the document of the same change: schedulers wait for that one."""
# A start reads the inputs behind the last mark.
_INPUTS_PER_MARK = 256


def reporter_of(node: str, environment: Mapping[str, str]) -> Reporter:
    """Return the reporter: our pod where it is known (``POD_NAME``, ``HOSTNAME``), else the
    node.
    """
    pod = environment.get("POD_NAME") or environment.get("HOSTNAME")
    return Reporter(node, pod or None)


class EventSender:
    """Sends Events of what ``record_changes`` and ``post`` are given to ``objects``, while ``run``
    runs.

    It sends while ``claim`` permits it. ``inventory`` waits for the driver's list of chips.
    """

    def __init__(
        self,
        objects: ClusterObjects,
        reporter: Reporter,
        journal: Journal,
        claim: NameClaim,
        wall_clock: Callable[[], int],
        inventory: Callable[[], Awaitable[Inventory]],
    ) -> None:
        self._objects = objects
        self._reporter = reporter
        self._journal = journal
        self._wall_clock = wall_clock
        self._claim = claim
        self._inventory = inventory
        self._loop = asyncio.get_running_loop()
        self._started = self._loop.time()
        self._correlator = EventCorrelator()
        self._rules = EventRules()
        self._wake = asyncio.Event()
        self._under_way: Item | None = None
        self._inputs_since_mark = 0
        self._sent = 0
        self._refused = 0
        self._trouble = OngoingFailure(
            log, "%s", "Events are accepted again; %d wait", level=logging.ERROR
        )
        self._forbidden_since: float | None = None

    def resume_from_journal(
        self, restored: RestoredJournal, state: PolicyState, tables: Catalogue
    ) -> None:
        """Continue where the process before this one ended; call it before ``record_changes``."""
        try:
            if restored.events is not None:
                waiting = decoded(restored.events, tuple[Item, ...])
                self._correlator = EventCorrelator(waiting)
            for call in _calls(restored.unacknowledged_changes, tables):
                self._add(call)
        except JournalError as error:
            log.error("Events that waited before the start are lost: %s", error)
        # After the calls of the journal, which have more of each code than the state.
        self._rules.mark_faults_sent(state)
        if self._correlator:
            log.warning("%d Events of before the start are sent now", len(self._correlator))
        self._mark()
        self._wake.set()

    def record_changes(self, call: PolicyCall) -> None:
        """Queue Events for one call of the policy."""
        self._add(call)
        self._inputs_since_mark += 1
        if self._inputs_since_mark >= _INPUTS_PER_MARK:
            self._mark()

    def post(self, event: KubernetesEvent) -> None:
        """Queue ``event``. Never blocks and never raises."""
        self._correlator.post(Other(event), self._now_ms())
        self._mark()
        self._wake.set()

    def status(self) -> EventsStatus:
        """Return the state of the Events now."""
        waiting = len(self._correlator) + (self._under_way is not None)
        return EventsStatus(
            self._sent, self._correlator.merged, waiting, self._refused, self._trouble.reason
        )

    async def run(self) -> NoReturn:
        """Send until cancelled."""
        while True:
            self._wake.clear()
            now_ms = self._now_ms()
            self._under_way = self._correlator.pop_next(now_ms)
            if self._under_way is None:
                await wait_for_event(self._wake, self._correlator.seconds_until_next(now_ms))
                await asyncio.sleep(_DOCUMENT_FIRST_SECONDS)
                continue
            event = event_of(self._under_way, self._reporter, await self._chips())
            await self._send(event)
            self._under_way = None
            self._mark()

    async def _send(self, event: KubernetesEvent) -> None:
        backoff = Backoff(_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS)
        while True:
            if self._claim.may_publish:
                try:
                    async with answered_within(WRITE_SECONDS):
                        await self._objects.record(event)
                except StoreRefused as error:
                    if not self._may_be_allowed_soon(error):
                        self._refused += 1
                        self._trouble.record_failure(
                            f"Events are refused, they are in the journal only: {error}"
                        )
                        return
                except StoreError as error:
                    self._trouble.record_failure(f"no Events can be written, they wait: {error}")
                else:
                    self._sent += 1
                    self._trouble.end(len(self._correlator))
                    self._forbidden_since = None
                    return
            await asyncio.sleep(backoff.next_seconds())

    def _may_be_allowed_soon(self, error: StoreRefused) -> bool:
        if not isinstance(error, StoreForbidden):
            return False
        if self._forbidden_since is None:
            self._forbidden_since = self._loop.time()
        return self._loop.time() - self._forbidden_since < _RIGHTS_SECONDS

    async def _chips(self) -> Inventory | None:
        """Return the driver's list of chips.

        ``None`` if it is missing some seconds after the start.
        """
        remaining_seconds = self._started + _INVENTORY_SECONDS - self._loop.time()
        try:
            async with asyncio.timeout(max(0.0, remaining_seconds)):
                return await self._inventory()
        except TimeoutError:
            return None

    def _add(self, call: PolicyCall) -> None:
        now_ms = self._now_ms()
        for place, change in enumerate(self._rules.fault_changes(call)):
            self._correlator.add(change, f"{change.at_ms}.{call.sequence}.{place}", now_ms)
            self._wake.set()
        for release in releases(call.changes, call.sequence):
            self._correlator.post(release, now_ms)
            self._wake.set()

    def _now_ms(self) -> int:
        return round(self._loop.time() * 1000)

    def _mark(self) -> None:
        """Journal the Events that wait: every earlier one was sent or is in this row."""
        self._inputs_since_mark = 0
        # It may not arrive before this process ends.
        under_way = () if self._under_way is None else (self._under_way,)
        waiting = (*under_way, *self._correlator.items())
        self._journal.append([(RowKind.EVENTS, body_of(waiting))], self._wall_clock())


def _calls(rows: Sequence[JournalRow], tables: Catalogue) -> Iterator[PolicyCall]:
    """Yield the calls of the policy that ``rows`` are about."""
    # The changes of a call, if any, are in the row behind its inputs.
    for row, behind in zip_longest(rows, rows[1:]):
        if row.kind != RowKind.CHANGES:
            has_changes = behind is not None and behind.kind == RowKind.CHANGES
            changes = changes_of(behind) if has_changes else ()
            yield PolicyCall(inputs_of(row), changes, tables, row.sequence)
