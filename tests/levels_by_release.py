"""Makes the table of levels that changed since earlier releases, in ``docs/compatibility.md``.

::

    python -m tests.levels_by_release

What a release had is in ``docs/spec/levels-by-release.md``; today's level is in ``contract/data``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from contract.codes.catalogue import shipped
from contract.codes.reference import describe_code

if TYPE_CHECKING:
    from collections.abc import Iterator

_DOCS = Path(__file__).parents[1] / "docs"
SPEC = _DOCS / "spec" / "levels-by-release.md"
DOCUMENT = _DOCS / "compatibility.md"
RELEASES = (("v7.2.RC1",), ("v7.3.0", "v7.3.2"), ("v26.0.0", "v26.0.1"))
"""Releases of one column had the same levels."""
_OF_SWITCHES = {
    "NotHandle": "NotHandleFault",
    "RestartRequest": "RestartRequestFault",
    "PreSeparate": "PreSeparateFault",
    "Separate": "SeparateFault",
}
"""The names of the lists in which the tables of switches have codes of these levels."""
_BEGIN = "| kind | code | what it is | "
_ROW = re.compile(r"\| (chip|switch|node|public) \| (\S+) \| (.+?) \| (.+?) \|")
_MISSING = re.compile(r"\| (chip|switch|node|public) \| (\d+) codes of today are not listed")


def levels_of(release: str) -> dict[tuple[str, str], tuple[str, str]]:
    """Return kind and code to the level in ``release`` and the one that the spec calls today's."""
    found = {}
    for line in _section(release):
        if row := _ROW.fullmatch(line):
            kind, code, before, today = row.groups()
            # A code in two lists has the more serious level; here both are the same.
            (level,) = set(before.split(" + "))
            found[kind, code] = level, today
    return found


def not_listed(release: str) -> dict[str, int]:
    """Return how many of today's codes ``release`` does not list, by kind."""
    rows = filter(None, map(_MISSING.match, _section(release)))
    return {row[1]: int(row[2]) for row in rows}


def unlisted(release: str) -> set[str]:
    """Return the codes of chips with a changed level that ``release`` does not list."""
    line = next((line for line in _section(release) if line.startswith("Not listed")), "")
    return set(re.findall(r"\b[0-9A-F]{8}\b", line))


def _section(release: str) -> Iterator[str]:
    _, _, rest = SPEC.read_text(encoding="utf-8").partition(f"\n## {release}\n")
    assert rest, release
    yield from rest.partition("\n## ")[0].splitlines()


def level_today(kind: str, code: str) -> str:
    """Return the level of a code in the tables of this package; empty where it is in none."""
    tables = shipped()
    levels = {
        "chip": tables.chip_levels,
        "switch": tables.switch_levels,
        "node": tables.node_levels,
        "public": tables.public_levels,
    }[kind]
    level = str(levels.get(code, ""))
    return _OF_SWITCHES.get(level, level) if kind == "switch" else level


def table() -> str:
    """Return the table: each code whose level is another one today than in some release."""
    before = [levels_of(releases[0]) for releases in RELEASES]
    changed = {
        key for levels in before for key, (level, _) in levels.items() if level != level_today(*key)
    }
    lines = [
        _BEGIN + " | ".join(", ".join(names) for names in RELEASES) + " | today |",
        "|---|---|---|" + "---|" * (len(RELEASES) + 1),
    ]
    for kind, code in sorted(changed):
        today = level_today(kind, code)
        shown = []
        for releases, levels in zip(RELEASES, before, strict=True):
            cell = levels.get((kind, code), (today, ""))[0]
            is_missing = code in unlisted(releases[0])
            shown.append("by severity" if is_missing else "" if cell == today else f"`{cell}`")
        known = describe_code(code)
        summary = "" if known is None else known.summary
        lines.append(f"| {kind} | `{code}` | {summary} | {' | '.join(shown)} | `{today}` |")
    return "\n".join(lines) + "\n"


def document() -> str:
    """Return the document with the table as it should be."""
    text = DOCUMENT.read_text(encoding="utf-8")
    begin = text.index(_BEGIN)
    end = text.index("\n\n", begin) + 1
    return text[:begin] + table() + text[end:]


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
