"""The table of ``docs/differences.md``: every known difference from the real programs.

A test that plays a recording or an example of a real program finds its differences with
``different`` and gives them to ``check``: each needs a row, and each row a difference.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_DOCS = Path(__file__).parents[1] / "docs"
DOCUMENT = _DOCS / "compatibility.md"
"""What differs and why, for people."""
TABLE = _DOCS / "differences.md"
HEADER = ["recording or example", "JSON path", "upstream's value", "ours", "defect id"]
ABSENT = "(absent)"
PRESENT = "(present)"
_CELL = re.compile(r"\s*\|\s*")


@dataclass(frozen=True, order=True)
class Difference:
    """At ``path`` the real program has ``upstream``, as JSON, and this one has ``ours``."""

    path: str
    upstream: str
    ours: str


@dataclass(frozen=True)
class Row:
    """One line of the table: where, what, and the id of the defect that is not copied."""

    recording: str
    difference: Difference
    defect: str


@cache
def table() -> tuple[Row, ...]:
    """Return the rows, in their order. The table is the first one of the document."""
    lines = iter(TABLE.read_text().splitlines())
    header = next(line for line in lines if line.startswith("|"))
    assert _cells(header) == HEADER
    assert set(next(lines)) <= set("|-: ")
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        recording, path, upstream, ours, defect = (cell.strip("`") for cell in _cells(line))
        rows.append(Row(recording, Difference(path, upstream, ours), defect))
    return tuple(rows)


def _cells(line: str) -> list[str]:
    return _CELL.split(line.strip().strip("|").strip())


def check(recording: str, found: Iterable[Difference]) -> None:
    """Check that the table has exactly these differences of ``recording`` (``device-plugin/…``).

    Those of one step are in rows of ``recording@step``.
    """
    listed = {row.difference for row in table() if row.recording == recording}
    differences = set(found)
    unlisted, gone = differences - listed, listed - differences
    assert not unlisted, f"{recording}: not in {TABLE.name}: {sorted(unlisted)}"
    assert not gone, f"{recording}: in {TABLE.name} but does not differ: {sorted(gone)}"


def unlisted(recording: str, found: Iterable[Difference]) -> list[Difference]:
    """Return what ``found`` has at other places than the table: for runs whose times differ.

    There a state of which the table knows what is in it may be missing as a whole.
    """
    known = {row.difference.path for row in table() if row.recording == recording}
    known |= {path.partition(".")[0] for path in known}
    return [one for one in found if one.path not in known]


def different(upstream: Any, ours: Any, path: str = "$") -> Iterator[Difference]:
    """Yield all paths at which two JSON trees differ; the order of members counts, too."""
    if isinstance(upstream, dict) and isinstance(ours, dict):
        if list(upstream) != list(ours) and upstream.keys() == ours.keys():
            yield Difference(f"{path} (order)", _shown(list(upstream)), _shown(list(ours)))
        for key in upstream | ours:
            one, other = upstream.get(key, ABSENT), ours.get(key, ABSENT)
            yield from different(one, other, f"{path}.{key}")
    elif isinstance(upstream, list) and isinstance(ours, list):
        for index, (one, other) in enumerate(zip_longest(upstream, ours, fillvalue=ABSENT)):
            yield from different(one, other, f"{path}[{index}]")
    elif upstream != ours or type(upstream) is not type(ours):
        yield Difference(path, _shown(upstream), _shown(ours))


def _shown(value: Any) -> str:
    if value == ABSENT:
        return ABSENT
    return PRESENT if isinstance(value, dict) else json.dumps(value, ensure_ascii=False)
