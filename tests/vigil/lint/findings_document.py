"""Makes ``docs/findings.md`` of the table of findings, and a table of ``docs/lint.md``.

::

    python -m tests.vigil.lint.findings_document
"""

from __future__ import annotations

from pathlib import Path

from advisor.findings import RULES
from advisor.lint.reach import PLACES, PROVED_KINDS

_DOCS = Path(__file__).parents[3] / "docs"
DOCUMENT, LINT = _DOCS / "findings.md", _DOCS / "lint.md"
BEGIN, END = "<!-- made from advisor/lint/reach.py -->", "<!-- end -->"
_HEAD = (
    "# Findings of `vigil lint`\n\n"
    "Made from `advisor/findings.py`; words in braces are filled in for each finding. An `error`: "
    "the object is\nrefused, never placed, or a setting does not do what it is for. A `warning`: "
    "it does, but a named case goes\notherwise. An `info`: what was given does not suffice to "
    "judge it, or the job is right and does without something;\nit never counts. A comment "
    "`# vigil: ignore CODE reason` on the line of a finding silences it. Sources are "
    "sections,\nexamples and rules of `docs/spec/consumers.md`.\n\n"
    "| code | severity | what will happen | what to write | source |\n|---|---|---|---|---|\n"
)


def document() -> str:
    """Return the whole document."""
    rows = [
        (f"`{one.code}`", str(one.severity), one.happens, one.write, one.source) for one in RULES
    ]
    return _HEAD + "".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in rows
    )


def places() -> str:
    """Return the table of ``docs/lint.md`` about where labels and annotations count."""
    rows = ["| kind | place | reaches | source | test |", "|---|---|---|---|---|"]
    for one in PLACES:
        test = "`tests/volcano/real_labels.py`" if one.kind in PROVED_KINDS else "-"
        cells = (one.kind, f"`{one.path}`", one.reach.value, one.source, test)
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
    begin, _, rest = LINT.read_text(encoding="utf-8").partition(BEGIN)
    end = rest[rest.index(END) :]
    LINT.write_text(f"{begin}{BEGIN}\n{places()}{end}", encoding="utf-8")
