"""Nodes on which pods never end: silent for us, and NotReady for Kubernetes. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable


class _Condition(msgspec.Struct, rename="camel"):
    type: str = ""
    status: str = ""
    last_transition_time: datetime | None = None


class _Status(msgspec.Struct):
    conditions: list[_Condition] | None = None


class _Node(msgspec.Struct):
    status: _Status | None = None


_nodes = msgspec.json.Decoder(_Node)


def not_ready_since_ms(raw: bytes) -> int:
    """Return since when a Node is not Ready (wall); 0 where it is, or where that is not known.

    Raises ``msgspec.DecodeError``.
    """
    status = _nodes.decode(raw).status or _Status()
    for one in status.conditions or ():
        if one.type == "Ready" and one.status != "True" and one.last_transition_time is not None:
            return int(one.last_transition_time.timestamp() * 1000)
    return 0


GAP_MS = 30_000
"""Between two looks; a node that came back within it is silent again only later than that."""


class SilentNodes:
    """Since when nodes are silent, as far as this process has seen it without a gap."""

    def __init__(self) -> None:
        self._since_ms: dict[str, int] = {}
        self._looked_at_ms = 0

    def look(self, silent: Iterable[str], now_ms: int) -> None:
        """Take in which nodes are silent now. ``now_ms`` is the steady clock."""
        if now_ms - self._looked_at_ms > GAP_MS:
            self._since_ms = {}
        self._looked_at_ms = now_ms
        self._since_ms = {node: self._since_ms.get(node, now_ms) for node in silent}

    def lasts(self, node: str, for_ms: int, now_ms: int) -> bool:
        """Whether a node has been silent for longer than ``for_ms``."""
        since_ms = self._since_ms.get(node)
        return since_ms is not None and now_ms - since_ms > for_ms
