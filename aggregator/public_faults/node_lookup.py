"""Which nodes and chips there are."""

from __future__ import annotations

from typing import Protocol


class NodeLookup(Protocol):
    """What is known of nodes, for reports about them."""

    @property
    def synced(self) -> bool:
        """Whether every store has listed its nodes once, and so a node that is not here does not
        exist.
        """

    def has_node(self, node: str) -> bool:
        """Return whether there is a Node object or a document of this node."""

    def chips(self, node: str) -> frozenset[str] | None:
        """Return the names of its chips; ``None`` where none was reported yet."""

    def node_of(self, serial_number: str) -> str | None:
        """Return the node with this serial number; ``None`` where none has it."""
