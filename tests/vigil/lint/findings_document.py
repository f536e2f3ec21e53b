"""Makes ``docs/findings.md`` of the table of findings.

::

    python -m tests.vigil.lint.findings_document
"""

from __future__ import annotations

from pathlib import Path

from advisor.findings import RULES

DOCUMENT = Path(__file__).parents[3] / "docs" / "findings.md"
_HEAD = (
    "# Findings of `vigil lint`\n\n"
    "Made from `advisor/findings.py`; words in braces are filled in for each finding. An `error`: "
    "the object is\nrefused, never placed, or a setting does not do what it is for. A `warning`: "
    "it does, but a named case goes\notherwise. An `info`: what was given does not suffice to "
    "judge it. A comment `# vigil: ignore CODE reason` on the\nline of a finding silences it. "
    "Sources are sections, examples and rules of `docs/spec/consumers.md`.\n\n"
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


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
