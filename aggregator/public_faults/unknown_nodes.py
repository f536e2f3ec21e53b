"""Reports of documents about nodes that do not exist yet: they are applied when the nodes come.

A document is a message that stays, and a node may come a second after it. A client of gRPC gets an
error for a node that does not exist, and sends again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aggregator.public_faults.node_lookup import NodeLookup
    from aggregator.public_faults.persisted_rows import Rows
    from aggregator.public_faults.values import PublicFaultReport, UnplacedFault

MOST = 10_000
"""Beyond that the oldest is forgotten."""


class UnknownNodes:
    """The newest reports, by node or serial number, then by resource and fault id."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._of: dict[tuple[str, str], dict[tuple[str, str], UnplacedFault]] = {}
        self._order: dict[tuple[str, ...], None] = {}
        self._at: dict[str, set[tuple[str, ...]]] = {}
        """Rows by place of the document."""

    def __len__(self) -> int:
        return len(self._order)

    def put(self, one: UnplacedFault) -> None:
        """Keep a report until its node comes."""
        report = one.report
        self.drop(report)
        self._of.setdefault(_owner(report), {})[report.resource, report.fault_id] = one
        self._order[_row(report)] = None
        self._at.setdefault(one.place, set()).add(_row(report))
        self._rows.put("absent", _row(report), one)
        if len(self._order) > MOST:
            self.drop(self._get(next(iter(self._order))).report)

    def drop(self, report: PublicFaultReport) -> None:
        """Remove the report of a fault about which a newer one came."""
        if _row(report) not in self._order:
            return
        place = self._get(_row(report)).place
        self._at[place].discard(_row(report))
        if not self._at[place]:
            del self._at[place]
        del self._order[_row(report)]
        of_node = self._of[_owner(report)]
        del of_node[report.resource, report.fault_id]
        if not of_node:
            del self._of[_owner(report)]
        self._rows.drop("absent", _row(report))

    def of_existing_nodes(self, places: NodeLookup) -> list[UnplacedFault]:
        """Return the reports about nodes that exist now."""
        return [
            one
            for (node, number), found in self._of.items()
            if is_there(node, number, places)
            for one in found.values()
        ]

    def is_newest(self, one: UnplacedFault) -> bool:
        """Return whether this is still the newest report."""
        found = self._of.get(_owner(one.report), {})
        return found.get((one.report.resource, one.report.fault_id)) is one

    def has(self, place: str) -> bool:
        """Return whether a report of the document at this place lacks its node."""
        return place in self._at

    @property
    def places(self) -> tuple[str, ...]:
        """Places of the documents of which reports are kept."""
        return tuple(self._at)

    def forget(self, place: str, holds: Callable[[str, str], bool]) -> None:
        """Remove reports that the document at this place does not have any more."""
        for row in tuple(self._at.get(place, ())):
            one = self._get(row)
            if not holds(one.place, one.digest):
                self.drop(one.report)

    def restore(self, kept: Iterable[UnplacedFault]) -> None:
        """Restore the reports of an earlier run."""
        self._of.clear()
        self._order.clear()
        self._at.clear()
        for one in kept:
            self.put(one)

    def _get(self, row: tuple[str, ...]) -> UnplacedFault:
        node, number, resource, fault = row
        return self._of[node, number][resource, fault]


def is_there(node: str, serial_number: str, places: NodeLookup) -> bool:
    """Return whether there is the node of this name or else of this serial number."""
    return places.has_node(node) if node else places.node_of(serial_number) is not None


def _owner(report: PublicFaultReport) -> tuple[str, str]:
    return report.node, "" if report.node else report.serial_number


def _row(report: PublicFaultReport) -> tuple[str, ...]:
    return *_owner(report), report.resource, report.fault_id
