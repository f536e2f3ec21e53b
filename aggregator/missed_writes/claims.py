"""Compares the last writes that heartbeats name with the known documents. Pure.

A claim is the number of a node's last acknowledged write of one document. It waits for
``PATIENCE_MS``, in which the watch may show the write; then the document is to be read, once for
each number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from contract.documents.write_numbers import KINDS, NoWrites, decode_writes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from stores.base import Beat

# Decision 17 counts with these 2 s in its worst case of 12 to 13 s.
PATIENCE_MS = 2000
RETRY_MS = 5000
"""Until a document is read again that could not be read."""


class WriteClaim(NamedTuple):
    """A document of a node, by its kind (``contract.documents.write_numbers.KINDS``)."""

    kind: str
    node: str


class _WaitingClaim(NamedTuple):
    number: int
    due_ms: int


class Claims:
    """The claims of one store's heartbeats. Times are steady.

    ``got`` returns whether the write of this number or a later one is known. For a negative number
    it returns whether the document is gone.
    """

    def __init__(self, got: Callable[[WriteClaim, int], bool]) -> None:
        self.problems: dict[str, str] = {}
        """Nodes whose key in the heartbeat cannot be read, and why."""
        self._got = got
        self._texts: dict[str, str] = {}
        """The key of each node that has one, as it was compared last."""
        self._waiting: dict[WriteClaim, _WaitingClaim] = {}
        self._asked: dict[WriteClaim, int] = {}
        """For which number each was read."""

    def observe_beats(self, beats: Iterable[Beat], now_ms: int) -> None:
        """Apply the heartbeats of all nodes. Last wills and beats without the key claim nothing."""
        count = 0
        for beat in beats:
            count += 1
            node, text = beat.node, beat.writes
            # Texts are compared first: most heartbeats repeat the numbers, and 10,000 arrive in a
            # listing.
            if self._texts.get(node, "") != text and not beat.is_broken:
                self._compare(node, text, now_ms - (beat.age_ms or 0) + PATIENCE_MS)
        # Only then can a node have left; the set of names is not built otherwise.
        if len(self._texts) > count:
            self._forget({beat.node for beat in beats})

    def _compare(self, node: str, text: str, due_ms: int) -> None:
        try:
            numbers = decode_writes(text) if text else {}
            self.problems.pop(node, None)
        except NoWrites as error:
            # A claim that was read already stays as it is.
            self.problems[node] = str(error)
            numbers = {}
        self._texts[node] = text
        for kind in KINDS:
            claim, number = WriteClaim(kind, node), numbers.get(kind)
            before = self._waiting.pop(claim, None)
            # Each number is read once: a store that never shows it (a restored etcd) costs one read
            # (decision 17).
            if number is None or self._asked.get(claim) == number:
                continue
            if not self._got(claim, number):
                # One that changes with each beat is not put off for ever.
                due = due_ms if before is None else min(before.due_ms, due_ms)
                self._waiting[claim] = _WaitingClaim(number, due)

    def _forget(self, there: set[str]) -> None:
        """Remove nodes without a heartbeat; ``there`` are those that have one."""
        for node in self._texts.keys() - there:
            del self._texts[node]
            self.problems.pop(node, None)
        for claim in [claim for claim in (*self._waiting, *self._asked) if claim.node not in there]:
            self._waiting.pop(claim, None)
            self._asked.pop(claim, None)

    def due(self, now_ms: int) -> dict[WriteClaim, int]:
        """Return what is to be read now, with the number that each claims."""
        due = {
            c: waiting.number for c, waiting in self._waiting.items() if waiting.due_ms <= now_ms
        }
        # The watch may have shown the write while the claim waited.
        for claim in [claim for claim, number in due.items() if self._got(claim, number)]:
            del due[claim], self._waiting[claim]
        return due

    def next_due_ms(self) -> int | None:
        """Return when ``due`` has something to return."""
        return min((waiting.due_ms for waiting in self._waiting.values()), default=None)

    def read(self, numbers: Mapping[WriteClaim, int]) -> None:
        """Record that these were read for these numbers."""
        for claim, number in numbers.items():
            self._asked[claim] = number
            waiting = self._waiting.get(claim)
            # A newer claim may have come during the read; it stays.
            if waiting is not None and waiting.number == number:
                del self._waiting[claim]

    def failed(self, claims: Iterable[WriteClaim], now_ms: int) -> None:
        """Record that these could not be read."""
        for claim in claims:
            waiting = self._waiting.get(claim)
            if waiting is not None:
                self._waiting[claim] = waiting._replace(due_ms=now_ms + RETRY_MS)
