"""Messages that wait: until it is known which nodes there are, or until limits allow them.

Those that came over gRPC are answered already, so they are persisted for the next run; a document
is read again.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from aggregator.public_faults.message_documents import MessageOrigin
from aggregator.public_faults.values import PublicFaultReport
from contract.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aggregator.public_faults.persisted_rows import Rows

MOST_REPORTS = 50_000
"""Most pending reports that came over gRPC."""

_MOST_OF_A_DOCUMENT = 16
_TOGETHER = 500
"""Most reports over gRPC in one pending message."""


class Pending(msgspec.Struct, frozen=True):
    """A message that waits; ``origin`` of ``None``: it came over gRPC."""

    number: int
    origin: MessageOrigin | None
    reports: tuple[PublicFaultReport, ...]
    problems: tuple[Problem, ...] = ()
    """What was refused of it before."""


class PendingMessages:
    """Pending messages in order of their arrival."""

    def __init__(self, rows: Rows) -> None:
        self.dropped = 0
        """Messages of documents that changed more often than the limits allow."""
        self._rows = rows
        self._line: dict[int, Pending] = {}
        self._held = 0
        self._of: Counter[MessageOrigin] = Counter()
        self._next = 0

    def __len__(self) -> int:
        return len(self._line)

    @property
    def held(self) -> int:
        """How many reports that came over gRPC wait."""
        return self._held

    def has(self, origin: MessageOrigin) -> bool:
        """Return whether a message of this document waits: a later one must not overtake it."""
        return self._of[origin] > 0

    def put(
        self,
        origin: MessageOrigin | None,
        reports: Iterable[PublicFaultReport],
        problems: Iterable[Problem] = (),
    ) -> bool:
        """Let a message wait; return whether there is room for it."""
        reports = tuple(reports)
        if origin is None:
            if self._held + len(reports) > MOST_REPORTS:
                return False
            self._held += len(reports)
        else:
            if self._of[origin] >= _MOST_OF_A_DOCUMENT:
                self._drop_first(origin)
            self._of[origin] += 1
        if origin is not None:
            self._append(origin, reports, tuple(problems))
        for first in range(0, len(reports) if origin is None else 0, _TOGETHER):
            pending = self._append(None, reports[first : first + _TOGETHER], ())
            for number, report in enumerate(pending.reports):
                self._rows.put("held", _row(pending, number), report)
        return True

    def _append(
        self,
        origin: MessageOrigin | None,
        reports: tuple[PublicFaultReport, ...],
        problems: tuple[Problem, ...],
    ) -> Pending:
        pending = Pending(self._next, origin, reports, problems)
        self._line[pending.number] = pending
        self._next += 1
        return pending

    def line(self) -> Iterator[Pending]:
        """Yield the pending messages in order; more may come and go meanwhile."""
        for number in tuple(self._line):
            pending = self._line.get(number)
            if pending is not None:
                yield pending

    def done(self, pending: Pending) -> None:
        """Remove a message that was applied."""
        if self._line.pop(pending.number, None) is None:
            return
        if pending.origin is None:
            self._held -= len(pending.reports)
            for number in range(len(pending.reports)):
                self._rows.drop("held", _row(pending, number))
        else:
            self._of[pending.origin] -= 1
            if not self._of[pending.origin]:
                del self._of[pending.origin]

    def clear(self) -> None:
        """Remove all messages."""
        self._line.clear()
        self._of.clear()
        self._held = 0

    def _drop_first(self, origin: MessageOrigin) -> None:
        self.done(next(one for one in self._line.values() if one.origin == origin))
        self.dropped += 1


def _row(pending: Pending, number: int) -> tuple[str, ...]:
    report = pending.reports[number]
    owner = report.node or report.serial_number
    return owner, f"{pending.number:012}", f"{number:06}"
