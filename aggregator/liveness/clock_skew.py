"""Estimate how far each node's clock is from the observer's, by its heartbeats. Pure.

A beat that is in one listing and not in the one before was made between the two. So one beat bounds
the difference, give or take the time between listings; several beats together narrow it to what all
their bounds have in common. The smallest difference within the bounds is shown, so that a late
listing never looks like a wrong clock. When bounds contradict each other a clock was set, and the
estimate begins anew. Old readers compared clocks (``docs/spec/noded.md#7.5``).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aggregator.liveness.lost_nodes import ObservedHeartbeat
    from stores.base import Beat

WARNING_MS = 2000


class Skew(msgspec.Struct, frozen=True, gc=False):
    """The node's clock is ahead of ours by something between the two (milliseconds)."""

    low_ms: float
    high_ms: float

    @property
    def least_ms(self) -> float:
        """The smallest difference within the bounds."""
        return min(max(self.low_ms, 0), self.high_ms)


class Skews(msgspec.Struct, frozen=True):
    """All nodes of one store, and when it was asked for its last listing (our wall clock)."""

    nodes: dict[str, Skew] = {}
    requested_at_ms: int | None = None


def observed(
    before: Skews,
    heartbeats: Mapping[str, ObservedHeartbeat],
    beats: Iterable[Beat],
    requested_at_ms: int,
    now_ms: int,
) -> Skews:
    """Return the bounds after a listing that was requested and answered at these times of our
    clock.

    ``heartbeats`` are those before it. Where the store has the age of a beat, that is exact.
    """
    nodes: dict[str, Skew] = {}
    for beat in beats:
        earlier = before.nodes.get(beat.node)
        heartbeat = heartbeats.get(beat.node)
        if heartbeat is not None and heartbeat.is_missing:
            heartbeat = None  # what comes back may be of any age
        is_same = heartbeat is not None and heartbeat.beaten_at_ms == beat.beaten_at_ms
        # The same beat again bounds nothing new; a last will comes from the broker, at a time of
        # its own.
        if beat.is_broken or is_same:
            if earlier is not None:
                nodes[beat.node] = earlier
            continue
        low: float
        high: float
        if beat.age_ms is not None:
            low = high = beat.beaten_at_ms - (now_ms - beat.age_ms)
            # A retained message has been at the broker for an unknown time.
            if heartbeat is None or beat.is_retained:
                high = math.inf  # it may have been retained for long
        else:
            low = beat.beaten_at_ms - now_ms
            is_first = heartbeat is None or before.requested_at_ms is None
            high = math.inf if is_first else beat.beaten_at_ms - (before.requested_at_ms or 0)
        nodes[beat.node] = _narrowed(earlier, low, high)
    return Skews(nodes, requested_at_ms)


def _narrowed(earlier: Skew | None, low: float, high: float) -> Skew:
    if earlier is None:
        return Skew(low, high)
    # The same object: most beats narrow nothing, and 10,000 nodes are compared in each listing.
    if low <= earlier.low_ms and earlier.high_ms <= high:
        return earlier
    low_both, high_both = max(low, earlier.low_ms), min(high, earlier.high_ms)
    # Bounds that exclude each other mean that a clock was set: only the new ones hold.
    return Skew(low_both, high_both) if low_both <= high_both else Skew(low, high)


def wrong(skews: Iterable[Skews]) -> frozenset[str]:
    """Return the nodes whose clock is certainly more than 2 s off."""
    # Cheap comparisons first: the smallest difference is computed for few nodes.
    return frozenset(
        node
        for of_store in skews
        for node, skew in of_store.nodes.items()
        if (skew.low_ms > WARNING_MS or skew.high_ms < -WARNING_MS)
        and abs(skew.least_ms) > WARNING_MS
    )
