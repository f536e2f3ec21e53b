"""Reports of documents about nodes that do not exist yet: they are applied when the nodes come.

A document is a message that stays, and a node may come a second after it. A client of gRPC gets an
error for a node that does not exist, and sends again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aggregator.public_faults.persisted_rows import Rows
    from aggregator.public_faults.values import NodeLookup, PublicFaultReport, UnplacedFault

MOST = 10_000
"""Beyond that the oldest is forgotten."""


_Row: TypeAlias = tuple[str, str, str, str]
"""Node, or serial number where there is no name; resource and fault id."""


class UnknownNodes:
    """The newest reports, the oldest first."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._of: dict[_Row, UnplacedFault] = {}
        self._at: dict[str, set[_Row]] = {}
        """Rows by place of the document."""

    def __len__(self) -> int:
        return len(self._of)

    def put(self, one: UnplacedFault) -> None:
        """Keep a report until its node comes."""
        self.drop(one.report)
        row = _row(one.report)
        self._of[row] = one
        self._at.setdefault(one.place, set()).add(row)
        self._rows.put("absent", row, one)
        if len(self._of) > MOST:
            self.drop(next(iter(self._of.values())).report)

    def drop(self, report: PublicFaultReport) -> None:
        """Remove the report of a fault about which a newer one came."""
        row = _row(report)
        one = self._of.pop(row, None)
        if one is None:
            return
        self._at[one.place].discard(row)
        if not self._at[one.place]:
            del self._at[one.place]
        self._rows.drop("absent", row)

    def of_existing_nodes(self, node_lookup: NodeLookup) -> list[UnplacedFault]:
        """Return the reports about nodes that exist now."""
        reports = {row[:2]: one.report for row, one in self._of.items()}
        there = {owner for owner, report in reports.items() if is_there(report, node_lookup)}
        return [one for row, one in self._of.items() if row[:2] in there]

    def is_newest(self, one: UnplacedFault) -> bool:
        """Return whether this is still the newest report."""
        return self._of.get(_row(one.report)) is one

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
            one = self._of[row]
            if not holds(one.place, one.digest):
                self.drop(one.report)

    def restore(self, kept: Iterable[UnplacedFault]) -> None:
        """Restore the reports of an earlier run."""
        self._of.clear()
        self._at.clear()
        for one in kept:
            self.put(one)


def is_there(report: PublicFaultReport, node_lookup: NodeLookup) -> bool:
    """Return whether there is the node that a report names, or that has its serial number."""
    if report.node:
        return node_lookup.has_node(report.node)
    return node_lookup.node_of(report.serial_number) is not None


def _row(report: PublicFaultReport) -> _Row:
    number = "" if report.node else report.serial_number
    return report.node, number, report.resource, report.fault_id
