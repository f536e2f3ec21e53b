"""The parts of a change are found among the marks of all processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.parts import STEPS, Mark, parts_of, read_marks
from benchmarks.visibility import Change

if TYPE_CHECKING:
    from pathlib import Path


def _change(at: float) -> Change:
    shown_at = at + len(STEPS) + 1
    return Change(
        "bench-1",
        0,
        "80E01801",
        occurs=True,
        at=at,
        device_info_at=shown_at,
        cluster_info_at=shown_at,
    )


def _marks(at: float) -> list[Mark]:
    return [Mark(at + number, step, "") for number, step in enumerate(STEPS, 1)]


def test_each_part_ends_with_the_first_mark_after_the_part_before() -> None:
    marks = [
        Mark(9.0, "callback", ""),  # of another change
        *_marks(10.0),
        Mark(10.5, "commit ends", ""),  # of another document
        Mark(12.5, "request", "POST /events 0.25"),
    ]
    parts = parts_of(marks, [_change(10.0)])
    assert {step: [1.0] for step in (*STEPS, "")} == parts.seconds
    assert parts.device_info == [len(STEPS) + 1.0 - 10]
    assert parts.beside_seconds == {"POST /events": [0.25]}
    assert (parts.changes, parts.incomplete) == (1, 0)


def test_a_change_without_all_marks_is_counted_and_not_measured() -> None:
    for missing in STEPS:
        marks = [mark for mark in _marks(10.0) + _marks(50.0) if mark != (mark.at, missing, "")]
        parts = parts_of(marks, [_change(10.0), _change(50.0)])
        assert parts.incomplete == 2, missing
        assert not any(parts.seconds.values()), missing


def test_marks_are_read_as_they_were_written(tmp_path: Path) -> None:
    (tmp_path / "marks").write_text("1.5\tcallback\t\n2.5\trequest\tPUT /a 0.5\n")
    assert read_marks(tmp_path / "marks") == [
        Mark(1.5, "callback", ""),
        Mark(2.5, "request", "PUT /a 0.5"),
    ]
