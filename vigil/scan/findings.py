"""Results of checks, the exit status that follows from them, and their text."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from contract.sentences import counted, joined, message, sentence
from vigil.exit_status import ExitStatus
from vigil.language import shown, translated
from vigil.reports.wrapping import padded, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

Facts: TypeAlias = dict[str, object]
"""Figures and names by what they are."""
_WIDTH = 100
_INDENT = " " * 32


class CheckState(StrEnum):
    """How a thing is."""

    OK = "ok"
    WARNING = "warning"
    """The agent works; something that it shows or needs deserves a look."""
    PROBLEM = "problem"
    NOT_APPLICABLE = "not-applicable"


class Check(msgspec.Struct, frozen=True):
    """What was found of one thing: ``name`` is for programs, ``found`` and ``advice`` for people.

    ``facts`` has figures and names out of ``found``. ``means`` is the exit status that follows.
    ``NOT_WELL``: the agent can work, but something that it is to watch or use does not.
    ``OUTSIDE``: the driver or the store cannot be used, so it can publish nothing.
    ``WRONG_USE``: it would not even start.
    """

    name: str
    state: CheckState
    found: str
    advice: str = ""
    facts: Facts = {}
    means: ExitStatus = ExitStatus.OK


class ScanReport(msgspec.Struct, frozen=True):
    """Everything that was found. ``node`` is ``None`` where the configuration does not name it."""

    node: str | None
    exit_status: ExitStatus
    checks: tuple[Check, ...]


def ok(name: str, finding: str, advice: str = "", facts: Facts | None = None) -> Check:
    """Return that all is well; ``advice`` may still name what would be better."""
    return Check(name, CheckState.OK, finding, advice, facts or {})


def warning(name: str, finding: str, advice: str, facts: Facts | None = None) -> Check:
    """Return that the agent does its work; ``advice`` is what would be better."""
    return Check(name, CheckState.WARNING, finding, advice, facts or {})


def problem(
    name: str,
    finding: str,
    advice: str,
    means: ExitStatus = ExitStatus.NOT_WELL,
    facts: Facts | None = None,
) -> Check:
    """Return that something is wrong; ``advice`` is what to do."""
    return Check(name, CheckState.PROBLEM, finding, advice, facts or {}, means)


def not_applicable(name: str, reason: str) -> Check:
    """Return that it was not looked at, or that there is nothing to look at."""
    return Check(name, CheckState.NOT_APPLICABLE, reason)


def no_answer(path: object, seconds: float) -> str:
    """Return the finding that ``path`` did not answer within ``seconds``."""
    return sentence("{path} hangs: no answer within {seconds} s", path=path, seconds=f"{seconds:g}")


def report(node: str | None, checks: tuple[Check, ...]) -> ScanReport:
    """Return all checks and what they mean together.

    A wrong configuration beats an outside part, since what was asked may have been the wrong one.
    """
    meanings = {check.means for check in checks}
    order = (ExitStatus.WRONG_USE, ExitStatus.OUTSIDE, ExitStatus.NOT_WELL)
    status = next((meaning for meaning in order if meaning in meanings), ExitStatus.OK)
    return ScanReport(node, status, checks)


_WORDS = {
    CheckState.OK: message("ok"),
    CheckState.WARNING: message("warning"),
    CheckState.PROBLEM: message("PROBLEM"),
    CheckState.NOT_APPLICABLE: "-",
}


def lines(report: ScanReport) -> Iterator[str]:
    """Yield a list with a paragraph for each check, problems and warnings counted at its end."""
    for check in report.checks:
        yield from _paragraph(check)
    totals = joined("{before}; {part}", [*_totals(report.checks)] or [sentence("all well")])
    yield ""
    node = report.node or translated("(no node name)")
    yield f"{node}: {shown(totals)}"


def _totals(checks: tuple[Check, ...]) -> Iterator[str]:
    """Yield how many problems and warnings there are, with their names."""
    named = {
        state: [check.name for check in checks if check.state is state]
        for state in (CheckState.PROBLEM, CheckState.WARNING)
    }
    if names := named[CheckState.PROBLEM]:
        texts = message("{count} problem: {names}"), message("{count} problems: {names}")
        yield counted(len(names), *texts, names=joined("{before}, {part}", names))
    if names := named[CheckState.WARNING]:
        texts = message("{count} warning: {names}"), message("{count} warnings: {names}")
        yield counted(len(names), *texts, names=joined("{before}, {part}", names))


def _paragraph(check: Check) -> Iterator[str]:
    finding = shown(check.found).splitlines() or [""]
    word = translated(_WORDS[check.state])
    yield from _wrapped(f"{padded(word, 8)} {check.name:<22} ", finding[0])
    for line in finding[1:]:
        yield from _wrapped(_INDENT, line.strip())
    if check.advice:
        yield from _wrapped(padded(f"{'':<23} {translated('to do')}: ", 32), shown(check.advice))


def _wrapped(head: str, text: str) -> list[str]:
    # A path or command must stay in one piece, so that it can be copied.
    return wrapped(text, _WIDTH, head, _INDENT, breaks_words=False)
