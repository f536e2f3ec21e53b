"""Known advisories about the locked packages, and which of them do not apply.

``pip-audit`` asks the package index, or a service with the interface of OSV. ``advisories.json`` is
a CycloneDX document (VEX): it states for an advisory and a version of a package why it does not
apply. A statement is about one version, so it must be judged again when the lock has another.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

STATEMENTS_NAME = "release/advisories.json"
NONE_OPEN, OPEN, NOT_KNOWN = 0, 1, 3
_UNAFFECTED = ("not_affected", "false_positive")


class _Advisory(msgspec.Struct):
    id: str
    aliases: list[str] = []
    fix_versions: list[str] = []


class Dependency(msgspec.Struct):
    """A package: its advisories, or why it could not be judged."""

    name: str
    version: str = ""
    skip_reason: str = ""
    vulns: list[_Advisory] = []


class _Audit(msgspec.Struct):
    dependencies: list[Dependency]


class _AffectedReference(msgspec.Struct):
    ref: str


class _Analysis(msgspec.Struct):
    state: str
    detail: str = ""


class _Statement(msgspec.Struct):
    id: str
    affects: list[_AffectedReference]
    analysis: _Analysis


class _Statements(msgspec.Struct):
    vulnerabilities: list[_Statement]


class NoResultError(Exception):
    """Nothing is known of any package."""


class AuditOutcome(NamedTuple):
    """The exit status, and lines for a person."""

    status: int
    lines: list[str]


def audit(lock: Path, osv_url: str | None = None) -> list[Dependency]:
    """Return the packages of ``lock`` with their advisories, as the package index has them.

    Raises ``NoResultError`` where pip-audit gives no result.
    """
    service = ("-s", "osv", "--osv-url", osv_url) if osv_url else ("-s", "pypi")
    options = ("--disable-pip", "--require-hashes", "-f", "json", "--progress-spinner", "off")
    done = subprocess.run(
        # Not checked: pip-audit also exits with 1 when there are advisories.
        [sys.executable, "-m", "pip_audit", "-r", str(lock), *options, *service],
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        return msgspec.json.decode(done.stdout, type=_Audit).dependencies
    except msgspec.DecodeError:
        raise NoResultError(f"pip-audit gave no result:\n{done.stderr.strip()}") from None


def judge(dependencies: Sequence[Dependency], statements: bytes) -> AuditOutcome:
    """Return which advisories no statement answers.

    The status is ``OPEN`` where there is one, ``NOT_KNOWN`` where a package could not be judged.
    """
    answers = {
        (statement.id, reference.ref)
        for statement in msgspec.json.decode(statements, type=_Statements).vulnerabilities
        # A statement without a reason counts for nothing, because nobody can judge it again.
        if statement.analysis.state in _UNAFFECTED and statement.analysis.detail
        for reference in statement.affects
    }
    judged = [each for each in dependencies if not each.skip_reason]
    advisories = [(each, advisory) for each in judged for advisory in each.vulns]
    applying = [
        (each, advisory)
        for each, advisory in advisories
        if answers.isdisjoint(_keys(each, advisory))
    ]
    lines = [
        f"{len(judged)} of {len(dependencies)} packages were judged: {len(advisories)} advisories, "
        f"{len(advisories) - len(applying)} of them do not apply"
    ]
    for each, advisory in applying:
        fixed = ", ".join(advisory.fix_versions) or "no version"
        lines.append(f"{each.name} {each.version}: {advisory.id}, fixed in {fixed}")
    lines += [f"not judged: {each.skip_reason}" for each in dependencies if each.skip_reason][:1]
    if applying:
        return AuditOutcome(OPEN, lines)
    # No advisory among packages that were not judged proves nothing.
    return AuditOutcome(
        NONE_OPEN if judged and len(judged) == len(dependencies) else NOT_KNOWN, lines
    )


def _keys(dependency: Dependency, advisory: _Advisory) -> Iterator[tuple[str, str]]:
    # Each publisher names an advisory differently, and a statement has one of the names.
    for name in (advisory.id, *advisory.aliases):
        yield name, f"pkg:pypi/{dependency.name}@{dependency.version}"
