"""Prints findings for people, and for pipelines that show them beside the code."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING

from advisor.findings import BY_CODE, FindingSeverity
from contract.errors import printable
from contract.sentences import counted, joined, sentence
from vigil.language import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from advisor.lint.finding import LintFinding
    from vigil.lint.run import LintReport


class Format(StrEnum):
    """How findings are printed."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"
    SARIF = "sarif"


def lines(report: LintReport, form: Format) -> Iterator[str]:
    """Return the lines of standard output."""
    match form:
        case Format.TEXT:
            yield from _text(report)
        case Format.JSON:
            for finding in report.findings:
                yield json.dumps(_members(finding))
        case Format.GITHUB:
            yield from map(_annotation, report.findings)
        case Format.SARIF:
            yield json.dumps(_sarif(report), indent=2)


def summary(report: LintReport) -> str:
    """Return how much was found, silenced and not judged, in one line."""
    counts = report.counts()
    line = sentence(
        "{files}: {errors}, {warnings}, {infos}",
        files=counted(report.files, "{count} file", "{count} files"),
        errors=counted(counts[FindingSeverity.ERROR], "{count} error", "{count} errors"),
        warnings=counted(counts[FindingSeverity.WARNING], "{count} warning", "{count} warnings"),
        infos=counted(counts[FindingSeverity.INFO], "{count} info", "{count} infos"),
    )
    if report.silenced:
        line = sentence("{line}, {count} silenced", line=line, count=report.silenced)
    if report.not_judged:
        kinds = joined(
            "{before}, {part}", (f"{kind} {count}" for kind, count in report.not_judged.items())
        )
        line = sentence("{line}; not judged: {kinds}", line=line, kinds=kinds)
    if report.passed_over:
        line = sentence(
            "{line}; documents without a kind: {count}", line=line, count=report.passed_over
        )
    return shown(line) + "".join(f"\n{item}" for item in report.not_known)


def _text(report: LintReport) -> Iterator[str]:
    for finding in report.findings:
        place = finding.place
        named = f" {printable(place.object)}" if place.object != place.file else ""
        rule = finding.rule
        head = f"{printable(place.file)}:{place.line}: {rule.severity} {rule.code}{named}"
        yield from (head, f"    {shown(finding.happens)}", f"    -> {shown(finding.write)}")


def _members(finding: LintFinding) -> dict[str, object]:
    return {
        "file": finding.place.file,
        "line": finding.place.line,
        "object": finding.place.object,
        "code": finding.rule.code,
        "severity": finding.rule.severity.value,
        "happens": finding.happens,
        "write": finding.write,
    }


_COMMANDS = {
    FindingSeverity.ERROR: "error",
    FindingSeverity.WARNING: "warning",
    FindingSeverity.INFO: "notice",
}


def _annotation(finding: LintFinding) -> str:
    """Return a workflow command of GitHub."""
    place, command = finding.place, _COMMANDS[finding.rule.severity]
    title = (
        finding.rule.code if place.object == place.file else f"{finding.rule.code} {place.object}"
    )
    values = (("file", place.file), ("line", str(place.line)), ("title", title))
    named = ",".join(f"{key}={_escaped(value, values=True)}" for key, value in values)
    return f"::{command} {named}::{_escaped(f'{finding.happens} {finding.write}')}"


def _escaped(text: str, *, values: bool = False) -> str:
    # The percent sign first, or it would escape the other escapes again.
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if values else text


# SARIF names its levels as GitHub does, but for the lowest.
_LEVELS = _COMMANDS | {FindingSeverity.INFO: "note"}


def _sarif(report: LintReport) -> dict[str, object]:
    """Return a log in SARIF 2.1.0."""
    codes = sorted({finding.rule.code for finding in report.findings})
    rules = [
        {
            "id": code,
            "shortDescription": {"text": BY_CODE[code].happens},
            "help": {"text": BY_CODE[code].write},
            "defaultConfiguration": {"level": _LEVELS[BY_CODE[code].severity]},
        }
        for code in codes
    ]
    results = [
        {
            "ruleId": finding.rule.code,
            "ruleIndex": codes.index(finding.rule.code),
            "level": _LEVELS[finding.rule.severity],
            "message": {"text": f"{finding.happens} {finding.write}"},
            "locations": [_location(finding)],
        }
        for finding in report.findings
    ]
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {"tool": {"driver": {"name": "vigil lint", "rules": rules}}, "results": results},
        ],
    }


def _location(finding: LintFinding) -> dict[str, object]:
    from urllib.parse import quote

    place = finding.place
    physical = {
        # Names that are not UTF-8 were decoded with surrogates; a URI has their bytes.
        "artifactLocation": {"uri": quote(place.file.encode("utf-8", "surrogateescape"))},
        # SARIF counts lines from 1; 0 is a finding without a line.
        "region": {"startLine": max(place.line, 1)},
    }
    location: dict[str, object] = {"physicalLocation": physical}
    if place.object != place.file:
        location["logicalLocations"] = [{"fullyQualifiedName": place.object}]
    return location
