"""Replays a journal: the decisions of the agent, and those with other tables.

Every input goes through the policy once with the tables that were in force, which must lead to the
changes that the journal recorded, and once with other tables. What only the store could know is
given to the second run as it happened: a one-off event that was acknowledged then is acknowledged.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from msgspec.structs import replace

from agent.journal.rows import (
    JournalGap,
    RowKind,
    Start,
    changes_of,
    chips_in_use_of,
    decoded,
    inputs_of,
    state_of,
    tables_of,
)
from agent.policy.state import Acknowledged, Configured, PolicyState, restarted
from agent.policy.step import step
from agent.replay.comparison import Deviation, Findings, IncompletePeriod, ReplayComparison
from contract.codes.catalogue import shipped
from contract.errors import JournalError
from contract.observation import Assertion, Observation, SourceAnswered, SourceBlind
from contract.plural import plural
from contract.sentences import counted, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent.journal.rows import JournalRow
    from agent.policy.state import Change, Fault
    from agent.policy.step import Input
    from agent.replay.level_history import Span
    from contract.codes.catalogue import Catalogue
    from contract.observation import Subject

_MAX_DEVIATIONS = 100
_MAX_BREAKS = 1000


def replay(rows: Iterable[JournalRow], other: Catalogue | None, span: Span) -> Findings:
    """Replay ``rows``, the oldest first, with the tables in force and, if given, with ``other``.

    All rows are replayed, because rules look back; ``span`` limits what is reported.
    """
    playing = _Playing(other, span)
    for row in rows:
        if span.until_ms is not None and row.at_ms >= span.until_ms:
            return playing.end(span.until_ms)
        playing.play_row(row)
    return playing.end()


class _Other:
    """The run with other tables. Its revisions are not those of the run that was recorded."""

    def __init__(self, tables: Catalogue, state: PolicyState, at_ms: int) -> None:
        self.state = state
        self._tables = tables
        self._revisions: deque[tuple[int, int]] = deque()
        # The state it begins with was judged by other tables.
        self.play([Configured("", at_ms)], at_ms, state)

    def play(
        self, inputs: Sequence[Input], at_ms: int, recorded: PolicyState
    ) -> tuple[Change, ...]:
        """Replay ``inputs``, which led the run that was recorded to ``recorded``."""
        self.state, changes = step(self.state, inputs, at_ms, self._tables)
        pair = recorded.revision, self.state.revision
        if self._revisions and self._revisions[-1][0] == recorded.revision:
            self._revisions.pop()
        self._revisions.append(pair)
        return changes

    def translated(self, inputs: Sequence[Input]) -> list[Input]:
        """Return ``inputs`` for this run: without other tables, and with its own revisions."""
        return [
            self._acknowledged(item) if isinstance(item, Acknowledged) else item
            for item in inputs
            if not isinstance(item, Configured)
        ]

    def _acknowledged(self, item: Acknowledged) -> Acknowledged:
        while len(self._revisions) > 1 and self._revisions[1][0] <= item.state_revision:
            self._revisions.popleft()
        recorded, mine = self._revisions[0]
        # No revision is as low as -1, so such an acknowledgement is about nothing of this run.
        return replace(item, state_revision=mine if recorded <= item.state_revision else -1)


class _Playing:
    def __init__(self, other: Catalogue | None, span: Span) -> None:
        self._other_tables = other
        self._comparison = ReplayComparison(span, two=other is not None)
        self._tables = shipped()
        self._state: PolicyState | None = None
        self._other: _Other | None = None
        self._starting: Start | None = None
        self._stopped = True
        self._sure = True
        self._expected: tuple[JournalRow, tuple[Change, ...]] | None = None
        self._last: JournalRow | None = None
        self._findings = Findings()

    def play_row(self, row: JournalRow) -> None:
        """Replay one row.

        A row that cannot be decoded is reported, and nothing is checked until the next snapshot.
        """
        self._findings.rows += 1
        last, self._last = self._last, row
        if self._state is not None and last is not None and row.sequence != last.sequence + 1:
            lost = row.sequence - last.sequence - 1
            self._mark_gap(
                last.at_ms,
                row.at_ms,
                counted(lost, "missing: {count} row", "missing: {count} rows"),
            )
        try:
            # Inputs that no row of changes follows must have changed nothing.
            if row.kind != RowKind.CHANGES:
                self._check(())
            self._play(row, last)
        except JournalError as error:
            self._mark_gap(row.at_ms, row.at_ms, str(error))

    def end(self, until_ms: int | None = None) -> Findings:
        """Return the findings until ``until_ms``, or until the last row."""
        self._check(())
        if until_ms is None and self._last is not None:
            until_ms = self._last.at_ms
        if until_ms is not None and self._state is not None:
            others: tuple[Change, ...] = ()
            if self._other is not None:
                others = self._other.play((), until_ms, self._state)
            self._comparison.apply_changes((), others, until_ms)
        findings = self._findings
        findings.node = "" if self._state is None else self._state.node
        findings.until_ms = None if findings.from_ms is None else until_ms
        findings.days = self._comparison.days()
        return findings

    def _play(self, row: JournalRow, last: JournalRow | None) -> None:
        match row.kind:
            case RowKind.START:
                self._start(decoded(row, Start), row, last)
            case RowKind.STOP:
                self._stopped = True
            case RowKind.FAULT_CONFIGURATION:
                self._tables = tables_of(row)
            case RowKind.SNAPSHOT:
                self._snapshot(state_of(row), row)
            case RowKind.REPORTS | RowKind.ACKNOWLEDGED:
                self._step(inputs_of(row), row)
            case RowKind.CHANGES:
                self._check(changes_of(row))
            case RowKind.USAGE:
                self._comparison.set_chips_in_use(chips_in_use_of(row), row.at_ms)
            case RowKind.GAP:
                gap = decoded(row, JournalGap)
                description = (
                    f"the journal failed ({gap.reason}), and lost {plural(gap.rows_lost, 'row')}"
                )
                self._break(gap.since_ms, row.at_ms, description)

    def _start(self, start: Start, row: JournalRow, last: JournalRow | None) -> None:
        self._starting = start
        if start.version not in self._findings.versions:
            self._findings.versions.append(start.version)
        if self._state is not None and last is not None:
            text = sentence("the agent was killed and did not run")
            if self._stopped:
                text = sentence("the agent was stopped and did not run")
            self._break(last.at_ms, row.at_ms, text)
        self._stopped = False

    def _step(self, inputs: Sequence[Input], row: JournalRow) -> None:
        if self._state is None:
            self._findings.pruned = True
            return
        self._findings.inputs += len(inputs)
        self._state, changes = step(self._state, inputs, row.at_ms, self._tables)
        self._expected = row, changes
        others: tuple[Change, ...] = ()
        if self._other is not None:
            translated = self._other.translated(inputs)
            others = self._other.play(translated, row.at_ms, self._state)
        self._comparison.apply_changes(changes, others, row.at_ms)
        self._comparison.add_chips(self._state.chips, row.at_ms)

    def _check(self, recorded: tuple[Change, ...]) -> None:
        """Compare ``recorded``, the changes in the journal behind a row of inputs, with the
        replayed ones.
        """
        if self._expected is None:
            return
        (row, replayed), self._expected = self._expected, None
        # After lost rows, the replayed state is another one until the next snapshot.
        if not self._sure:
            return
        self._findings.checked += 1
        if recorded != replayed:
            self._deviate(row, sentence("other changes than recorded"), recorded, replayed)

    def _snapshot(self, state: PolicyState, row: JournalRow) -> None:
        before, starting = self._state, self._starting
        self._state, self._starting = state, None
        if before is None:
            self._findings.from_ms = row.at_ms
            self._findings.pruned |= starting is None
            if self._other_tables is not None:
                self._other = _Other(self._other_tables, state, row.at_ms)
            self._align(state, row.at_ms)
            return
        expected = before if starting is None else _begun(before, starting, state)
        same = expected == state
        if not same and self._sure:
            self._deviate(row, sentence("another state than the snapshot that follows"))
        self._sure = True
        if self._other is not None:
            mine = self._other.state
            self._other.state = mine if starting is None else _begun(mine, starting, state)
            if not same:
                inputs = _inputs_between(self._other.state, state, row.at_ms)
                changes = self._other.play(inputs, row.at_ms, state)
                self._comparison.apply_changes((), changes, row.at_ms)
        if not same:
            self._align(state, row.at_ms)

    def _align(self, state: PolicyState, at_ms: int) -> None:
        other = None if self._other is None else self._other.state
        self._comparison.align(state, other, at_ms)

    def _deviate(
        self,
        row: JournalRow,
        description: str,
        recorded: tuple[Change, ...] = (),
        replayed: tuple[Change, ...] = (),
    ) -> None:
        findings = self._findings
        findings.deviation_count += 1
        if len(findings.deviations) < _MAX_DEVIATIONS:
            findings.deviations.append(
                Deviation(row.sequence, row.at_ms, description, recorded, replayed)
            )

    def _mark_gap(self, from_ms: int, until_ms: int, description: str) -> None:
        """Report missing rows: nothing is checked until the next snapshot."""
        self._sure = False
        self._expected = None
        self._break(from_ms, until_ms, description)

    def _break(self, from_ms: int, until_ms: int, description: str) -> None:
        if len(self._findings.breaks) < _MAX_BREAKS:
            self._findings.breaks.append(IncompletePeriod(from_ms, until_ms, description))


def _begun(state: PolicyState, start: Start, snapshot: PolicyState) -> PolicyState:
    """Return ``state`` for a process that begins with ``snapshot``."""
    return replace(restarted(state, start.boot_id), settled_at_ms=snapshot.settled_at_ms)


def _inputs_between(before: PolicyState, after: PolicyState, at_ms: int) -> list[Input]:
    """Return inputs that lead from ``before`` to the faults of ``after``, all of them at ``at_ms``.

    Their effects on rules remain: they are counted and judged like any other inputs.
    """
    before_by_subject = dict(before.subjects())
    now = dict(after.subjects())
    inputs: list[Input] = []
    for subject in {**before_by_subject, **now}:
        old, other = before.of(subject), after.of(subject)
        inputs += (
            _observation(subject, fault, Assertion.RECOVER, at_ms)
            for code, fault in old.faults.items()
            if code not in other.faults
        )
        inputs += (
            _observation(subject, fault, Assertion.ONCE if fault.once else Assertion.OCCUR, at_ms)
            for code, fault in other.faults.items()
            if code not in old.faults
        )
        inputs += (
            SourceAnswered(source, subject, at_ms)
            for source in other.answered
            if source not in old.answered or (source in old.blind and source not in other.blind)
        )
        inputs += (
            SourceBlind(source, subject, blindness.since_ms, blindness.reason)
            for source, blindness in other.blind.items()
            if source not in old.blind
        )
    return inputs


def _observation(subject: Subject, fault: Fault, assertion: Assertion, at_ms: int) -> Observation:
    return Observation(
        fault.source, subject, fault.code, assertion, at_ms, fault.severity, fault.raised_at_ms
    )
