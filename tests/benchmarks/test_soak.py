"""The soak counts what there is in a site, and calls growth what is more than is under way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from benchmarks.soak import SAMPLES, Count, Soak, grown

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
