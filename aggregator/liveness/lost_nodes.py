"""Decide which nodes fell silent. Pure: beats and the observer's steady clock in, lost nodes out.

A node is silent when its beat did not change for more than 3 intervals of the observer's time. The
time in a beat is only compared with the time in the beat before. A node whose connection broke, as
a broker reports by its last will, is silent after one interval without another beat. A will that
was retained when the listing began has no meaning: a broker that ends closes all connections, and
agents come back to it at any time. Source: ``noded#7.10`` and 7.11.

In a store that may come back without what it had, a beat that is missing is silence: its node has a
fresh threshold from when that was seen first (``docs/decisions/021``).

The brake: when more than 3 nodes and more than a fifth of those that beat fall silent within one
threshold, none of them is published lost, for readers would delete jobs across the cluster, and
what is broken is more likely the way of their beats. Nodes that have already missed a beat count,
and those published lost within that threshold are taken back: what breaks at once is not noticed at
once. The brake lets go of a node that beats again or whose beat is deleted. It lets go of those
that stay silent, and they are lost, when what is left is within the limit, one threshold after the
last of them came back; and, as after a real loss of power, ten minutes after the last of them came
back or joined, but only while they are no more than half of the nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from stores.base import Beat

# More than three intervals, as noded#7.10 recommends to evaluators.
_MISSED_INTERVALS = 3
# The interval that V4 puts in place of one that is missing or outside 1 to 300 s (noded#7.5).
FALLBACK_MS = 5000
# V4 takes intervals of 1 to 300 s (noded#7.5).
_MAX_INTERVAL_MS = 300_000

_MIN_PERIOD_MS = 1000
_EXTRA_LISTINGS = 5
"""So many in a period at most, however many nodes fall silent one after the other."""
_LISTING_PERIOD_MS = 500
"""Shortest pause of listings of a store that receives beats as events, when a node falls silent."""

_QUICK_MS = 1000
"""A probe that takes no longer changes nothing."""

_MAX_SILENT = 3
_MAX_SILENT_PART = 5
_MAX_HELD_PART = 2
_HOLD_MS = 600_000

# Far before any steady time, so that it is outside each window.
LONG_AGO_MS = -(10**12)
"""The time at which a node fell silent that counts as lost without a further check."""


class ObservedHeartbeat(msgspec.Struct, frozen=True, gc=False):
    """The last beat of a node as the observer sees it.

    ``changed_at_ms`` and ``counts_from_ms`` are steady time: when it last changed, and from when
    silence counts, which is later if the observer itself could not read. ``broken_at_ms`` is when
    the connection of the last beat broke, if it did. ``usual_interval_ms`` is the interval that the
    node beats at, as far as it is known; that of its last beat may announce an absence. ``blind``
    is that of the beat.
    """

    holder: str
    beaten_at_ms: int
    interval_ms: int
    changed_at_ms: int
    counts_from_ms: int
    broken_at_ms: int | None = None
    usual_interval_ms: int = FALLBACK_MS
    blind: bool | None = None
    is_missing: bool = False
    """The store had it and lacks it."""

    @property
    def threshold_ms(self) -> int:
        """Longest silence of a node that is alive."""
        return _MISSED_INTERVALS * self.interval_ms

    @property
    def silent_at_ms(self) -> int:
        """The last steady time at which it is not silent."""
        at_ms = self.counts_from_ms + _MISSED_INTERVALS * self.interval_ms
        # A broken connection waits one interval only, but never longer than plain silence would.
        if self.broken_at_ms is None:
            return at_ms
        return min(at_ms, self.broken_at_ms + self.interval_ms)


class ProbeResult(msgspec.Struct, frozen=True):
    """How long it took until a heartbeat would have been accepted; ``None``: none was.

    ``refused_at_ms`` is when none was accepted last (steady time).
    """

    took_ms: int | None
    refused_at_ms: int | None = None


class HeartbeatListing(msgspec.Struct, frozen=True):
    """The beats in one store at its last listing, and why there is no later one.

    ``as_they_come``: the store receives them as events, and a listing costs little.
    """

    heartbeats: dict[str, ObservedHeartbeat] = {}
    listed_at_ms: int | None = None
    problem: str | None = None
    as_they_come: bool = False
    probes: Mapping[str, ProbeResult] | None = None
    """Probes by node that is late: without one it does not fall silent. ``None``: not needed."""


class Brake(msgspec.Struct, frozen=True):
    """Nodes that are silent and not published lost, with when each fell silent (steady time)."""

    nodes: dict[str, int]
    changed_at_ms: int


class LostNodes(msgspec.Struct, frozen=True):
    """``lost``: the lost nodes, with when each fell silent (steady time)."""

    lost: dict[str, int] = {}
    brake: Brake | None = None


class _State(msgspec.Struct, frozen=True):
    """``late``: half of the threshold has passed or the connection broke: a beat was missed.

    The times count only where it is silent.
    """

    silent: bool
    late: bool
    silent_at_ms: int
    threshold_ms: int


_IN_TIME = _State(silent=False, late=False, silent_at_ms=0, threshold_ms=0)


def interval_ms(seconds: float) -> int:
    """Return the interval that counts, in milliseconds: 5 s where a beat has none in range
    (``noded#7.5``, V4).
    """
    milliseconds = seconds * 1000
    is_sensible = _MIN_PERIOD_MS <= milliseconds <= _MAX_INTERVAL_MS
    return int(milliseconds) if is_sensible else FALLBACK_MS


def period_ms(listings: Iterable[HeartbeatListing]) -> int:
    """Return the shortest interval: an observer that was away for longer may have missed beats."""
    intervals = (
        heartbeat.interval_ms for listing in listings for heartbeat in listing.heartbeats.values()
    )
    return max(_MIN_PERIOD_MS, min(intervals, default=0))


def listing_period_ms(listings: Iterable[HeartbeatListing]) -> int:
    """Return how often to list beats: once per shortest interval that a node usually beats at.

    An announced absence does not count: an agent that begins meanwhile may be killed as well. Where
    the usual interval is not known, it counts as short until the node is silent; such nodes alone
    decide only where no other node beats. Often while no node beats yet.
    """
    listings = tuple(listings)
    usual_intervals = (
        heartbeat.usual_interval_ms
        for listing in listings
        for heartbeat in listing.heartbeats.values()
        if heartbeat.usual_interval_ms == heartbeat.interval_ms
        or not _is_silent(heartbeat, listing.listed_at_ms)
    )
    shortest = min(usual_intervals, default=0)
    if shortest == 0:
        intervals = (
            heartbeat.usual_interval_ms
            for listing in listings
            for heartbeat in listing.heartbeats.values()
        )
        shortest = min(intervals, default=0)
    return max(_MIN_PERIOD_MS, shortest)


def next_ms(listings: Iterable[HeartbeatListing], now_ms: int) -> int:
    """Return when to list beats next: after a period, or as soon as the first node is silent.

    Beats that come in time move that on, so nothing more is listed while all is well. What is found
    once per period falls silent right after a listing: that one waits for it.
    """
    listings = tuple(listings)
    period = listing_period_ms(listings)
    silent_at_ms = (
        (
            _silent_at_ms(heartbeat, listing.probes.get(node))
            if listing.probes
            else heartbeat.silent_at_ms
        )
        + 1
        for listing in listings
        for node, heartbeat in listing.heartbeats.items()
    )
    first_ms = min((at_ms for at_ms in silent_at_ms if at_ms > now_ms), default=now_ms + period)
    pause_ms = period // _EXTRA_LISTINGS
    if any(listing.as_they_come for listing in listings):
        pause_ms = min(pause_ms, _LISTING_PERIOD_MS)
    # A node that falls silent shortly after the regular listing is waited for, which saves a
    # listing.
    end_ms = now_ms + period
    if end_ms < first_ms <= end_ms + pause_ms:
        return first_ms
    return min(end_ms, max(first_ms, now_ms + pause_ms))


def listed(
    listing: HeartbeatListing,
    beats: Iterable[Beat],
    now_ms: int,
    lost: Collection[str],
    took_ms: int = 0,
    lasting: Mapping[str, ObservedHeartbeat] | None = None,
) -> HeartbeatListing:
    """Return the state after a listing. A node in ``lost`` stays silent until its beat changes.

    After a time without listings every other node gets a fresh threshold, and also after an answer
    that took longer than a period: a store that is slow to answer may be slow for the beats.
    ``lasting``: the beats that the store had, of one that may come back without them; those that
    are missing fall silent.
    """
    gap_ms = 0 if listing.listed_at_ms is None else now_ms - listing.listed_at_ms
    period = period_ms([listing])
    # The observer was away: silence in that time may be ours, so everybody gets a fresh threshold.
    blind = listing.problem is not None or gap_ms > 2 * period + _MIN_PERIOD_MS or took_ms > period
    heartbeats = {}
    as_they_come, is_first = False, listing.listed_at_ms is None
    for beat in beats:
        if beat.is_broken and not beat.holder:
            # A will without a holder carries no beat that could be compared.
            continue  # it went before it ever beat
        as_they_come = as_they_come or beat.age_ms is not None
        before, is_lost = listing.heartbeats.get(beat.node), beat.node in lost
        heartbeats[beat.node] = _observed(
            before, beat, now_ms, is_first=is_first, is_blind=blind, is_lost=is_lost
        )
    for node, heartbeat in (lasting or {}).items():
        if node not in heartbeats:
            was_there = not heartbeat.is_missing and now_ms <= heartbeat.silent_at_ms
            is_fresh = blind or is_first or was_there
            heartbeats[node] = _missing(heartbeat, now_ms, is_lost=node in lost, is_fresh=is_fresh)
    return HeartbeatListing(heartbeats, now_ms, as_they_come=as_they_come)


def _observed(
    before: ObservedHeartbeat | None,
    beat: Beat,
    now_ms: int,
    *,
    is_first: bool,
    is_blind: bool,
    is_lost: bool,
) -> ObservedHeartbeat:
    """Return the heartbeat of a node with this beat (``noded#7.10``).

    | the beat is                                | silence counts from          | broke at       |
    |--------------------------------------------|------------------------------|----------------|
    | the first one of the node                  | when it came; lost: long ago | its will came  |
    | another one than ``before``                | when it came                 | its will came  |
    | that of an earlier run (``is_first``)      | now; lost: long ago          | as before      |
    | the same after a time of not reading       | now                          | now            |
    | the same (or ``is_lost``)                  | as before                    | as before      |

    A break counts only while the beat has it. A lost node stays lost, and broken, until its beat
    changes.
    """
    interval = interval_ms(beat.interval_seconds)
    # One millisecond over the threshold, so that the node is silent from its first judgement on.
    overdue_ms = _MISSED_INTERVALS * interval + 1 if is_lost else 0
    came_at_ms = now_ms - (beat.age_ms or 0)
    # A retained will is from before this listing began, maybe from a restart of the broker.
    broken_at_ms = came_at_ms if beat.is_broken and not beat.is_retained else None
    if before is None:
        changed_at_ms, counts_from_ms = came_at_ms, came_at_ms - overdue_ms
        usual_ms = min(interval, FALLBACK_MS)
    elif (before.beaten_at_ms, before.holder) != (beat.beaten_at_ms, beat.holder):
        changed_at_ms = counts_from_ms = came_at_ms
        usual_ms = _usual_interval_ms(before, interval)
    else:
        changed_at_ms, counts_from_ms = before.changed_at_ms, before.counts_from_ms
        usual_ms = before.usual_interval_ms
        if before.broken_at_ms is not None and (broken_at_ms is not None or is_lost):
            broken_at_ms = before.broken_at_ms
        if is_first:
            counts_from_ms = now_ms - overdue_ms
        elif is_blind and not is_lost:
            counts_from_ms = now_ms
            broken_at_ms = None if broken_at_ms is None else now_ms
        # Nothing changed: the same object, which saves 10,000 allocations in each listing.
        elif (before.interval_ms, before.broken_at_ms, before.is_missing) == (
            interval,
            broken_at_ms,
            False,
        ):
            return before
    return ObservedHeartbeat(
        beat.holder,
        beat.beaten_at_ms,
        interval,
        changed_at_ms,
        counts_from_ms,
        broken_at_ms,
        usual_ms,
        beat.blind,
    )


def _missing(
    before: ObservedHeartbeat, now_ms: int, *, is_lost: bool, is_fresh: bool
) -> ObservedHeartbeat:
    """Return the heartbeat of a node whose beat the store lost."""
    from_ms = before.counts_from_ms
    if is_lost:
        from_ms = min(from_ms, now_ms - before.threshold_ms - 1)
    elif is_fresh:
        from_ms = now_ms
    return msgspec.structs.replace(
        before, counts_from_ms=from_ms, broken_at_ms=None, is_missing=True
    )


def _usual_interval_ms(before: ObservedHeartbeat, interval: int) -> int:
    """Return the interval to expect the node's beats at after one with ``interval``.

    The beat that announces an absence is the last one of its agent: an interval is usual when two
    beats in a row have it. Until then 5 s, or what was usual before, unless the interval is less.
    """
    # A last beat before an absence announces a long interval; that must not become the usual one.
    return interval if interval == before.interval_ms else min(interval, before.usual_interval_ms)


def failed(listing: HeartbeatListing, problem: str) -> HeartbeatListing:
    """Return the state after a listing failed: no node falls silent."""
    return msgspec.structs.replace(listing, problem=problem)


def kept(holder: str, interval_ms: int, now_ms: int) -> ObservedHeartbeat:
    """Return the heartbeat of a node that beat in an earlier run."""
    usual_ms = min(interval_ms, FALLBACK_MS)
    return ObservedHeartbeat(
        holder, 0, interval_ms, now_ms, now_ms, usual_interval_ms=usual_ms, is_missing=True
    )


def beats(listing: HeartbeatListing, brake: Brake | None, node: str) -> bool | None:
    """Return whether the node beats in this store; ``None`` where that is not known."""
    if listing.listed_at_ms is None or listing.problem is not None:
        return None
    if brake is not None and node in brake.nodes:
        return None
    heartbeat = listing.heartbeats.get(node)
    return heartbeat is not None and listing.listed_at_ms <= heartbeat.silent_at_ms


def silenced(listing: HeartbeatListing, node: str) -> HeartbeatListing:
    """Return the listing with a node that another leader has found silent; it is until its beat
    changes.
    """
    heartbeat = listing.heartbeats.get(node)
    if heartbeat is None or listing.listed_at_ms is None:
        return listing
    from_ms = min(heartbeat.counts_from_ms, listing.listed_at_ms - heartbeat.threshold_ms - 1)
    silent = msgspec.structs.replace(heartbeat, counts_from_ms=from_ms)
    return msgspec.structs.replace(listing, heartbeats=listing.heartbeats | {node: silent})


def judge(before: LostNodes, listings: Sequence[HeartbeatListing], now_ms: int) -> LostNodes:
    """Return the lost nodes after the last listings; a node is silent where it is in every store.

    | it was | silent in every store      | it beats | absent, not all were read | absent |
    |--------|----------------------------|----------|---------------------------|--------|
    | well   | fresh once all were listed | well     | well                      | well   |
    | lost   | lost                       | well     | lost                      | well   |
    | held   | held                       | well     | well                      | well   |

    Those that are fresh are lost; if too many are together (``_are_many``), they are held, and so
    is a node that was lost within that threshold. A held node is lost after ``_longest_wait_ms``.
    """
    held_before = {} if before.brake is None else before.brake.nodes
    states = _states(listings, before.lost.keys() | held_before.keys())
    complete = all(listing.listed_at_ms is not None for listing in listings)
    silent = {node: state for node, state in states.items() if state.silent}
    lost = {
        node: at_ms
        for node, at_ms in before.lost.items()
        if node in silent or (node not in states and not complete)
    }
    held_nodes = {node: at_ms for node, at_ms in held_before.items() if node in silent}
    fresh = {
        node: state.silent_at_ms
        for node, state in silent.items()
        if complete and node not in lost and node not in held_nodes
    }
    if fresh:
        # The widest threshold among them: nodes with long intervals are noticed later for the same
        # cause.
        window_ms = max(states[node].threshold_ms for node in fresh)
        # Nodes lost just before belong to the same event and are taken back if the brake holds.
        lately = {node: at for node, at in lost.items() if now_ms - at <= window_ms}
        late = {node for node, state in states.items() if state.late and not state.silent}
        joined = [node for node, at_ms in held_nodes.items() if now_ms - at_ms <= window_ms]
        together = len(fresh) + len(lately) + len(late) + len(joined)
        # Those that were lost or held before this event do not count as beating.
        beating = len(states) - (len(lost) - len(lately)) - (len(held_nodes) - len(joined))
        if _are_many(together, beating):
            lost = {node: at for node, at in lost.items() if node not in lately}
            held_nodes |= lately | fresh
        else:
            lost |= fresh
    if not held_nodes:
        return LostNodes(lost)
    changed_at_ms = now_ms
    if before.brake is not None and held_nodes.keys() == before.brake.nodes.keys():
        changed_at_ms = before.brake.changed_at_ms
    readable = all(listing.problem is None for listing in listings)
    wait_ms = _longest_wait_ms(held_nodes, states, len(states) - len(lost))
    if readable and wait_ms is not None and now_ms - changed_at_ms > wait_ms:
        # LONG_AGO_MS keeps them out of ``lately``: the brake does not take them back once more.
        return LostNodes(lost | dict.fromkeys(held_nodes, LONG_AGO_MS))
    return LostNodes(lost, Brake(held_nodes, changed_at_ms))


def _are_many(nodes: int, beating: int) -> bool:
    # More than three and more than a fifth, in integers: n * 5 > beating.
    return nodes > _MAX_SILENT and nodes * _MAX_SILENT_PART > beating


def _longest_wait_ms(
    held_nodes: Mapping[str, int], states: Mapping[str, _State], beating: int
) -> int | None:
    """Return how long unchanged silence is held back; ``None`` for ever."""
    if not _are_many(len(held_nodes), beating):
        return max(states[node].threshold_ms for node in held_nodes)
    # More than half is held for as long as it lasts: what is broken then is more likely the way of
    # the beats.
    return _HOLD_MS if len(held_nodes) * _MAX_HELD_PART <= beating else None


def late(listing: HeartbeatListing) -> list[str]:
    """Return the nodes that have missed a beat."""
    at_ms = listing.listed_at_ms
    if at_ms is None:
        return []
    return [node for node, heartbeat in listing.heartbeats.items() if _is_late(heartbeat, at_ms)]


def _is_silent(heartbeat: ObservedHeartbeat, listed_at_ms: int | None) -> bool:
    return listed_at_ms is not None and listed_at_ms > heartbeat.silent_at_ms


def _is_late(heartbeat: ObservedHeartbeat, listed_at_ms: int) -> bool:
    quiet_ms = listed_at_ms - heartbeat.counts_from_ms
    return (
        heartbeat.broken_at_ms is not None
        or quiet_ms * 2 > _MISSED_INTERVALS * heartbeat.interval_ms
    )


def _states(listings: Iterable[HeartbeatListing], silent: Collection[str]) -> dict[str, _State]:
    """Return the state of each node; those in ``silent`` have been found silent before."""
    states: dict[str, _State] = {}
    for listing in listings:
        if listing.listed_at_ms is None:
            continue
        for node, heartbeat in listing.heartbeats.items():
            # True of nearly all nodes: nothing more is checked of those in time.
            state = _IN_TIME
            if _is_late(heartbeat, listing.listed_at_ms):
                state = _State(
                    silent=_is_silent(heartbeat, listing.listed_at_ms),
                    late=True,
                    silent_at_ms=heartbeat.silent_at_ms,
                    threshold_ms=heartbeat.threshold_ms,
                )
            if state.silent and listing.probes is not None and node not in silent:
                state = _probed(state, heartbeat, listing.listed_at_ms, listing.probes.get(node))
            other = states.get(node)
            states[node] = state if other is None else _livelier(state, other)
    return states


def _probed(
    state: _State, heartbeat: ObservedHeartbeat, listed_at_ms: int, probe: ProbeResult | None
) -> _State:
    """Return ``state`` of a node that is silent by its beats; a beat may be on its way
    for longer.
    """
    if probe is None or probe.took_ms is None:
        # While no dry run is accepted, no beat of the node can be accepted either.
        return msgspec.structs.replace(state, silent=False)
    silent_at_ms = _silent_at_ms(heartbeat, probe)
    return msgspec.structs.replace(
        state, silent=listed_at_ms > silent_at_ms, silent_at_ms=silent_at_ms
    )


def _silent_at_ms(heartbeat: ObservedHeartbeat, probe: ProbeResult | None) -> int:
    """Return the last steady time at which a node is not silent, by its beats and the probe."""
    at_ms = heartbeat.silent_at_ms
    if probe is None:
        return at_ms
    if probe.took_ms is not None and probe.took_ms > _QUICK_MS:
        # Twice as long as a dry run takes, and an interval (decision 15).
        patience_ms = 2 * probe.took_ms + min(heartbeat.interval_ms, FALLBACK_MS)
        at_ms = max(at_ms, heartbeat.counts_from_ms + patience_ms)
    if probe.refused_at_ms is not None:
        at_ms = max(at_ms, probe.refused_at_ms + heartbeat.threshold_ms)
    return at_ms


def _livelier(first: _State, other: _State) -> _State:
    # A node that beats in one of its stores is alive.
    return max(
        first, other, key=lambda state: (not state.silent, not state.late, state.silent_at_ms)
    )
