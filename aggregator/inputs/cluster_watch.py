"""Watches Nodes, pods and PodGroups of a store and applies their events to the cluster state."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeVar

from stores.interruption import Interrupted, followed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aggregator.inputs.cluster_state import ClusterState
    from aggregator.inputs.multi_store_cache import StoreCache
    from service.stalls import Stalls
    from stores.base import Store
    from stores.cluster import NodeStatesEvent

_log = logging.getLogger(__name__)

_ASK_AGAIN_SECONDS = 30.0
"""Pause after a refusal that ends only when an operator changes something."""

_NAMED = 5

Event = TypeVar("Event")
V = TypeVar("V")


async def follow(
    cluster_state: ClusterState,
    number: int,
    store: Store,
    on_change: Callable[[frozenset[str] | None], None],
    stalls: Stalls,
) -> None:
    """Watch all cluster objects of the store with this number, until cancelled.

    ``on_change`` is called with the nodes about which something changed, ``None`` for all of them.
    It is called with no node when a watch delivers for the first time or fails, so that a waiting
    caller checks again. Return at once where a store has no such objects.
    """
    cluster = store.cluster
    if cluster is None:
        return
    watches = _StoreWatches(number, store.url, on_change, stalls)
    pods, nodes, groups = (
        cluster_state.pods_of(number),
        cluster_state.nodes_of_store(number),
        cluster_state.groups_of(number),
    )
    async with asyncio.TaskGroup() as tasks:
        for what, watch in (
            ("pods", watches.run("pods", cluster.pods, cluster_state.observe_pods, pods)),
            (
                "nodes",
                watches.run(
                    "nodes", cluster.nodes, _SerialNumberCheck(cluster_state).observe, nodes
                ),
            ),
            (
                "PodGroups",
                watches.run("PodGroups", cluster.jobs, cluster_state.observe_jobs, groups),
            ),
        ):
            tasks.create_task(watch, name=f"read {what} of {store.url}")


class _StoreWatches:
    """The watches of one store."""

    def __init__(
        self,
        number: int,
        url: str,
        on_change: Callable[[frozenset[str] | None], None],
        stalls: Stalls,
    ) -> None:
        self._number = number
        self._url = url
        self._on_change = on_change
        self._stalls = stalls

    async def run(
        self,
        what: str,
        events: Callable[[], AsyncIterator[Event]],
        observe: Callable[[int, Event | Interrupted], frozenset[str] | None],
        cache: StoreCache[V],
    ) -> None:
        """Watch one kind of objects and pass each event to ``observe``."""
        async for event in followed(events, _ASK_AGAIN_SECONDS):
            interrupted, absent = cache.interrupted, cache.absent
            state = cache.known, cache.answered
            with self._stalls.busy(f"read {what} of {self._url}"):
                changed = observe(self._number, event)
                if changed is None or changed or (cache.known, cache.answered) != state:
                    self._on_change(changed)
            if cache.interrupted != interrupted or cache.absent != absent:
                self._log_state(what, cache, interrupted, absent)

    def _log_state(
        self, what: str, cache: StoreCache[V], interrupted: str | None, absent: str | None
    ) -> None:
        """Log what differs from ``interrupted`` and ``absent``, the state before the event."""
        if cache.interrupted is not None and interrupted is None:
            _log.warning("%s of %s cannot be read: %s", what, self._url, cache.interrupted)
        elif cache.interrupted is None and interrupted is not None:
            _log.info("%s of %s can be read again", what, self._url)
        if cache.absent is not None and absent is None:
            _log.info("%s has no %s, jobs are known by their pods only", self._url, what)
        elif cache.absent is None and absent is not None:
            _log.info("%s has %s now", self._url, what)


class _SerialNumberCheck:
    """Observes Nodes and logs which serial numbers several of them have."""

    def __init__(self, cluster_state: ClusterState) -> None:
        self._cluster_state = cluster_state
        self._shared: frozenset[str] = frozenset()

    def observe(self, source: int, event: NodeStatesEvent) -> frozenset[str]:
        """See ``ClusterState.observe_nodes``."""
        changed = self._cluster_state.observe_nodes(source, event)
        shared = self._cluster_state.shared_serial_numbers
        if shared.keys() != self._shared:
            for number in sorted(shared.keys() - self._shared):
                names = sorted(shared[number])
                more = ", ..." if len(names) > _NAMED else ""
                _log.warning(
                    "%d nodes have the serial number %r, which names none of them: %s%s",
                    len(names),
                    number,
                    ", ".join(names[:_NAMED]),
                    more,
                )
            for number in sorted(self._shared - shared.keys()):
                _log.info("no two nodes have the serial number %r any more", number)
            self._shared = frozenset(shared)
        return changed
