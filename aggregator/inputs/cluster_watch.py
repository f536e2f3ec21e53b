"""Watches Nodes, pods and PodGroups of a store and applies their events to the cluster state."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from service.log.ongoing_failure import OngoingFailure
from stores.cluster import KindUnavailable, SharedReader
from stores.interruption import Interrupted, followed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from aggregator.advising.advice import AdviceService
    from aggregator.inputs.cluster_state import ClusterState
    from aggregator.inputs.multi_store_cache import StoreCache
    from service.watchdog import Watchdog
    from stores.base import Store
    from stores.cluster import NodeStatesEvent

_log = logging.getLogger(__name__)


_NAMED = 5

Event = TypeVar("Event")
V = TypeVar("V")


async def follow(
    cluster_state: ClusterState,
    number: int,
    store: Store,
    on_change: Callable[[frozenset[str] | None], None],
    stalls: Watchdog,
    advice: AdviceService | None = None,
    readers: Sequence[tuple[str, SharedReader[Any]]] = (),
) -> None:
    """Watch all cluster objects of the store with this number, until cancelled.

    ``on_change`` is called with the nodes about which something changed, ``None`` for all of them.
    It is called with no node when a watch delivers for the first time or fails, so that a waiting
    caller checks again. ``advice`` and ``readers``, which have the kind in lower case, read the
    same objects, so that each kind is watched and decoded once. Return at once where a store has no
    such objects.
    """
    cluster = store.cluster
    if cluster is None:
        return
    url = store.url

    async def watch(
        kind: str,
        events: Callable[..., AsyncIterator[Event]],
        observe: Callable[[int, Event | Interrupted], frozenset[str] | None],
        cache: StoreCache[V],
    ) -> None:
        """Watch one kind of objects and pass each event to ``observe``."""
        name = kind.lower()  # Other readers have keys without capitals.
        others = [reader for key, reader in readers if key == name]
        if advice is not None:
            observe_advised = partial(advice.observe_objects, name)
            others.append(SharedReader(advice.shared_kinds[name], observe_advised))
        trouble = OngoingFailure(
            _log, "%s of %s cannot be read: %s", "%s of %s can be read again", kind, url
        )
        async for event in followed(partial(events, *others)):
            if advice is not None and isinstance(event, (Interrupted, KindUnavailable)):
                advice.observe_objects(name, event)
            absent, state = cache.absent, (cache.known, cache.answered)
            with stalls.busy(f"read {kind} of {url}"):
                changed = observe(number, event)
                if changed is None or changed or (cache.known, cache.answered) != state:
                    on_change(changed)
            if cache.interrupted is None:
                trouble.end()
            else:
                trouble.record_failure(cache.interrupted)
            if cache.absent is not None and absent is None:
                _log.info("%s has no %s, jobs are known by their pods only", url, kind)
            elif cache.absent is None and absent is not None:
                _log.info("%s has %s now", url, kind)

    pods, nodes, groups = (
        cluster_state.pods_of(number),
        cluster_state.nodes_of_store(number),
        cluster_state.groups_of(number),
    )
    observe_nodes = _SerialNumberCheck(cluster_state).observe_nodes
    async with asyncio.TaskGroup() as tasks:
        for kind, work in (
            ("pods", watch("pods", cluster.pods, cluster_state.observe_pods, pods)),
            ("nodes", watch("nodes", cluster.nodes, observe_nodes, nodes)),
            ("PodGroups", watch("PodGroups", cluster.jobs, cluster_state.observe_jobs, groups)),
        ):
            tasks.create_task(work, name=f"read {kind} of {url}")


class _SerialNumberCheck:
    """Observes Nodes and logs which serial numbers several of them have."""

    def __init__(self, cluster_state: ClusterState) -> None:
        self._cluster_state = cluster_state
        self._shared: frozenset[str] = frozenset()

    def observe_nodes(self, source: int, event: NodeStatesEvent) -> frozenset[str]:
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
