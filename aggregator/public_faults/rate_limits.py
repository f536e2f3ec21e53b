"""How much may be said: token buckets of a resource and of a resource about a node.

``clusterd#4.3`` without its defect B12: what upstream allows a whole resource is allowed
about each node, and only what is valid counts.
"""

from __future__ import annotations

NODE_BURST, NODE_PER_SECOND = 100, 1
RESOURCE_BURST, RESOURCE_PER_SECOND = 4000, 2000
_MOST_BUCKETS = 65_536


class MessageLimits:
    """Messages are counted in thousandths, as milliseconds go by."""

    def __init__(self) -> None:
        self._resources = _Buckets(RESOURCE_BURST, RESOURCE_PER_SECOND)
        self._nodes = _Buckets(NODE_BURST, NODE_PER_SECOND)

    def take(
        self, resource: str, nodes: frozenset[str], now_ms: int, *, whole: bool = False
    ) -> frozenset[str]:
        """Count a message about these nodes; returns those of which nothing may be said now.

        One that says nothing for that reason counts for nothing. ``whole``: neither does one of
        which a part may not be said.
        """
        refused = frozenset(node for node in nodes if not self._nodes.has((resource, node), now_ms))
        allowed = nodes - refused
        if not allowed or (whole and refused) or not self._resources.has((resource,), now_ms):
            return nodes
        self._resources.take((resource,))
        for node in allowed:
            self._nodes.take((resource, node))
        return refused


class _Buckets:
    def __init__(self, burst: int, per_second: int) -> None:
        self._burst = burst * 1000
        self._per_ms = per_second
        self._left: dict[tuple[str, ...], tuple[int, int]] = {}
        """Thousandths of a message, and the steady time at which they were counted."""

    def has(self, key: tuple[str, ...], now_ms: int) -> bool:
        left, at_ms = self._left.get(key, (self._burst, now_ms))
        left = min(self._burst, left + (now_ms - at_ms) * self._per_ms)
        if key not in self._left and len(self._left) >= _MOST_BUCKETS:
            self._purge(now_ms)
        self._left[key] = left, now_ms
        return left >= 1000

    def take(self, key: tuple[str, ...]) -> None:
        left, at_ms = self._left[key]
        self._left[key] = left - 1000, at_ms

    def _purge(self, now_ms: int) -> None:
        """Leave out the full ones; if nearly all are in use, begin anew: memory has an end."""
        used = {
            key: (left, at_ms)
            for key, (left, at_ms) in self._left.items()
            if left + (now_ms - at_ms) * self._per_ms < self._burst
        }
        self._left = used if len(used) < _MOST_BUCKETS // 2 else {}
