"""Stores whose heartbeats were not listed for so long that their nodes are unknown.

Pure. Without a listing a node is not known to be alive. It does not fall silent by that either: see
``liveness.failed``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aggregator.liveness import lost_nodes as liveness
from contract.sentences import sentence
from service.clock import shown_time

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aggregator.liveness.lost_nodes import HeartbeatListing
    from service.clock import Instant

# Decision 22: two periods, at least 10 s.
_PERIODS = 2
MIN_UNREAD_MS = 10_000
_LONG_MS = 30_000


class Unread(msgspec.Struct, frozen=True):
    """Why the nodes of one place are unknown. ``is_long``: the aggregator is not ready for it."""

    text: str
    is_long: bool


def ages_ms(
    listings: Mapping[str, HeartbeatListing], began_ms: int, now: Instant
) -> dict[str, int]:
    """Return how long ago each place was listed.

    One that was never listed counts from ``began_ms`` (steady time).
    """
    return {
        place: now.steady_ms - (began_ms if listing.listed_at_ms is None else listing.listed_at_ms)
        for place, listing in listings.items()
    }


def unread(
    listings: Mapping[str, HeartbeatListing], began_ms: int, now: Instant
) -> dict[str, Unread]:
    """Return the places without a listing for two periods, at least 10 s. See ``ages_ms``."""
    places = {}
    for place, age_ms in ages_ms(listings, began_ms, now).items():
        listing = listings[place]
        period_ms = liveness.listing_period_ms([listing])
        patience_ms = max(MIN_UNREAD_MS, _PERIODS * period_ms)
        if age_ms > patience_ms:
            text = sentence(
                "the heartbeats in {place} have not been read since {time} ({seconds} s ago): "
                "{reason}",
                place=place,
                time=shown_time(now.wall_ms - age_ms),
                seconds=f"{age_ms / 1000:.0f}",
                reason=listing.problem or sentence("there is no answer yet"),
            )
            # The trouble may be younger than the last listing, by a period at most.
            is_long = age_ms > max(_LONG_MS + period_ms, patience_ms)
            places[place] = Unread(text, is_long)
    return places
