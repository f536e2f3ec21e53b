"""Whether what was found of a recording is what the table and ``NOT_YET`` say, exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.cluster.not_yet import NOT_YET
from tests.compatibility import check, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.cluster.comparison import Found
    from tests.cluster.not_yet import Entry
    from tests.compatibility import Difference


def judge(
    recording: str,
    found: Sequence[Found],
    waiting: Mapping[tuple[str, str], Entry] = NOT_YET,
) -> None:
    """Raises ``AssertionError`` for a difference nobody knows of, and for one that is gone."""
    points: dict[str, list[Difference]] = {}
    for one in found:
        points.setdefault(one.name, [])
        if not _waits(one, found, recording, waiting):
            points[one.name] += one.differences
    listed = {r.recording for r in table() if r.recording.startswith(f"clusterd/{recording}@")}
    for point in points.keys() | listed:
        check(point, points.get(point, []))
    for (name, output), entry in waiting.items():
        if name == recording:
            first = [
                one
                for one in found
                if one.output == output and one.name == f"clusterd/{recording}{entry.since}"
            ]
            assert first, f"{recording}: there is no {output} at {entry.since}"
            assert unlisted(first[0]), f"{recording}: {output} plays at {entry.since} now"


def unlisted(one: Found) -> set[Difference]:
    """What the table does not know."""
    return set(one.differences) - {r.difference for r in table() if r.recording == one.name}


def _waits(
    one: Found,
    found: Sequence[Found],
    recording: str,
    waiting: Mapping[tuple[str, str], Entry],
) -> bool:
    entry = waiting.get((recording, one.output))
    if entry is None:
        return False
    order = list(dict.fromkeys(each.name for each in found))
    since = f"clusterd/{recording}{entry.since}"
    return since in order and order.index(one.name) >= order.index(since)
