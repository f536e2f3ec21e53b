"""Brings what a store tells of Nodes, pods and PodGroups into the world."""

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
"""After a refusal that waiting does not mend by itself: somebody may."""

_NAMED = 5

Event = TypeVar("Event")
V = TypeVar("V")


async def follow(
    world: ClusterState,
    number: int,
    store: Store,
    told: Callable[[frozenset[str] | None], None],
    stalls: Stalls,
) -> None:
    """Follow everything that the store with this number knows, until cancelled.

    ``told`` is called with the nodes of which something else is known, ``None`` for all of them;
    with none where a feed is heard for the first time or says that it cannot be, so that who waits
    for it looks again. Returns at once where a store knows nothing of such things.
    """
    cluster = store.cluster
    if cluster is None:
        return
    feeds = _Feeds(number, store.url, told, stalls)
    pods, nodes, groups = (
        world.pods_heard(number),
        world.nodes_heard(number),
        world.groups_heard(number),
    )
    async with asyncio.TaskGroup() as tasks:
        for what, feed in (
            ("pods", feeds.run("pods", cluster.pods, world.observe_pods, pods)),
            ("nodes", feeds.run("nodes", cluster.nodes, _Numbered(world).observe, nodes)),
            ("PodGroups", feeds.run("PodGroups", cluster.jobs, world.observe_jobs, groups)),
        ):
            tasks.create_task(feed, name=f"read {what} of {store.url}")


class _Feeds:
    """The feeds of one store."""

    def __init__(
        self,
        number: int,
        url: str,
        told: Callable[[frozenset[str] | None], None],
        stalls: Stalls,
    ) -> None:
        self._number = number
        self._url = url
        self._told = told
        self._stalls = stalls

    async def run(
        self,
        what: str,
        events: Callable[[], AsyncIterator[Event]],
        observe: Callable[[int, Event | Interrupted], frozenset[str] | None],
        heard: StoreCache[V],
    ) -> None:
        """Follow one kind."""
        async for event in followed(events, _ASK_AGAIN_SECONDS):
            interrupted, absent = heard.interrupted, heard.absent
            state = heard.known, heard.answered
            with self._stalls.busy(f"read {what} of {self._url}"):
                changed = observe(self._number, event)
                if changed is None or changed or (heard.known, heard.answered) != state:
                    self._told(changed)
            if heard.interrupted != interrupted or heard.absent != absent:
                self._say(what, heard, interrupted, absent)

    def _say(
        self, what: str, heard: StoreCache[V], interrupted: str | None, absent: str | None
    ) -> None:
        """What was so before is over, or something begins."""
        if heard.interrupted is not None and interrupted is None:
            _log.warning("%s of %s cannot be read: %s", what, self._url, heard.interrupted)
        elif heard.interrupted is None and interrupted is not None:
            _log.info("%s of %s can be read again", what, self._url)
        if heard.absent is not None and absent is None:
            _log.info("%s has no %s, jobs are known by their pods only", self._url, what)
        elif heard.absent is None and absent is not None:
            _log.info("%s has %s now", self._url, what)


class _Numbered:
    """Says which serial numbers several Nodes have."""

    def __init__(self, world: ClusterState) -> None:
        self._world = world
        self._shared: frozenset[str] = frozenset()

    def observe(self, source: int, event: NodeStatesEvent) -> frozenset[str]:
        """See ``ClusterState.observe_nodes``."""
        changed = self._world.observe_nodes(source, event)
        shared = self._world.shared_serial_numbers
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
