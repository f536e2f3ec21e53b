"""The picture of the demo in the README is of the demo as it is now."""

from __future__ import annotations

import html
import re
from itertools import zip_longest

from tests.vigil.demo.picture import FILE, NAME
from vigil.demo.steps import SHORT_SCENARIO

_TEXT = re.compile(rf'<text [^>]* x="([\d.]+)" [^>]*#{NAME}-line-(\d+)\)">(.*?)</text>')
_CHARACTER = 12.2
"""Width of a character in an SVG of rich."""


def _lines(svg: str) -> list[str]:
    """Return the text of each line, with the spaces that the picture leaves out."""
    lines: dict[int, str] = {}
    for x, number, text in _TEXT.findall(svg):
        line = lines.get(int(number), "")
        lines[int(number)] = line.ljust(round(float(x) / _CHARACTER)) + html.unescape(text)
    return [lines[number].replace("\N{NO-BREAK SPACE}", " ") for number in sorted(lines)]


def _rows(lines: list[str]) -> list[tuple[str, ...]]:
    """Return the cells of each row of the table of steps; a row has several lines."""
    rows: list[tuple[str, ...]] = []
    for line in lines:
        cells = [cell.strip() for cell in line.split("│")[1:-1]]
        if len(cells) != 6:
            continue
        if cells[0]:
            rows.append(tuple(cells))
        else:
            joined = zip_longest(rows[-1], cells, fillvalue="")
            rows[-1] = tuple(" ".join(filter(None, pair)) for pair in joined)
    return rows


def test_the_picture_has_each_step_of_the_demo_as_expected() -> None:
    lines = _lines(FILE.read_text(encoding="utf-8"))
    assert [(row[1], row[2], row[5]) for row in _rows(lines)] == [
        (step.title, step.meaning, "ok") for step in SHORT_SCENARIO
    ], "run make picture"
    count = len(SHORT_SCENARIO)
    assert re.fullmatch(
        rf"{count} of {count} expected states were reached in \d+ s: all is well", lines[-1].strip()
    )


def test_the_picture_needs_nothing_from_another_site() -> None:
    references = re.findall(r"url\(([^)]*)\)", FILE.read_text(encoding="utf-8"))
    assert references
    assert all(reference.startswith(f"#{NAME}-") for reference in references)
