"""Rows of heartbeats in the persistent state, and the heartbeats that are restored from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aggregator.liveness.legacy_rules import HOLDER
from aggregator.liveness.lost_nodes import FALLBACK_MS, HeartbeatListing, ObservedHeartbeat

if TYPE_CHECKING:
    from collections.abc import Iterable

    from service.clock import Instant


class LastSeen(msgspec.Struct, frozen=True, omit_defaults=True):
    """The heartbeat that a node had, and when by the observer's clock that had changed last.

    Times of 0: the heartbeat kept changing. A beat of a store has ``holder`` and ``beaten_at_ms``
    instead of ``heartbeat_seconds``.
    """

    node: str = msgspec.field(name="NodeName")
    heartbeat_seconds: int = msgspec.field(name="HeartbeatTime", default=0)
    changed_at_seconds: int = msgspec.field(name="UpdateTime", default=0)
    holder: str = msgspec.field(name="Holder", default="")
    beaten_at_ms: int = msgspec.field(name="BeatenAtMs", default=0)


def changed_at_seconds(heartbeat: ObservedHeartbeat, now: Instant) -> int:
    """Return the wall time of the last change of a heartbeat, at least 1."""
    # 0 is the sign for "kept changing", so the smallest real time is 1.
    return max(1, (now.wall_ms - (now.steady_ms - heartbeat.changed_at_ms)) // 1000)


def remembered(rows: Iterable[LastSeen], now: Instant) -> HeartbeatListing:
    """Return the heartbeats that an earlier run has seen, with their ages by our steady clock."""
    heartbeats = {}
    for row in rows:
        changed_at_ms = row.changed_at_seconds * 1000 or now.wall_ms
        # ``max``: a time in the future, by another clock, counts as now.
        at_ms = now.steady_ms - max(0, now.wall_ms - changed_at_ms)
        beaten_at_ms = row.beaten_at_ms or row.heartbeat_seconds * 1000
        heartbeats[row.node] = ObservedHeartbeat(
            row.holder or HOLDER, beaten_at_ms, FALLBACK_MS, at_ms, at_ms
        )
    return HeartbeatListing(heartbeats)
