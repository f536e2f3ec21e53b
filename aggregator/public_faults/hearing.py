"""Messages on their way to the ledger: judged, held until nodes are known, limited, counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator.public_faults.documents import Documents, Origin
from aggregator.public_faults.judging import (
    INVALID,
    LIMITED,
    OK,
    Answer,
    answer,
    placed,
    sayings,
)
from aggregator.public_faults.ledger import MOST_FAULTS
from aggregator.public_faults.limits import Limits
from aggregator.public_faults.recent import Recent
from aggregator.public_faults.status import Record
from aggregator.public_faults.values import Outcome
from aggregator.public_faults.waiting import Waiting
from contract.errors import DocumentError, Problem
from contract.public_fault import DATA_KEY, decode_public_fault

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aggregator.moment import Moment
    from aggregator.public_faults.ledger import Ledger
    from aggregator.public_faults.places import Places
    from aggregator.public_faults.rows import Rows
    from aggregator.public_faults.table import Tables
    from aggregator.public_faults.values import Saying
    from aggregator.public_faults.waiting import Pending
    from contract.public_fault import PublicFault
    from stores.base import WatchEvent

_NOBODY = "(not configured)"
"""Stands in counters for all names that anybody may make up."""


class Hearing:
    """``places`` is ``None`` until it is known which nodes there are; until then messages wait."""

    def __init__(self, rows: Rows, ledger: Ledger, tables: Tables, sources: int) -> None:
        self.places: Places | None = None
        self.documents = Documents(rows, sources)
        self.waiting = Waiting(rows)
        self.record = Record()
        self._ledger = ledger
        self._tables = tables
        self._limits = Limits()
        self._recent = Recent()

    def send(self, message: PublicFault, now: Moment) -> Answer:
        """Take in a message that came over gRPC."""
        resource = self._known(message.resource)
        try:
            said, problems = self._sayings(message, "message", now)
        except DocumentError as error:
            return self._answered(INVALID, resource, [Problem(error.where, error.what)], now)
        held = 0
        if self.places is None:
            said, limited = self._within_limits(message.resource, said, now)
            if said and self.waiting.put(None, said):
                held = len(said)
            elif said:
                limited.append(Problem("message", "too many others wait: say it again later"))
        else:
            said, missing = self._place(said)
            problems += missing
            said, limited = self._within_limits(message.resource, said, now)
            limited += self._say(said, now)
        code = LIMITED if limited else OK if said else INVALID
        return self._answered(code, resource, [*limited, *problems], now, held)

    def _answered(
        self, code: int, resource: str, refused: list[Problem], now: Moment, held: int = 0
    ) -> Answer:
        verdict = {INVALID: "refused", LIMITED: "limited"}.get(code, "held" if held else "taken")
        self.record.count(resource, verdict)
        self.record.judged(f"messages of {resource} over gRPC", refused, now.wall_ms)
        return answer(code, tuple(refused), held=held)

    def observe(self, source: int, event: WatchEvent, now: Moment) -> None:
        """Take in an event of the documents that carry messages."""
        new, gone = self.documents.observe(source, event)
        for origin in new:
            text = self.documents.texts[origin]
            if text is not None:
                self._recent.note(origin, text, now)
        for origin in gone:
            self.record.gone(_named(origin))
        self.take_documents(new, now)

    def take_documents(self, new: Iterable[Origin], now: Moment) -> None:
        """Judge documents, of several those first that were told first."""
        read: list[tuple[int, Origin, list[Saying], list[Problem]]] = []
        for origin in new:
            text = self.documents.texts[origin]
            resource = _NOBODY
            try:
                data = {} if text is None else {DATA_KEY: text}
                message = decode_public_fault(origin.place, data)
                resource = self._known(message.resource)
                said, problems = self._sayings(message, origin.place, now)
            except DocumentError as error:
                self.record.count(resource, "refused")
                problem = Problem(error.where, error.what)
                self.record.judged(_named(origin), [problem], now.wall_ms)
                continue
            read.append((message.timestamp, origin, said, problems))
        for _, origin, said, problems in sorted(read, key=lambda one: one[:2]):
            may = not self.waiting.has(origin)
            if may and self._take(origin, said, problems, now):
                self.documents.count(origin)
            else:
                self.record.count(self._known(said[0].resource), "held")
                self.waiting.put(origin, said, problems)

    def say_again(self, now: Moment) -> None:
        """After a restore: what documents said before they said what they say now, as far as
        nothing newer is known.
        """
        for origin, text in self._recent.since(now):
            if self.documents.texts.get(origin) == text:
                continue
            try:
                message = decode_public_fault(origin.place, {DATA_KEY: text})
                said, _ = self._sayings(message, origin.place, now)
            except DocumentError:
                continue  # that was said when it came
            good, _ = ([], ()) if self.places is None else self._place(said)
            self._say([one for one in good if self._ledger.is_newer(one)], now)

    def serve(self, now: Moment) -> None:
        """Take in what has waited, as far as it is its time."""
        taken: set[Origin] = set()

        def take(pending: Pending) -> bool:
            if not self._take(pending.origin, pending.said, pending.problems, now):
                return False
            if pending.origin is not None:
                taken.add(pending.origin)
            return True

        self.waiting.serve(take)
        for origin in taken:
            if not self.waiting.has(origin):
                self.documents.count(origin)

    def _take(
        self,
        origin: Origin | None,
        said: Iterable[Saying],
        problems: Iterable[Problem],
        now: Moment,
    ) -> bool:
        """Take in a message that was judged, if it is its time."""
        if self.places is None:
            return False
        good, missing = self._place(said)
        resource = next(iter(said)).resource
        if good and origin is not None:
            nodes = frozenset(one.node for one in good)
            if self._limits.take(resource, nodes, now.steady_ms, whole=True):
                return False
        full = self._say(good, now)
        if origin is None:
            found = [*missing, *full]
            self.record.judged("messages over gRPC that waited", found, now.wall_ms)
        elif origin in self.documents.texts:
            self.record.judged(_named(origin), [*problems, *missing, *full], now.wall_ms)
        self.record.count(self._known(resource), "taken" if good else "refused")
        return True

    def _sayings(
        self, message: PublicFault, document: str, now: Moment
    ) -> tuple[list[Saying], list[Problem]]:
        return sayings(
            message,
            document,
            table=self._tables.in_force,
            ending=lambda: self._ledger.codes(message.resource),
            received_at_ms=now.wall_ms,
        )

    def _place(self, said: Iterable[Saying]) -> tuple[list[Saying], list[Problem]]:
        assert self.places is not None
        good: list[Saying] = []
        problems: list[Problem] = []
        for saying in said:
            if saying.assertion == "recover" and self._ledger.get(saying.key) is not None:
                good.append(saying)  # also when its node has gone
                continue
            one, wrong = placed(saying, self.places)
            problems += wrong
            if one is not None:
                good.append(one)
        return good, problems

    def _within_limits(
        self, resource: str, said: list[Saying], now: Moment
    ) -> tuple[list[Saying], list[Problem]]:
        nodes = frozenset(one.node or one.serial_number for one in said)
        refused = self._limits.take(resource, nodes, now.steady_ms)
        problems = [
            Problem(f"node {node}", f"{resource} may say no more of it now")
            for node in sorted(refused)
        ]
        return [s for s in said if (s.node or s.serial_number) not in refused], problems

    def _say(self, said: Iterable[Saying], now: Moment) -> list[Problem]:
        """Take in what is said; returns what cannot be."""
        assert self.places is not None
        problems: list[Problem] = []
        levels = self._tables.in_force.levels
        for saying in said:
            level = levels.get(saying.code)
            if level is None and saying.assertion != "recover":
                what = f"{saying.code} is not configured any more"
                problems.append(Problem(f"fault {saying.fault_id}", what))
                continue
            is_placed = bool(self.places.chips(saying.node))
            outcome = self._ledger.say(saying, str(level or ""), now, placed=is_placed)
            self.record.count(self._known(saying.resource), outcome)
            if outcome is Outcome.FULL:
                what = f"{MOST_FAULTS} faults stand: there is room for no more"
                problems.append(Problem(f"fault {saying.fault_id}", what))
        return problems

    def _known(self, resource: str) -> str:
        return resource if resource in self._tables.in_force.resources else _NOBODY


def _named(origin: Origin) -> str:
    return f"public faults in {origin.place}"
