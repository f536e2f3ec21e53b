"""Limits of messages: token buckets of a resource, and of a resource about a node.

``clusterd#4.3`` without its defect B12: the limit that upstream has for a whole resource is for
each node here, and only what is valid counts.
"""

from __future__ import annotations

from pacing.token_bucket import TokenBucket

NODE_BURST, NODE_PER_SECOND = 100, 1
RESOURCE_BURST, RESOURCE_PER_SECOND = 4000, 2000
_MOST_BUCKETS = 65_536


class MessageLimits:
    """Counts messages by resource, and by resource and node."""

    def __init__(self) -> None:
        self._resources = _Buckets(RESOURCE_BURST, RESOURCE_PER_SECOND)
        self._nodes = _Buckets(NODE_BURST, NODE_PER_SECOND)

    def take(
        self, resource: str, nodes: frozenset[str], now_ms: int, *, whole: bool = False
    ) -> frozenset[str]:
        """Count a message about these nodes; return those about which it may report nothing now.

        A message that may report nothing counts for nothing. ``whole``: neither does one of which a
        part is limited.
        """
        buckets = {node: self._nodes.of((resource, node), now_ms) for node in nodes}
        refused = frozenset(node for node, one in buckets.items() if one.wait_ms(now_ms))
        allowed = nodes - refused
        of_resource = self._resources.of((resource,), now_ms)
        if not allowed or (whole and refused) or of_resource.wait_ms(now_ms):
            return nodes
        of_resource.take()
        for node in allowed:
            buckets[node].take()
        return refused


class _Buckets:
    def __init__(self, burst: int, per_second: int) -> None:
        self._limits = burst, per_second
        self._buckets: dict[tuple[str, ...], TokenBucket] = {}

    def of(self, key: tuple[str, ...], now_ms: int) -> TokenBucket:
        """Return the bucket of ``key``, a full one where it has none."""
        found = self._buckets.get(key)
        if found is None:
            if len(self._buckets) >= _MOST_BUCKETS:
                self._purge(now_ms)
            found = self._buckets[key] = TokenBucket(*self._limits)
        return found

    def _purge(self, now_ms: int) -> None:
        """Remove the full buckets; if nearly all are in use, remove all: memory has an end."""
        used = {key: one for key, one in self._buckets.items() if not one.is_full(now_ms)}
        self._buckets = used if len(used) < _MOST_BUCKETS // 2 else {}
