"""The nodes and chips that a test declares."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aggregator.inputs.node_context import NodeState
    from contract.documents.cluster_device import DeviceRecord


class KnownPlaces:
    """Declared nodes; a chip that was seen once is known as long as its node is."""

    def __init__(self) -> None:
        self.synced = False
        self._chips: dict[str, frozenset[str]] = {}
        self._reporting: set[str] = set()
        self._objects: dict[str, str] = {}
        """Serial number by node."""
        self._serials: dict[str, str] = {}

    def has_node(self, node: str) -> bool:
        """See ``NodeLookup``."""
        return node in self._reporting or node in self._objects

    def chips(self, node: str) -> frozenset[str] | None:
        """See ``NodeLookup``."""
        return self._chips.get(node)

    def node_of(self, serial_number: str) -> str | None:
        """See ``NodeLookup``. No node has the empty number (defect B9)."""
        return self._serials.get(serial_number)

    def see_report(self, node: str, record: DeviceRecord | None, used: Iterable[str] = ()) -> None:
        """Set a node's device-info, and the chips that pods use there; ``None``: it was deleted."""
        if record is None:
            self._reporting.discard(node)
            self._forget(node)
            return
        self._reporting.add(node)
        known = self._chips.get(node, frozenset())
        seen = record.chips.union(used)
        if not seen <= known:
            self._chips[node] = known | seen

    def see_node(self, name: str, state: NodeState | None) -> None:
        """Set a Node object; ``None``: there is none."""
        before = self._objects.pop(name, "")
        if before and self._serials.get(before) == name:
            del self._serials[before]
        if state is None:
            self._forget(name)
            return
        self._objects[name] = state.serial_number
        if state.serial_number:
            self._serials[state.serial_number] = name

    def _forget(self, node: str) -> None:
        if not self.has_node(node):
            self._chips.pop(node, None)
