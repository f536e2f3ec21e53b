"""The soak counts what there is in a site, and calls growth what is more than is under way."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from benchmarks.soak import SAMPLES, Count, Soak, grown, main
from benchmarks.soak_hours import ProgramRow, Row, exceeded

AFTER_TEN = Row(10.0, {"agent": ProgramRow(60.0, 40, 9)}, 3.0, 580, 0, 30.0, 800.0)
AFTER_AN_HOUR = replace(AFTER_TEN, minutes=60.0)

if TYPE_CHECKING:
    from pathlib import Path

FIRST = Count(3.0, {"rows": 9}, 1 << 20, 18, {"look": 2}, {"dict": 1000, "Task": 40})


def test_more_files_tasks_and_objects_are_growth_and_rows_are_not() -> None:
    assert grown(FIRST, replace(FIRST, days=30.0, rows={"rows": 900})) == []
    # 50 objects of a type may be under way.
    assert grown(FIRST, replace(FIRST, objects={"dict": 1050, "Task": 90})) == []
    assert grown(FIRST, replace(FIRST, files=19)) == ["files all: more than 18, 19"]
    assert grown(FIRST, replace(FIRST, tasks={"look": 3})) == ["tasks look: more than 2, 3"]
    assert grown(FIRST, replace(FIRST, objects={"Leak": 99})) == ["objects Leak: more than 50, 99"]
    rows = {"node-1 journal.sqlite rows": 1, "node-1 journal.sqlite journal": 1}
    cursors = replace(FIRST, rows=rows, objects={"ReferenceType": 250})
    assert grown(FIRST, cursors) == [], "a database may have 200 cursors that are gone"
    assert grown(FIRST, replace(cursors, rows={})) == ["objects ReferenceType: more than 50, 250"]


def test_options_of_real_time_are_refused_in_virtual_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["soak", "--virtual", "1", "--world", "mqtt"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "are for real time" in capsys.readouterr().err


@pytest.mark.slow
def test_three_minutes_have_a_count_for_each_tenth_and_rows_of_faults(tmp_path: Path) -> None:
    soak = Soak(180 / 86_400)
    soak.play_in(tmp_path)
    assert len(soak.counts) == SAMPLES
    first, last = soak.counts[0], soak.counts[-1]
    journal = "node-1 journal.sqlite rows"
    assert last.rows[journal] > first.rows[journal] > 0
    assert last.files >= 5
    assert last.tasks["faults"] == 1
    assert last.objects["Agent"] == 1


def test_an_hour_may_take_a_mebibyte_and_as_much_time_as_half_more_than_before() -> None:
    def problems(agent: ProgramRow = AFTER_TEN.programs["agent"], **changes: Any) -> list[str]:
        last = replace(AFTER_AN_HOUR, programs={"agent": agent}, **changes)
        return exceeded([AFTER_TEN, last])

    assert exceeded([AFTER_TEN]) == []
    soon = replace(AFTER_AN_HOUR, minutes=12.0, p99_ms=2000.0)
    assert exceeded([AFTER_TEN, soon]) == [], "two minutes are too few to compare"
    assert problems(ProgramRow(60.8, 40, 8), p99_ms=1200.0) == []
    assert problems(ProgramRow(61.0, 40, 9)) == ["agent: 1.0 MiB more in 0.83 h"]
    assert problems(ProgramRow(60.0, 41, 9)) == ["agent: 40 descriptors, then 41"]
    assert problems(ProgramRow(60.0, 40, 10)) == ["agent: 9 threads, then 10"]
    assert problems(p99_ms=1201.0) == ["publication p99: 800 ms, then 1201 ms"]
    assert problems(journal_mib=64.5) == ["journal: 64.5 MiB"]
    none = problems(faults=0, p50_ms=None, p99_ms=None)
    assert none == ["60 min: no fault was shown"]
    assert problems(not_shown=2) == ["60 min: 2 faults were not shown"]
