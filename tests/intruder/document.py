"""The section of ``docs/security.md`` that shows the table.

``python -m tests.intruder.document`` writes it.
"""

from __future__ import annotations

import textwrap
from itertools import product
from typing import TYPE_CHECKING

from tests.intruder import account_rows, agent_rows, broker, contents, daemon
from tests.intruder.table import Actor, Cell, Gap, Row, Thing, Verb, cells
from tests.parts.tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable

SECURITY = ROOT / "docs/security.md"
HEAD = "\n## What each actor may do\n"
ROWS: tuple[Row, ...] = (
    *(*agent_rows.ROWS, *account_rows.ROWS, *broker.ROWS, *daemon.ROWS),
    *(*contents.ON_API_SERVER, *contents.ON_BROKER),
)
GAPS: tuple[Gap, ...] = (*agent_rows.GAPS, *account_rows.GAPS, *broker.GAPS, *daemon.GAPS)
_TEXT = (
    "Each cell without a number is tested: an actor tries something with a thing, on a real API "
    "server, broker or daemon. *Refused* names what refuses it first. *May* names what remains "
    "open. A number is the reason why there is nothing to try. A flood writes things without end, "
    "under names that the actor chooses. `make test-intruder` repeats each refused attempt without "
    "its protections: then nothing else refuses it. For a check in code it removes the setting, "
    "and in a second run the check itself. `python -m tests.intruder.document` writes "
    "this section."
)


def section() -> str:
    """Return the section, from its head to the end of the document."""
    table = cells(ROWS, GAPS)
    reasons = list(dict.fromkeys(entry for entry in table.values() if isinstance(entry, str)))
    lines = [
        f"| actor | thing | {' | '.join(verb.value for verb in Verb)} |",
        f"|---|---|{'---|' * len(Verb)}",
    ]
    for actor, thing in product(Actor, Thing):
        line = [_shown(table, reasons, (actor, thing, verb)) for verb in Verb]
        lines.append(f"| {actor.value} | {thing.value} | {' | '.join(line)} |")
    numbered = [f"{number}. {_sentence(text)}" for number, text in enumerate(reasons, 1)]
    text = textwrap.fill(_TEXT, 120, break_on_hyphens=False)
    return "\n".join([HEAD, text, "", *lines, "", *numbered, ""])


def _shown(table: dict[Cell, list[Row] | str], reasons: list[str], cell: Cell) -> str:
    entry = table[cell]
    if isinstance(entry, str):
        return str(reasons.index(entry) + 1)
    refusing = _each(row.protections[0].value for row in entry if row.protections)
    permitted = _each(row.about for row in entry if not row.protections)
    parts = [("refused: ", refusing), ("may: ", permitted)]
    return "<br>".join(head + "; ".join(texts) for head, texts in parts if texts)


def _each(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


if __name__ == "__main__":
    SECURITY.write_text(SECURITY.read_text(encoding="utf-8").partition(HEAD)[0] + section())
