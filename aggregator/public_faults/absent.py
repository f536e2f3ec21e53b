"""What documents say of nodes that are not there: it counts when they come.

A document is a message that stays, and a node may come a second after it. Who asks over gRPC is
told that there is no such node, and says it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aggregator.public_faults.places import Places
    from aggregator.public_faults.rows import Rows
    from aggregator.public_faults.values import Absent, Saying

MOST = 10_000
"""Beyond that the oldest is forgotten."""


class AbsentNodes:
    """By node or serial number, then by resource and fault id: the newest saying."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._of: dict[tuple[str, str], dict[tuple[str, str], Absent]] = {}
        self._order: dict[tuple[str, ...], None] = {}

    def __len__(self) -> int:
        return len(self._order)

    def put(self, one: Absent) -> None:
        """Keep this until its node comes."""
        saying = one.saying
        self.drop(saying)
        self._of.setdefault(_owner(saying), {})[saying.resource, saying.fault_id] = one
        self._order[_row(saying)] = None
        self._rows.put("absent", _row(saying), one)
        if len(self._order) > MOST:
            node, number, resource, fault = next(iter(self._order))
            self.drop(self._of[node, number][resource, fault].saying)

    def drop(self, saying: Saying) -> None:
        """Something newer is said of this fault."""
        if _row(saying) not in self._order:
            return
        del self._order[_row(saying)]
        of_node = self._of[_owner(saying)]
        del of_node[saying.resource, saying.fault_id]
        if not of_node:
            del self._of[_owner(saying)]
        self._rows.drop("absent", _row(saying))

    def come(self, places: Places) -> list[Absent]:
        """What is said of nodes that are there now."""
        return [
            one
            for (node, number), found in self._of.items()
            if is_there(node, number, places)
            for one in found.values()
        ]

    def keeps(self, one: Absent) -> bool:
        """Whether nothing newer was said since."""
        found = self._of.get(_owner(one.saying), {})
        return found.get((one.saying.resource, one.saying.fault_id)) is one

    def has(self, place: str) -> bool:
        """Whether anything that the document at this place says is missing its node."""
        return any(one.place == place for found in self._of.values() for one in found.values())

    def restore(self, kept: Iterable[Absent]) -> None:
        """Go on where an earlier run ended."""
        self._of.clear()
        self._order.clear()
        for one in kept:
            self.put(one)


def is_there(node: str, serial_number: str, places: Places) -> bool:
    """Whether there is the node of this name or else of this serial number."""
    return places.has_node(node) if node else places.node_of(serial_number) is not None


def _owner(saying: Saying) -> tuple[str, str]:
    return saying.node, "" if saying.node else saying.serial_number


def _row(saying: Saying) -> tuple[str, ...]:
    return *_owner(saying), saying.resource, saying.fault_id
