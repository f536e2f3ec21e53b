"""Deleted nodes with public faults.

A node that comes back within a day has its faults again: a server is taken out of the cluster to be
repaired, or its objects are lost by mistake. After that it counts as another node (defect B22).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from aggregator.public_faults.persisted_rows import Rows
    from aggregator.public_faults.values import NodeLookup
    from service.clock import Instant

AWAY_MS = 24 * 3600 * 1000
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
        for node in [one for one in self._since if one not in nodes or node_lookup.has_node(one)]:
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

    def restore(self, away: Mapping[str, int], now: Instant) -> None:
        """Restore the state of an earlier run."""
        self._since.clear()
        for node, wall_ms in away.items():
            gone_ms = min(max(0, now.wall_ms - wall_ms), AWAY_MS)
            self._since[node] = wall_ms, now.steady_ms - gone_ms
            self._rows.put("away", (node,), wall_ms)

    def _forget(self, node: str) -> None:
        del self._since[node]
        self._rows.drop("away", (node,))
