"""When foreign changes are a conflict, when we write in one, and when it is over."""

from __future__ import annotations

import logging
from itertools import pairwise

import pytest

from service.owned_documents.foreign_writes import (
    FIRST_PAUSE_SECONDS,
    LAST_PAUSE_SECONDS,
    MANY,
    ForeignWriter,
    ForeignWrites,
)

STEP_SECONDS = 1 / 64

_log = logging.getLogger("tests.foreign_writes")


def fight(until: float, *, every: float = 0.0, answers_in: float = 0.0, seconds: float) -> Fought:
    """Return our writes while another program writes every ``every`` seconds up to ``until``, or
    after each write of ours.

    We always want to write what is undone, and check for ``seconds``.
    """
    fought, foreign = Fought(), ForeignWrites()
    ours_at, theirs_at, undone = 0.0, 0.0, True
    now = 0.0
    while now <= seconds:
        at = theirs_at + every if every else ours_at + answers_in
        if now <= until and not (undone and not every) and now >= at:
            foreign.record_foreign_write(now)
            theirs_at, undone = now, True
            fought.last_foreign = now
        if foreign.end_if_over(now):
            fought.over = now
        if foreign.is_conflict and not fought.began:
            fought.began = now
        if undone and foreign.pause_seconds(now) <= 0:
            foreign.record_write(now)
            ours_at, undone = now, False
            fought.writes.append(now)
        now += STEP_SECONDS
    fought.is_conflict = foreign.is_conflict
    return fought


class Fought:
    """What came of it."""

    def __init__(self) -> None:
        self.writes: list[float] = []
        self.began = 0.0
        self.over = 0.0
        self.last_foreign = 0.0
        self.is_conflict = False


def test_a_stranger_who_writes_for_three_seconds_holds_us_up_for_seconds() -> None:
    fought = fight(3.0, every=0.04, seconds=120)
    assert fought.began < 0.3
    after = [at for at in fought.writes if at > 3.0]
    assert len(after) == 1, "our write stands"
    assert after[0] < 8
    assert 3.0 < fought.over <= fought.last_foreign + 60 + STEP_SECONDS
    assert not fought.is_conflict


@pytest.mark.parametrize("answers_in", [0.02, 0.5, 3.0])
def test_program_that_undoes_each_write_meets_one_write_after_each_pause(answers_in: float) -> None:
    fought = fight(1000.0, answers_in=answers_in, seconds=1000)
    pauses = [later - one for one, later in pairwise(fought.writes) if one > fought.began]
    assert pauses[0] >= FIRST_PAUSE_SECONDS
    assert all(later <= max(2 * one, 2 * answers_in) + 0.1 for one, later in pairwise(pauses))
    assert pauses[-1] == pytest.approx(LAST_PAUSE_SECONDS, abs=0.1)
    assert max(pauses) < 60
    assert fought.over == 0.0, "it goes on"


@pytest.mark.parametrize("until", [10.0, 100.0, 300.0, 301.5, 333.3])
def test_a_conflict_never_outlives_its_cause_by_more_than_a_minute(until: float) -> None:
    for fought in (
        fight(until, answers_in=0.02, seconds=until + 200),
        fight(until, every=0.3, seconds=until + 200),
    ):
        assert not fought.is_conflict
        assert fought.over <= fought.last_foreign + 60 + STEP_SECONDS
        assert fought.writes[-1] <= fought.last_foreign + LAST_PAUSE_SECONDS + STEP_SECONDS


def test_three_a_minute_are_none() -> None:
    foreign = ForeignWrites()
    for number in range(30):
        assert not foreign.record_foreign_write(number * 20.0)
        assert foreign.pause_seconds(number * 20.0) == 0
    assert not foreign.is_conflict


def test_after_a_conflict_the_next_begins_anew() -> None:
    foreign = ForeignWrites()
    for _ in range(MANY):
        foreign.record_foreign_write(0.0)
    for at in (1.0, 3.0, 7.0, 15.0):
        assert foreign.pause_seconds(at) == 0
        foreign.record_write(at)
        assert foreign.record_foreign_write(at), "it undoes a write of ours"
        assert not foreign.record_foreign_write(at), "that was undone already"
    assert foreign.end_if_over(75.0)
    assert [foreign.record_foreign_write(80.0) for _ in range(MANY)] == [False, False, False, True]
    assert foreign.pause_seconds(80.0) == FIRST_PAUSE_SECONDS


def test_change_that_was_not_foreign_does_not_count() -> None:
    foreign = ForeignWrites()
    for _ in range(MANY):
        foreign.record_foreign_write(0.0)
    foreign.forget()
    assert not foreign.is_conflict
    assert [foreign.record_foreign_write(1.0) for _ in range(MANY)] == [False, False, False, True]


def test_a_conflict_has_a_line_when_it_begins_and_one_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    foreign = ForeignWrites()
    for number in range(MANY + 2):
        foreign.record_foreign_write(0.0)
        foreign.writer = ForeignWriter("kubectl-edit")
        foreign.report(_log, "doc", " in a store", "; ask")
        assert len(caplog.records) == (number >= MANY - 1)
    assert foreign.end_if_over(60.0)
    foreign.report(_log, "doc")
    assert foreign.writer == ForeignWriter()
    for _ in range(MANY):
        foreign.record_foreign_write(70.0)
    foreign.report(_log, "doc")
    foreign.forget("it is not ours")
    for _ in range(2):
        foreign.report(_log, "doc")
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == (
        "conflict: 'kubectl-edit' writes doc in a store, 4 times within a minute. It is written "
        "once after each pause of 1 to 45 s until no other program writes it. "
        "Stop the other writer; ask"
    )
    assert lines[1] == "doc: the conflict is over: no other program writes it any more"
    assert lines[3:] == ["doc: the conflict is over: it is not ours"]
    assert foreign.total == 2 * MANY + 2


def test_conflict_names_the_writer() -> None:
    assert ForeignWriter().changes("doc") == "another program writes doc"
    assert ForeignWriter("kubectl-edit").changes("doc") == "'kubectl-edit' writes doc"
    differing = ForeignWriter(differing=("label a", "key b")).changes("doc")
    assert differing.startswith("the answer to our own write of doc differs from what was written:")
    assert "label a, key b" in differing
    assert (ForeignWriter().name, ForeignWriter("x").name) == ("", "x")
