"""Watches the Nodes of one store for heartbeats of old releases."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from aggregator.liveness import legacy_rules
from aggregator.liveness import lost_nodes as liveness
from aggregator.liveness.legacy_rules import LegacyNodes, Seen
from aggregator.liveness.lost_nodes import HeartbeatListing
from aggregator.liveness.persisted_row import LastSeen, changed_at_seconds, remembered
from contract.errors import StoreError
from contract.names import HEARTBEAT_LABEL
from service.log.ongoing_failure import OngoingFailure
from stores.cluster import Snapshot
from stores.interruption import RETRY_SECONDS, Interrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from contract.documents.node_info import NodeRecord
    from service.clock import Clock, Instant
    from stores.base import ClusterObjects, NodesEvent

_log = logging.getLogger(__name__)

# As long as the first publication waits for a store (``daemon._FIRST_LIST_SECONDS``).
_FIRST_LIST_MS = 30_000


class LegacyHeartbeatWatch:
    """Heartbeats of old releases in the store at ``url``; ``record_of`` returns a node's last good
    node-info.

    ``unread`` returns why node-info, which may have heartbeats in it, is not known as it is now.
    While that or ``problem`` is set no old heartbeat is judged.
    """

    def __init__(
        self,
        url: str,
        objects: ClusterObjects,
        record_of: Callable[[str], NodeRecord | None],
        unread: Callable[[], str | None],
        clock: Clock,
    ) -> None:
        self.nodes = LegacyNodes()
        self.listing = HeartbeatListing()
        self._trouble = OngoingFailure(
            _log,
            "nodes in %s cannot be listed, heartbeats of old releases (label nodeDEnable=on) "
            "are not judged: %s",
            "nodes in %s can be listed again",
            url,
        )
        self._objects = objects
        self._record_of = record_of
        self._unread = unread
        self._clock = clock
        self._seen = Seen()
        self._remembered: HeartbeatListing | None = None
        self._began_ms: int | None = None
        self._has_begun = False

    def restore_seen(self, seen: Iterable[LastSeen]) -> None:
        """Restore what the run before has seen."""
        # Judged only after the first list: until then every node would look silent.
        self.listing = self._remembered = remembered(seen, self._clock())
        self._seen = Seen(proven=frozenset(self.listing.heartbeats))

    def silence(self, node: str) -> None:
        """Count the node as silent: another leader has published it as lost."""
        self.listing = liveness.silenced(self.listing, node)

    def last_seen(self) -> tuple[LastSeen, ...]:
        """Return the rows for the next leader; of a node that is not silent only its name."""
        now = self._clock()
        return tuple(
            LastSeen(node, heartbeat.beaten_at_ms // 1000, changed_at_seconds(heartbeat, now))
            if self._remembered is not None or now.steady_ms > heartbeat.silent_at_ms
            else LastSeen(node)
            for node, heartbeat in (self._remembered or self.listing).heartbeats.items()
        )

    async def run(self) -> NoReturn:
        """Watch the Nodes until cancelled."""
        while True:
            try:
                async for event in self._objects.watch_nodes(HEARTBEAT_LABEL):
                    self.observe_nodes(event)
            except StoreError as error:
                self._trouble.record_failure(str(error))
            # Also after a normal end: a watch that ends at once must not be asked in a loop.
            await asyncio.sleep(RETRY_SECONDS)

    def observe_nodes(self, event: NodesEvent) -> None:
        """Apply one event of the watch."""
        self.nodes.observe_nodes(event)
        if isinstance(event, Interrupted):
            self._trouble.record_failure(event.reason)
        elif isinstance(event, Snapshot):
            self._trouble.end()

    @property
    def problem(self) -> str | None:
        """Why Nodes cannot be listed."""
        return self._trouble.reason

    def judge(
        self,
        now: Instant,
        has_own: Callable[[str], bool],
        lost: Collection[str],
        blind: str | None,
    ) -> None:
        """Judge the heartbeats known now. ``blind``: why no silence counts; ``None`` if it does."""
        if self._began_ms is None:
            self._began_ms = now.steady_ms
        problem = self.problem or self._unread()
        if not self._has_begun:
            if not self.nodes.listed or problem is not None:
                # The first listing waits for old heartbeats no longer than for a store at the
                # start.
                if problem is not None and now.steady_ms - self._began_ms > _FIRST_LIST_MS:
                    self.listing = HeartbeatListing(listed_at_ms=now.steady_ms)
                return
            self._has_begun = True
            if self._remembered is not None:
                self.listing, self._remembered = self._remembered, None
        problem = problem or blind
        if problem is not None:
            # Without old heartbeats there is nothing whose silence has to be held back.
            if self.listing.heartbeats:
                self.listing = liveness.failed(self.listing, problem)
            return
        is_silent = partial(self._is_silent, now)
        self._seen, beats = legacy_rules.observed(
            self._seen, self.nodes.beats, self._record_of, has_own, is_silent, lost
        )
        self.listing = liveness.listed(self.listing, beats, now.steady_ms, lost)

    def _is_silent(self, now: Instant, node: str) -> bool:
        heartbeat = self.listing.heartbeats.get(node)
        return heartbeat is None or now.steady_ms > heartbeat.silent_at_ms
