"""The conditions and taints that Nodes have, by their watch and by the answers to our writes.

Of two versions of a Node the later one counts, in whatever order they arrive: the answer to a write
is often newer than events of the watch that are on their way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.node_signals import node_signals
from stores.cluster import ObjectKind, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from contract.node_signals import NodeSignals
    from stores.cluster import Update

KIND: ObjectKind[NodeSignals] = ObjectKind(
    "conditions and taints of Nodes", "/api/v1/nodes", node_signals, by_name=True
)


class ObservedNodes:
    """All Nodes.

    Each of ``on_change`` gets the name of a Node and what it had before, when its uid, its taints
    or its conditions of our types change. Answers to our own writes are not such a change.
    """

    def __init__(self) -> None:
        self.on_change: list[Callable[[str, NodeSignals | None], None]] = []
        self._nodes: dict[str, NodeSignals] = {}

    def get(self, node: str) -> NodeSignals | None:
        """Return what a Node has; ``None`` where there is none."""
        return self._nodes.get(node)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of all Nodes."""
        return iter(self._nodes)

    def apply_node_event(self, event: Snapshot[NodeSignals] | Update[NodeSignals]) -> None:
        """Apply an event of the watch."""
        if isinstance(event, Snapshot):
            for node in self._nodes.keys() - event.items.keys() - event.unreadable:
                self._set(node, None)
            for node, seen in event.items.items():
                self._set(node, seen)
        else:
            self._set(event.key, event.value)

    def read(self, node: str, seen: NodeSignals | None) -> None:
        """Take over what was read by name, ``None`` for a Node that is gone."""
        self._set(node, seen)

    def acknowledge(self, node: str, written: NodeSignals) -> None:
        """Take over the answer to our own write."""
        if not _is_older(written, self._nodes.get(node)):
            self._nodes[node] = written

    def _set(self, node: str, seen: NodeSignals | None) -> None:
        before = self._nodes.get(node)
        if seen is None:
            self._nodes.pop(node, None)
        elif _is_older(seen, before):
            return
        else:
            self._nodes[node] = seen
        # Most events are heartbeats of kubelets, which change the version alone.
        if _content(before) != _content(seen):
            for on_change in self.on_change:
                on_change(node, before)


def _content(seen: NodeSignals | None) -> object:
    return None if seen is None else (seen.uid, seen.conditions, seen.taints)


def _is_older(seen: NodeSignals, current: NodeSignals | None) -> bool:
    """Return whether ``seen`` is an earlier version than ``current``.

    Versions of an API server are numbers that grow, by the contract of Kubernetes since 1.35.
    """
    if current is None or not (seen.version.isdigit() and current.version.isdigit()):
        return False
    return int(seen.version) < int(current.version)
