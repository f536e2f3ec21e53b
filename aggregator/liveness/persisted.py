"""State of heartbeats for the next leader, in the store: which nodes fell silent and since when.

While heartbeats keep changing, nothing is stored of those of the stores, and of those of old
releases only that they were seen to change. The rows have the form of their first reader's,
``node-heartbeat`` (``noded#7.5`` and H7): ``NodeName``, ``HeartbeatTime`` and ``UpdateTime`` in
Unix seconds, and more for beats of the stores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from typing_extensions import override

from aggregator.liveness.persisted_row import LastSeen, changed_at_seconds
from aggregator.plugin import Persistent
from aggregator.state_buckets import ChangedBuckets, bucket_of, decoded
from contract.names import node_name_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aggregator.liveness.legacy_watch import LegacyHeartbeatWatch
    from aggregator.liveness.lost_nodes import HeartbeatListing
    from service.clock import Clock, Instant

_BUCKETS = 16
"""100 bytes for each of 16,000 nodes are 100 KB a document."""
# State of nodes that are silent but not lost yet; a leader that dies loses half a minute of it.
_PERIOD_MS = 30_000
"""Between two records of the state; a node that is lost is recorded at once."""


_decoder = msgspec.json.Decoder(list[LastSeen])


def decode(content: str) -> tuple[LastSeen, ...]:
    """Decode a document. Raises ``msgspec.DecodeError`` and ``RecursionError``."""
    # Names are checked: whoever may write the document must not make up keys for pages and logs.
    return tuple(row for row in _decoder.decode(content) if node_name_problem(row.node) is None)


def encode(seen: Iterable[LastSeen]) -> str:
    """Encode a document, sorted by node."""
    return msgspec.json.encode(sorted(seen, key=lambda row: (row.node, row.holder))).decode()


class PersistedHeartbeats(Persistent):
    """Persistent state of the heartbeats of all stores (``aggregator.plugin.Persistent``).

    ``changed`` is called when there is something to store.
    """

    name = "heartbeats"

    def __init__(
        self,
        old: Iterable[LegacyHeartbeatWatch],
        clock: Clock,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._old = tuple(old)
        self._clock = clock
        self._on_change = changed
        # Node, and whether the beat is one of a store (else of an old release).
        self._rows: dict[tuple[str, bool], LastSeen] = {}
        self._texts: dict[str, str] = {}
        self._changed = ChangedBuckets()
        self._has_begun = False
        self._recorded_at_ms = 0
        self.restored: tuple[LastSeen, ...] = ()
        """Beats of the stores, as the leader before has seen them."""

    def record_periodically(self, own: Iterable[HeartbeatListing]) -> None:
        """Record the state if that is due, see ``record``."""
        if self._clock().steady_ms - self._recorded_at_ms > _PERIOD_MS:
            self.record(own)

    def record(self, own: Iterable[HeartbeatListing]) -> None:
        """Record the state now; ``own`` are the last listings of the stores."""
        self._has_begun = True
        self._recorded_at_ms = self._clock().steady_ms
        rows: dict[tuple[str, bool], LastSeen] = {}
        for watch in self._old:
            for row in watch.last_seen():
                rows[row.node, False] = self._settled(row)
        for row in _silent(own, self._clock()):
            rows[row.node, True] = self._settled(row)
        self._rows = rows
        texts: dict[str, list[LastSeen]] = {}
        for row in rows.values():
            # One hexadecimal digit is enough for 16 buckets.
            texts.setdefault(bucket_of(row.node, _BUCKETS, "x"), []).append(row)
        now = {bucket: encode(rows) for bucket, rows in texts.items()}
        names = now.keys() | self._texts.keys()
        changed = {name for name in names if now.get(name) != self._texts.get(name)}
        self._texts = now
        self._changed.add(*changed)
        if changed:
            self._on_change()

    def _settled(self, row: LastSeen) -> LastSeen:
        """Return the row as it was recorded first: two clocks never agree to the second
        for long.
        """
        before = self._rows.get((row.node, bool(row.holder)))
        if (
            before is not None
            and before.changed_at_seconds
            and row.changed_at_seconds
            and msgspec.structs.replace(before, changed_at_seconds=row.changed_at_seconds) == row
        ):
            return before
        return row

    @override
    def pop_changed(self) -> frozenset[str]:
        return self._changed.pop()

    @override
    def text(self, bucket: str) -> str | None:
        return self._texts.get(bucket)

    @override
    def restore(self, texts: Mapping[str, str], now: Instant) -> Iterable[str]:
        """See ``Persistent``. A follower has listened for itself and knows better."""
        # Its own observation is as new as can be, so the state of the other leader is not used.
        if self._has_begun:
            return ()
        buckets, problems = decoded(texts, decode)
        seen = [row for rows in buckets.values() for row in rows]
        self._texts = dict(texts)
        self._rows = {(row.node, bool(row.holder)): row for row in seen}
        for watch in self._old:
            watch.restore_seen(row for row in seen if not row.holder)
        self.restored = tuple(row for row in seen if row.holder)
        return problems


def _silent(listings: Iterable[HeartbeatListing], now: Instant) -> Iterable[LastSeen]:
    for listing in listings:
        for node, heartbeat in listing.heartbeats.items():
            if heartbeat.holder and now.steady_ms > heartbeat.silent_at_ms:
                seconds = changed_at_seconds(heartbeat, now)
                yield LastSeen(node, 0, seconds, heartbeat.holder, heartbeat.beaten_at_ms)
