"""Lists the heartbeats of all stores that are read, and decides which nodes are lost.

Before a node is published lost it is measured how long a first heartbeat takes now. Where admission
is slow, a heartbeat that is on its way is accepted late: the node lives. So while a node is late,
one is sent as a dry run: the API server does all that it does for a real one, and stores nothing.
Silence counts for twice as long as that takes. While none is accepted at all, no node falls
silent.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, NoReturn

import msgspec

from aggregator.liveness import clock_skew
from aggregator.liveness import lost_nodes as liveness
from aggregator.liveness.clock_skew import Skews
from aggregator.liveness.lost_nodes import Brake, HeartbeatListing, LostNodes, ProbeResult
from aggregator.liveness.persisted_row import remembered
from aggregator.liveness.unread_heartbeats import Unread, ages_ms, unread
from contract.errors import StoreError, StoreForbidden, StoreUnavailable
from contract.pages.aggregator_status import NODES_IN_STORE
from contract.sentences import sentence
from service.log.shortened import shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from aggregator.liveness.legacy_watch import LegacyHeartbeatWatch
    from aggregator.liveness.lost_nodes import ObservedHeartbeat
    from aggregator.liveness.persisted import PersistedHeartbeats
    from service.clock import Clock, Instant
    from service.watchdog import Watchdog
    from stores.base import Beat, Store

# Eight dry runs at a time (decision 15): admission is slow already.
_MAX_CONCURRENT = 8


class HeartbeatProbe:
    """The dry runs in one store; ``done`` is called when ``results`` changed."""

    def __init__(self, store: Store, clock: Clock, done: Callable[[], None]) -> None:
        self.results: dict[str, ProbeResult] = {}
        """By node that is late."""
        self._store = store
        self._clock = clock
        self._done = done
        self._task: asyncio.Task[None] | None = None

    def probe(self, late: Collection[str]) -> None:
        """Remove the results of nodes that are not late any more; start dry runs for those without
        one.
        """
        for node in self.results.keys() - late:
            del self.results[node]
        # A node whose dry run was refused is asked again; a measured one is not.
        measured = {node for node, result in self.results.items() if result.took_ms is not None}
        unknown = [node for node in late if node not in measured]
        if unknown and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._probe(unknown), name="probe heartbeats")

    def close(self) -> None:
        """Cancel the dry runs under way."""
        if self._task is not None:
            self._task.cancel()

    async def _probe(self, nodes: list[str]) -> None:
        """Make dry runs for some of ``nodes``: the slowest of them counts for all."""
        # The API server is slow already: a few dry runs show how slow.
        sample = random.sample(nodes, min(_MAX_CONCURRENT, len(nodes)))
        took = await asyncio.gather(*map(self._took_ms, sample))
        now_ms = self._clock().steady_ms
        answered = [ms for ms in took if ms is not None]
        for node in nodes:
            # One that was not accepted is enough: with admission uncertain, no node falls silent.
            if len(answered) < len(took):
                self.results[node] = ProbeResult(None, now_ms)
            else:
                before = self.results.get(node)
                refused_at_ms = None if before is None else before.refused_at_ms
                self.results[node] = ProbeResult(max(answered), refused_at_ms)
        self._done()

    async def _took_ms(self, node: str) -> int | None:
        """Return how long one dry run took; ``None`` where it was not accepted."""
        began_ms = self._clock().steady_ms
        try:
            await self._store.dry_run_beat(node)
        except StoreUnavailable:
            return None
        # Answered, so the way is open; the time it took counts.
        except StoreError:
            pass  # it is answered: for us only, there is something else in its way
        return self._clock().steady_ms - began_ms


_log = logging.getLogger(__name__)

# A listing that takes longer than its period must not be followed by the next one at once.
_MIN_PAUSE_SECONDS = 0.1


class HeartbeatMonitor:
    """Lists the beats of each store once per interval; ``on_lost`` receives the lost nodes.

    ``old`` watch for heartbeats of old releases in the stores of the same URL. ``lasting`` are the
    URLs of stores that may come back without their heartbeats. ``on_new_beat`` receives each new
    heartbeat there, ``None`` for a node that is forgotten.
    """

    def __init__(
        self,
        stores: Mapping[str, Store],
        on_lost: Callable[[frozenset[str]], None],
        clock: Clock,
        stalls: Watchdog,
        old: Mapping[str, LegacyHeartbeatWatch],
        memory: PersistedHeartbeats,
        on_listing: Callable[[str, tuple[Beat, ...]], None] = lambda *_: None,
        lasting: Collection[str] = (),
        on_new_beat: Callable[[str, str, ObservedHeartbeat | None], None] = lambda *_: None,
    ) -> None:
        """Make it without heartbeats; ``on_listing`` receives the beats of each listing."""
        self._stores = stores
        self._on_listing = on_listing
        self._lasting: dict[str, dict[str, ObservedHeartbeat]] = {url: {} for url in lasting}
        self._on_new_beat = on_new_beat
        self._on_lost = on_lost
        self._clock = clock
        self._stalls = stalls
        self._old = old
        self._memory = memory
        self._wrong: frozenset[str] = frozenset()
        self._probes = {
            url: HeartbeatProbe(store, clock, self._judge) for url, store in stores.items()
        }
        self._beats = {
            url: HeartbeatListing(probes=probe.results) for url, probe in self._probes.items()
        }
        # Places that were never listed count their age from here.
        self._began_ms = clock().steady_ms
        self._forbidden: set[str] = set()
        self.skews = dict.fromkeys(stores, Skews())
        self.lost_nodes = LostNodes()

    @property
    def listings(self) -> dict[str, HeartbeatListing]:
        """The last listing of the beats in each place: a store, or the Nodes in it."""
        on_nodes = {
            sentence(NODES_IN_STORE, store=url): watch.listing for url, watch in self._old.items()
        }
        return self._beats | on_nodes

    @property
    def problems(self) -> dict[str, str]:
        """Where beats cannot be listed, and why."""
        problems = {url: listing.problem for url, listing in self._beats.items() if listing.problem}
        return problems | {
            NODES_IN_STORE.format(store=url): watch.problem
            for url, watch in self._old.items()
            if watch.problem
        }

    @property
    def unread(self) -> dict[str, Unread]:
        """Places whose beats were not listed for long, by name; their nodes are unknown."""
        return unread(self.listings, self._began_ms, self._clock())

    @property
    def alive(self) -> Iterator[tuple[str, int]]:
        """Nodes that beat in a store that is read, with the time of the beat by their clock."""
        unread, silent = self.unread, self.lost_nodes.lost.keys() | _nodes(self.lost_nodes.brake)
        for url, listing in self._beats.items():
            if url not in unread:
                for node, heartbeat in listing.heartbeats.items():
                    if node not in silent:
                        yield node, heartbeat.beaten_at_ms

    @property
    def ages_ms(self) -> dict[str, int]:
        """How long ago the beats of each place were listed."""
        return ages_ms(self.listings, self._began_ms, self._clock())

    @property
    def unread_stores(self) -> tuple[Unread, ...]:
        """The stores whose beats were not listed for long; a missing right is not a failure."""
        unread_places = self.unread
        return tuple(
            msgspec.structs.replace(unread_places[url], is_long=False)
            if url in self._forbidden
            else unread_places[url]
            for url in self._stores
            if url in unread_places
        )

    def restore_beat(self, url: str, node: str, holder: str, interval_ms: int) -> None:
        """Restore a heartbeat of an earlier run, before the store is listed."""
        now_ms = self._clock().steady_ms
        self._lasting[url][node] = liveness.kept(holder, interval_ms, now_ms)

    def beats(self, url: str, node: str) -> bool | None:
        """Return whether the node beats in this store; ``None`` where that is not known."""
        return liveness.beats(self._beats[url], self.lost_nodes.brake, node)

    def knows(self, url: str, node: str) -> bool:
        """Return whether the node beats, or has beaten, in this store."""
        return node in self._beats[url].heartbeats or node in self._lasting.get(url, ())

    def forget(self, url: str, nodes: Iterable[str]) -> None:
        """Remove these nodes, which were ended and whose beats the store lacks."""
        listing = self._beats[url]
        # A node that beats again meanwhile is not forgotten.
        gone = {n for n in nodes if n in listing.heartbeats and listing.heartbeats[n].is_missing}
        if not gone:
            return
        heartbeats = {
            node: heartbeat for node, heartbeat in listing.heartbeats.items() if node not in gone
        }
        self._beats[url] = msgspec.structs.replace(listing, heartbeats=heartbeats)
        for node in gone:
            self._lasting[url].pop(node, None)
            self._on_new_beat(url, node, None)
        self._judge()

    async def run(self, lost: Iterable[str]) -> NoReturn:
        """List until cancelled. ``lost``: the nodes that the run before has published as lost."""
        # What was published as lost stays so until the node beats (decision 8).
        self.lost_nodes = LostNodes(dict.fromkeys(lost, liveness.LONG_AGO_MS))
        self._restore_silence()
        try:
            async with asyncio.TaskGroup() as tasks:
                for url, store in self._stores.items():
                    tasks.create_task(
                        self._list_periodically(url, store), name=f"list heartbeats in {url}"
                    )
                for url, old in self._old.items():
                    tasks.create_task(old.run(), name=f"read nodes of {url}")
        finally:
            for probes in self._probes.values():
                probes.close()
        raise AssertionError("the tasks never end")

    def _restore_silence(self) -> None:
        """Restore since when nodes are silent, as the leader before has seen it; no node is lost by
        that alone.
        """
        listing = remembered(self._memory.restored, self._clock())
        for url in self._stores:
            self._beats[url] = msgspec.structs.replace(listing, probes=self._probes[url].results)

    def inherit(self, lost: Iterable[str]) -> None:
        """Take over the nodes that another leader has published as lost, until their beats change.

        That leader listed at other times. A node that has beaten for this replica lately is not
        lost.
        """
        now_ms = self._clock().steady_ms
        for node in lost:
            if node in self.lost_nodes.lost:
                continue
            heartbeats = [
                listing.heartbeats[node]
                for listing in self.listings.values()
                if node in listing.heartbeats
            ]
            # Half of the threshold: that beat was surely made after the other leader looked.
            if any((now_ms - p.counts_from_ms) * 2 <= p.threshold_ms for p in heartbeats):
                continue
            self.lost_nodes = msgspec.structs.replace(
                self.lost_nodes, lost=self.lost_nodes.lost | {node: liveness.LONG_AGO_MS}
            )
            for url, listing in self._beats.items():
                self._beats[url] = liveness.silenced(listing, node)
            for old in self._old.values():
                old.silence(node)

    async def _list_periodically(self, url: str, store: Store) -> NoReturn:
        while True:
            # The period counts from the request, so slow answers do not stretch it.
            began_ms = self._clock().steady_ms
            await self._list(url, store)
            own = [self._beats[url]]
            if url in self._old:
                own.append(self._old[url].listing)
            # A store without heartbeats is listed as often as the others: its first node may beat
            # there.
            if not any(listing.heartbeats for listing in own):
                own = list(self.listings.values())
            pause = (liveness.next_ms(own, began_ms) - self._clock().steady_ms) / 1000
            await asyncio.sleep(max(_MIN_PAUSE_SECONDS, pause))

    async def _list(self, url: str, store: Store) -> None:
        was, requested_at = self._beats[url].problem, self._clock()
        try:
            with self._stalls.busy(f"list beats in {url}"):
                beats = await store.beats()
        except StoreError as error:
            self._beats[url] = liveness.failed(self._beats[url], str(error))
            self._forbidden.discard(url)
            if isinstance(error, StoreForbidden):
                self._forbidden.add(url)
            if was is None:
                _log.warning("heartbeats in %s cannot be listed, no node is late: %s", url, error)
            # Heartbeats on the Nodes may still be read when those of the store are not.
            self._judge_old(url, self._clock())
            return
        self._forbidden.discard(url)
        if was is not None:
            _log.info("heartbeats in %s can be listed again", url)
        now = self._clock()
        before, lost = self._beats[url], self.lost_nodes.lost
        took_ms = now.steady_ms - requested_at.steady_ms
        self.skews[url] = clock_skew.observed(
            self.skews[url], before.heartbeats, beats, requested_at.wall_ms, now.wall_ms
        )
        lasting = None
        if url in self._lasting:
            is_first = before.listed_at_ms is None
            # Nodes of an earlier run that are not in the first list have fallen silent, as far as
            # is known.
            lasting = self._restored_heartbeats(url) if is_first else before.heartbeats
        listed = liveness.listed(before, beats, now.steady_ms, lost, took_ms, lasting)
        if lasting is not None:
            self._note_new(url, lasting, listed.heartbeats)
        probes = self._probes[url]
        self._beats[url] = msgspec.structs.replace(listed, probes=probes.results)
        # Lost nodes need no dry run: they stay lost until their beat changes.
        probes.probe(set(liveness.late(listed)) - lost.keys())
        self._judge_old(url, now)
        self._judge()
        # After the judgement: what heartbeats end must see which nodes are silent.
        self._on_listing(url, beats)
        self._log_wrong_clocks()

    def _restored_heartbeats(self, url: str) -> dict[str, ObservedHeartbeat]:
        """Return the heartbeats of an earlier run, with the times that the leader before
        has seen.
        """
        silent = self._beats[url].heartbeats
        return {
            node: msgspec.structs.replace(
                silent[node],
                interval_ms=heartbeat.interval_ms,
                usual_interval_ms=heartbeat.usual_interval_ms,
            )
            if node in silent
            else heartbeat
            for node, heartbeat in self._lasting[url].items()
        }

    def _note_new(
        self,
        url: str,
        before: Mapping[str, ObservedHeartbeat],
        heartbeats: Mapping[str, ObservedHeartbeat],
    ) -> None:
        for node, heartbeat in heartbeats.items():
            earlier = before.get(node)
            # The file keeps who beats and how often, not each beat: a write each 5 s and node would
            # be too many.
            if earlier is None or (earlier.holder, earlier.interval_ms) != (
                heartbeat.holder,
                heartbeat.interval_ms,
            ):
                self._on_new_beat(url, node, heartbeat)

    def _judge_old(self, url: str, now: Instant) -> None:
        old = self._old.get(url)
        if old is not None:
            old.judge(now, self._has_own, self.lost_nodes.lost, self._beats[url].problem)
        self._memory.record_periodically(self._beats.values())

    def _has_own(self, node: str) -> bool:
        return any(node in listing.heartbeats for listing in self._beats.values())

    def _log_wrong_clocks(self) -> None:
        before, self._wrong = self._wrong, clock_skew.wrong(self.skews.values())
        if self._wrong - before:
            _log.warning(
                "clocks are more than %g s off, by their heartbeats and our clock: %s. Old readers "
                "compare them",
                clock_skew.WARNING_MS / 1000,
                shortened(sorted(self._wrong - before)),
            )
        if before - self._wrong:
            _log.info("clocks are right again: %s", shortened(sorted(before - self._wrong)))

    def _judge(self) -> None:
        before, now_ms = self.lost_nodes, self._clock().steady_ms
        self.lost_nodes = liveness.judge(before, tuple(self.listings.values()), now_ms)
        self._log_state(before)
        # Only then is there something to publish; times of silence alone change nothing.
        if before.lost.keys() != self.lost_nodes.lost.keys():
            self._memory.record(self._beats.values())
            self._on_lost(frozenset(self.lost_nodes.lost))

    def _log_state(self, before: LostNodes) -> None:
        lost, was_lost = self.lost_nodes.lost.keys(), before.lost.keys()
        braked, were_braked = _nodes(self.lost_nodes.brake), _nodes(before.brake)
        if lost - was_lost:
            _log.warning(
                "lost, no heartbeat for 3 intervals: %s", shortened(sorted(lost - was_lost))
            )
        if was_lost - lost - braked:
            _log.info("not lost any more: %s", shortened(sorted(was_lost - lost - braked)))
        if braked - were_braked:
            _log.error(
                "silence alarm: %d nodes fell silent at once, none of them is published lost: %s. "
                "Is the network, the API server or the network path broken?",
                len(braked),
                shortened(sorted(braked)),
            )
        elif were_braked and not braked:
            _log.warning("the silence alarm is over")


def _nodes(brake: Brake | None) -> frozenset[str]:
    return frozenset() if brake is None else frozenset(brake.nodes)
