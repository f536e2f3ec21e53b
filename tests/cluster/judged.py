"""Compares the differences that were found of a recording with the table, exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.compatibility import check, table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.cluster.comparison import Found
    from tests.compatibility import Difference


def judge(recording: str, found: Iterable[Found]) -> None:
    """Raise ``AssertionError`` for a difference that the table lacks, and for one that is gone."""
    points: dict[str, list[Difference]] = {}
    for one in found:
        points.setdefault(one.name, []).extend(one.differences)
    listed = {r.recording for r in table() if r.recording.startswith(f"clusterd/{recording}@")}
    for point in points.keys() | listed:
        check(point, points.get(point, []))
