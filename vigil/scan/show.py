"""The report as text that needs no terminal."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from contract.counted import counted
from vigil.scan.findings import CheckState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vigil.scan.findings import Check, ScanReport

_WORDS = {
    CheckState.OK: "ok",
    CheckState.WARNING: "warning",
    CheckState.PROBLEM: "PROBLEM",
    CheckState.NOT_APPLICABLE: "-",
}
_WIDTH = 100
_INDENT = " " * 32


def lines(report: ScanReport) -> Iterator[str]:
    """Yield a list with a paragraph for each check, problems and warnings counted at its end."""
    for check in report.checks:
        yield from _paragraph(check)
    totals = "; ".join(
        f"{counted(len(names), state.value)}: {', '.join(names)}"
        for state in (CheckState.PROBLEM, CheckState.WARNING)
        if (names := [check.name for check in report.checks if check.state is state])
    )
    yield ""
    yield f"{report.node or '(no node name)'}: {totals or 'all well'}"


def _paragraph(check: Check) -> Iterator[str]:
    found = check.found.splitlines() or [""]
    head = f"{_WORDS[check.state]:<8} {check.name:<22} "
    yield from _wrapped(head, found[0])
    for line in found[1:]:
        yield from _wrapped(_INDENT, line.strip())
    if check.advice:
        yield from _wrapped(f"{'':<23} to do: ".ljust(32), check.advice)


def _wrapped(head: str, text: str) -> list[str]:
    # A path or command must stay in one piece, so that it can be copied.
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=head,
        subsequent_indent=_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [head.rstrip()]
