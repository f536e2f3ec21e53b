"""The public faults that hold, those that ended a moment ago, and those that end by time.

``clusterd#4.4`` without its defects (B22, B23). The newest report of a resource about a fault
counts. Messages may overtake each other: one with an older time than the newest one, and that was
on its way for a minute at most if so, changes nothing. Beyond that the sender's clock was set back,
and the order of arrival counts, as it does where both have the same time.

A node that was deleted and comes back within a day has its faults again: a server is taken out of
the cluster to be repaired, or its objects are lost by mistake. After that it counts as another node
(defect B22).
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from msgspec.structs import replace

from aggregator.public_faults.values import ActivePublicFault, EndedFault, FaultOutcome

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from aggregator.public_faults.values import Key, NodeLookup, PublicFaultReport, Rows
    from service.clock import Instant

# Upstream deletes a fault 5 s after it was added at the earliest (clusterd#4.4).
MIN_HOLD_MS = 5000
"""How long a fault holds at least, and how long a one-off fault holds."""

OVERTAKEN_MS = 60_000
"""How long a message may be on its way."""

# Upstream's limit of 50,000 entries (clusterd#4.4).
MAX_FAULTS = 50_000
MAX_FAULTS_PER_NODE = 5000
"""More than ``statistic-fault-info`` shows. One node's faults take no room from all others, and are
judged within a moment.
"""

_MAX_ENDED = 50_000


class ActiveFaults:
    """The faults by node. ``rows`` has the same for the next run.

    ``revision`` grows with every change of what holds.
    """

    def __init__(self, rows: Rows) -> None:
        self.count = 0
        self.revision = 0
        self.dirty: set[str] = set()
        """Nodes of which something changed that is shown."""
        self.was_used = False
        """Whether a fault has ever held."""
        self.unplaced: set[Key] = set()
        self._rows = rows
        self._nodes: dict[str, dict[tuple[str, str], ActivePublicFault]] = {}
        self._over: dict[Key, EndedFault] = {}
        self._due: dict[Key, int] = {}
        """The steady time at which a fault, or the memory of its end, ends by itself."""
        # May have entries that were put off; ``_due`` decides, and ``_schedule`` rebuilds it when
        # most are old.
        self._heap: list[tuple[int, Key]] = []
        self._own_levels: set[str] = set()
        """Resources whose faults have levels that no table decides (``hold``)."""

    @property
    def nodes(self) -> Mapping[str, Mapping[tuple[str, str], ActivePublicFault]]:
        """The faults that hold, by node, then by resource and fault id."""
        return self._nodes

    def get(self, key: Key) -> ActivePublicFault | None:
        """Return the fault with this key; ``None`` where it does not hold."""
        return self._nodes.get(key[0], {}).get(key[1:])

    def is_newer(self, report: PublicFaultReport) -> bool:
        """Return whether the report is newer than all that is known of its fault."""
        # The memory of an end counts, too, or a late ``occur`` would bring the fault back.
        newest = self.get(report.key) or self._over.get(report.key)
        return newest is None or newest.reported_at_ms < report.reported_at_ms

    def full(self, node: str) -> str | None:
        """Return why no further fault of ``node`` may be added; ``None``: there is room for it."""
        if self.count >= MAX_FAULTS:
            return f"{MAX_FAULTS} faults stand"
        if len(self._nodes.get(node, ())) >= MAX_FAULTS_PER_NODE:
            return f"{MAX_FAULTS_PER_NODE} faults of node {node!r} stand"
        return None

    def apply_report(
        self, report: PublicFaultReport, level: str, now: Instant, *, placed: bool
    ) -> FaultOutcome:
        """Apply a report; ``level`` is that of its code."""
        key = report.key
        before: ActivePublicFault | EndedFault | None = self.get(key) or self._over.get(key)
        if before is not None and _was_overtaken(report, before):
            return FaultOutcome.OVERTAKEN
        standing = before if isinstance(before, ActivePublicFault) else None
        if report.assertion == "recover":
            return self._recover(report, standing, now)
        # Upstream changes neither devices, code nor time of a fault that holds (clusterd#4.4).
        if standing is not None and standing.ends_at_ms is None:
            newer = replace(
                standing, reported_at_ms=report.reported_at_ms, received_at_ms=report.received_at_ms
            )
            self._nodes[key[0]][key[1:]] = newer
            # Times alone are not worth a write; they are stored with the next change of the bucket.
            self._rows.put_quietly("fault", key, newer)
            return FaultOutcome.KNOWN
        if standing is None and self.full(report.node) is not None:
            return FaultOutcome.FULL
        ends = report.assertion == "once"
        # Also for one that is about to end: an ``occur`` within these 5 s lets it hold on.
        self._put(
            ActivePublicFault(
                *key,
                report.fault_type,
                report.code,
                level,
                report.devices,
                report.time_seconds,
                now.wall_ms,
                report.reported_at_ms,
                report.received_at_ms,
                now.wall_ms + MIN_HOLD_MS if ends else None,
                placed,
            )
        )
        self._schedule(key, now.steady_ms + MIN_HOLD_MS if ends else None)
        return FaultOutcome.ADDED

    def _recover(
        self, report: PublicFaultReport, standing: ActivePublicFault | None, now: Instant
    ) -> FaultOutcome:
        # The end is remembered: the ``occur`` that it ends may still be on its way.
        if standing is None:
            self._record_end(report.key, report.reported_at_ms, report.received_at_ms, now)
            return FaultOutcome.ABSENT
        return self._end(standing, report.reported_at_ms, report.received_at_ms, now)

    def _end(
        self, standing: ActivePublicFault, reported_at_ms: int, received_at_ms: int, now: Instant
    ) -> FaultOutcome:
        """End a fault that holds, after ``MIN_HOLD_MS`` at the earliest."""
        left_ms = _left_ms(standing.added_at_ms + MIN_HOLD_MS, now)
        if left_ms == 0:
            self._drop(standing.key)
            self._record_end(standing.key, reported_at_ms, received_at_ms, now)
            return FaultOutcome.ENDED
        ending = replace(
            standing,
            reported_at_ms=reported_at_ms,
            received_at_ms=received_at_ms,
            ends_at_ms=now.wall_ms + left_ms,
        )
        self._put(ending)
        self._schedule(standing.key, now.steady_ms + left_ms)
        return FaultOutcome.ENDING

    def hold(
        self, node: str, resource: str, wanted: Iterable[ActivePublicFault], now: Instant
    ) -> None:
        """Let exactly ``wanted`` hold of ``resource`` on ``node``; others of it end.

        For a source that reports its whole state each time. Its faults keep their own levels.
        """
        standing = {
            key: fault for key, fault in self._nodes.get(node, {}).items() if key[0] == resource
        }
        self._own_levels.add(resource)
        for fault in wanted:
            before = standing.pop(fault.key[1:], None)
            if before is None:
                # Without an answer to a sender: such a source reports its whole state again.
                if self.full(node) is None:
                    self._put(fault)
            elif before.ends_at_ms is not None or _shown(before) != _shown(fault):
                self._put(replace(fault, added_at_ms=before.added_at_ms))
                self._schedule(fault.key, None)
        for before in standing.values():
            if before.ends_at_ms is None:
                # Not before its last report, so that it does not look overtaken.
                at_ms = max(now.wall_ms, before.reported_at_ms)
                self._end(before, at_ms, at_ms, now)

    def adopt(self, standing: ActivePublicFault) -> bool:
        """Take over a fault of another program, unless more is known here."""
        newest = self.get(standing.key) or self._over.get(standing.key)
        # What another program left is older than anything that came here.
        if newest is not None or self.count >= MAX_FAULTS:
            return False
        self._put(standing)
        return True

    def restore_faults(
        self, faults: Iterable[ActivePublicFault], over: Iterable[EndedFault], now: Instant
    ) -> None:
        """Begin anew with what an earlier run has kept."""
        self.dirty |= self._nodes.keys()
        self._nodes.clear()
        self._over.clear()
        self._due.clear()
        self._heap.clear()
        self.unplaced.clear()
        self.count = 0
        for standing in faults:
            self._put(standing)
            if standing.ends_at_ms is not None:
                left_ms = _left_ms(standing.ends_at_ms, now)
                self._schedule(standing.key, now.steady_ms + left_ms)
        for ended in over:
            if self.get(ended.key) is None:
                self._record_end(ended.key, ended.reported_at_ms, ended.received_at_ms, now)

    def step(self, now: Instant) -> None:
        """End the faults that are due."""
        while self._heap and self._heap[0][0] <= now.steady_ms:
            due_ms, key = heapq.heappop(self._heap)
            # The heap is not searched when a time changes: old entries are skipped here.
            if self._due.get(key) != due_ms:
                continue  # it was put off, or does not end any more
            del self._due[key]
            standing = self.get(key)
            if standing is None:
                self._over.pop(key, None)
                self._rows.drop("over", key)
            else:
                self._drop(key)
                self._record_end(key, standing.reported_at_ms, standing.received_at_ms, now)

    def next_due_ms(self) -> int | None:
        """Return the steady time at which ``step`` has something to do."""
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def judge_again(self, levels: Mapping[str, str]) -> None:
        """Apply another table. A fault whose code it lacks keeps its level."""
        for standing in [fault for faults in self._nodes.values() for fault in faults.values()]:
            if standing.resource in self._own_levels:
                continue
            # A code that a table no longer has keeps its fault: only ``recover`` ends it.
            level = levels.get(standing.code, standing.level)
            if level != standing.level:
                self._put(replace(standing, level=str(level)))

    def place(self, key: Key, devices: tuple[int, ...]) -> None:
        """Set the chips of a fault that exist; without any it ends."""
        standing = self.get(key)
        self.unplaced.discard(key)
        if standing is None:
            return
        if devices:
            self._put(replace(standing, devices=devices, placed=True))
        else:
            self._drop(key)

    def forget(self, node: str) -> int:
        """Drop everything about a node; return how many faults that were."""
        keys = [fault.key for fault in self._nodes.get(node, {}).values()]
        for key in keys:
            self._drop(key)
        return len(keys)

    def codes(self, resource: str) -> frozenset[str]:
        """Return the codes of all faults of ``resource`` that hold."""
        return frozenset(
            fault.code
            for faults in self._nodes.values()
            for fault in faults.values()
            if fault.resource == resource
        )

    def _put(self, standing: ActivePublicFault) -> None:
        key = standing.key
        faults = self._nodes.setdefault(key[0], {})
        before = faults.get(key[1:])
        self.count += before is None
        self.was_used = True
        faults[key[1:]] = standing
        if not standing.placed:
            self.unplaced.add(key)
        if self._over.pop(key, None) is not None:
            self._rows.drop("over", key)
        self._rows.put("fault", key, standing)
        if before is None or _shown(before) != _shown(standing):
            self.dirty.add(key[0])
            self.revision += 1

    def _drop(self, key: Key) -> None:
        faults = self._nodes[key[0]]
        del faults[key[1:]]
        if not faults:
            del self._nodes[key[0]]
        self.count -= 1
        self.unplaced.discard(key)
        self._due.pop(key, None)
        self._rows.drop("fault", key)
        self.dirty.add(key[0])
        self.revision += 1

    def _record_end(self, key: Key, reported_at_ms: int, received_at_ms: int, now: Instant) -> None:
        # After a minute no message can be overtaken any more, so the end need not be remembered.
        left_ms = received_at_ms + OVERTAKEN_MS - now.wall_ms
        if left_ms <= 0:
            return
        if len(self._over) >= _MAX_ENDED and key not in self._over:
            # Insertion order is the order of ends.
            oldest = next(iter(self._over))
            del self._over[oldest], self._due[oldest]
            self._rows.drop("over", oldest)
        self._over[key] = over = EndedFault(*key, reported_at_ms, received_at_ms)
        self._rows.put("over", key, over)
        self._schedule(key, now.steady_ms + min(left_ms, OVERTAKEN_MS))

    def _schedule(self, key: Key, due_ms: int | None) -> None:
        if due_ms is None:
            self._due.pop(key, None)
        elif self._due.get(key) != due_ms:
            self._due[key] = due_ms
            heapq.heappush(self._heap, (due_ms, key))
            # A fault that is put off again and again must not fill the heap; the rebuild is rare.
            if len(self._heap) > 2 * len(self._due) + 1000:
                self._heap = [(at, key) for key, at in self._due.items()]
                heapq.heapify(self._heap)


def _was_overtaken(report: PublicFaultReport, newest: ActivePublicFault | EndedFault) -> bool:
    late_ms = newest.reported_at_ms - report.reported_at_ms
    # The time between the two arrivals is not a delay on the way: only what is left of the minute
    # counts.
    waited_ms = max(0, report.received_at_ms - newest.received_at_ms)
    return 0 < late_ms <= OVERTAKEN_MS - waited_ms


def _left_ms(at_ms: int, now: Instant) -> int:
    """Return how long until a wall time that is 5 s ahead at most: clocks are set back."""
    # At most ``MIN_HOLD_MS``, however far the wall clock was set back since it was stored.
    return min(max(0, at_ms - now.wall_ms), MIN_HOLD_MS)


def _shown(standing: ActivePublicFault) -> tuple[object, ...]:
    return standing.code, standing.level, standing.devices, standing.time_seconds, standing.placed


AWAY_MS = 24 * 3600 * 1000
# Faults of a deleted node go after a day (``AWAY_MS``), so a minute more is of no importance.
_CHECK_MS = 60_000


class DeletedNodes:
    """Nodes with faults that do not exist any more; checked once a minute."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._since: dict[str, tuple[int, int]] = {}
        """Wall and steady time of the check that did not find it."""
        self._checked_ms: int | None = None

    def pop_lost(self, nodes: Collection[str], node_lookup: NodeLookup, now: Instant) -> list[str]:
        """Return and forget the nodes with faults that have been away for too long."""
        if self._checked_ms is not None and now.steady_ms < self._checked_ms + _CHECK_MS:
            return []
        self._checked_ms = now.steady_ms
        for node in [
            node for node in self._since if node not in nodes or node_lookup.has_node(node)
        ]:
            self._forget(node)
        for node in nodes:
            if node not in self._since and not node_lookup.has_node(node):
                self._since[node] = now
                self._rows.put("away", (node,), now.wall_ms)
        lost = [node for node, (_, at) in self._since.items() if now.steady_ms - at >= AWAY_MS]
        for node in lost:
            self._forget(node)
        return lost

    def next_due_ms(self, nodes: Collection[str]) -> int | None:
        """Return the steady time of the next check."""
        if not nodes and not self._since:
            return None
        return 0 if self._checked_ms is None else self._checked_ms + _CHECK_MS

    def since(self) -> dict[str, int]:
        """Return the deleted nodes, each with the wall time of the check that missed it."""
        return {node: wall_ms for node, (wall_ms, _) in sorted(self._since.items())}

    def restore_nodes(self, away: Mapping[str, int], now: Instant) -> None:
        """Restore the state of an earlier run."""
        self._since.clear()
        for node, wall_ms in away.items():
            # A clock that was set back counts as no time, one that was set ahead as a day at most.
            gone_ms = min(max(0, now.wall_ms - wall_ms), AWAY_MS)
            self._since[node] = wall_ms, now.steady_ms - gone_ms
            self._rows.put("away", (node,), wall_ms)

    def _forget(self, node: str) -> None:
        del self._since[node]
        self._rows.drop("away", (node,))
