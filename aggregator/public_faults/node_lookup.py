"""Which nodes and chips there are."""

from __future__ import annotations

from typing import Protocol


class NodeLookup(Protocol):
    """What others know of nodes; asked when something is said of one."""

    @property
    def synced(self) -> bool:
        """Whether every store has told its nodes once, and so who is not here does not exist."""

    def has_node(self, node: str) -> bool:
        """Whether there is a Node object or a document of this node."""

    def chips(self, node: str) -> frozenset[str] | None:
        """Names of its chips; ``None`` where nobody has told of any yet."""

    def node_of(self, serial_number: str) -> str | None:
        """The node with this serial number."""
