"""Whatever happened: a journal leads to what it recorded, and its own rules change nothing."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from agent.journal.rows import JournalRow, RowKind
from agent.policy.state import Acknowledged, PolicyState
from agent.policy.step import step
from agent.replay.comparison import ReplayComparison
from agent.replay.level_history import Span
from agent.replay.replay import replay
from contract.codes.catalogue import shipped
from contract.codes.levels import most_serious
from contract.observation import chip_subject
from tests.agent.policy.histories import PAUSES, input_at
from tests.parts.examples import examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.policy.step import Input

NODE = "node-1"
BEGIN_MS = 1_700_000_000_000
SEEDS = st.integers(0, 2**32)


def batches(seed: int, count: int = 40) -> list[tuple[int, list[Input]]]:
    """Return batches of inputs, each with the time of its report."""
    rng, now_ms, found = Random(seed), BEGIN_MS, []
    for _ in range(count):
        now_ms += rng.choice(PAUSES)
        found.append((now_ms, [input_at(now_ms, rng) for _ in range(rng.randint(0, 3))]))
    return found


class Rows:
    """Rows as an agent writes them."""

    def __init__(self) -> None:
        self.state = PolicyState(NODE, "boot")
        self.rows: list[JournalRow] = []
        self.write(BEGIN_MS, RowKind.START, {"node": NODE, "boot_id": "boot", "version": "1"})
        self.write(BEGIN_MS, RowKind.SNAPSHOT, self.state)

    def write(self, at_ms: int, kind: RowKind, body: object) -> None:
        text = msgspec.json.encode(body).decode()
        self.rows.append(JournalRow(len(self.rows) + 1, at_ms, kind, text))

    def take(self, at_ms: int, given: Sequence[Input]) -> None:
        """Record a step; an acknowledgement is for the revision before it."""
        known = self.state.revision
        inputs = [
            replace(one, state_revision=known) if isinstance(one, Acknowledged) else one
            for one in given
        ]
        self.state, changes = step(self.state, inputs, at_ms, shipped())
        self.write(at_ms, RowKind.REPORTS, inputs)
        if changes:
            self.write(at_ms, RowKind.CHANGES, changes)


def recorded(seed: int) -> Rows:
    rows = Rows()
    for number, (at_ms, inputs) in enumerate(batches(seed)):
        rows.take(at_ms, inputs)
        if number % 9 == 8:
            rows.write(at_ms, RowKind.SNAPSHOT, rows.state)
    return rows


@examples(40)
@given(SEEDS)
def test_every_journal_is_reproduced_and_its_own_rules_make_no_difference(seed: int) -> None:
    found = replay(recorded(seed).rows, shipped(), Span())
    assert found.deviation_count == 0
    assert not found.breaks
    for day in found.days:
        assert day.differences == ()
        assert day.recorded == day.replayed


@examples(40)
@given(SEEDS)
def test_reported_levels_are_those_of_the_state(seed: int) -> None:
    comparison, state = ReplayComparison(Span(), two=False), PolicyState(NODE, "boot")
    for at_ms, inputs in batches(seed):
        state, changes = step(state, inputs, at_ms, shipped())
        comparison.apply_changes(changes, (), at_ms)
        for chip, known in state.chips.items():
            reported = [
                standing.level
                for subject, code in comparison.recorded.codes()
                if subject == chip_subject(chip)
                and (standing := comparison.recorded.reason_of(subject, code)) is not None
            ]
            assert most_serious(reported) == known.level  # type: ignore[arg-type]


@examples(40)
@given(SEEDS, st.integers(3, 60))
def test_a_journal_without_one_row_reports_the_gap_and_nothing_wrong(
    seed: int, missing: int
) -> None:
    """Behind the next snapshot both runs know what holds again."""
    rows = recorded(seed).rows
    kept = [row for row in rows if row.sequence != min(missing, len(rows) - 1)]
    found = replay(kept, shipped(), Span())
    assert found.deviation_count == 0
    assert [one.what for one in found.breaks] == ["missing: 1 row"]
