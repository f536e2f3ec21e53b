"""What is shown at a time: the reports of one session, from dumps or from an aggregator."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from advisor.report_filter import has_node, of_job, of_node, scope_of
from contract.errors import ConfigurationError, Problem
from vigil.advise.run import run
from vigil.advise.server import advised, assumed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from advisor.options import Profile
    from advisor.report import AdviceReport
    from advisor.what_if.assumptions import Assumption
    from vigil.advise.run import Advised

_PERIOD_SECONDS = 1.0
"""How often an aggregator is asked: it assumes a session that often."""


@dataclass(frozen=True)
class AdviceReports:
    """The reports of one session by profile; ``bases`` are those without assumptions."""

    reports: tuple[AdviceReport, ...]
    bases: tuple[AdviceReport | None, ...]


def from_dumps(
    sources: Sequence[str],
    profiles: Sequence[Profile],
    job: str | None,
    node: str | None,
    assumptions: Sequence[Assumption],
    state: Path | None,
    parts: Mapping[str, bool],
) -> Iterator[AdviceReports]:
    """Yield the reports of each session in ``sources``; ``parts`` as in ``run``."""

    def narrowed(report: AdviceReport, one: Advised) -> AdviceReport:
        if job is not None:
            scope = scope_of(one.snapshot, job)
            if scope is None:
                what = f"no PodGroup {job} is in the dump, and none that it owns"
                raise ConfigurationError("--job", [Problem(repr(job), what)])
            report = of_job(report, scope)
        if node is not None:
            if not has_node(one.snapshot, node):
                what = "no such Node is in the dump"
                raise ConfigurationError("--node", [Problem(repr(node), what)])
            report = of_node(report, one.snapshot, node)
        return report

    reports: list[AdviceReport] = []
    bases: list[AdviceReport | None] = []
    for one in run(sources, profiles, assumptions, state, parts):
        reports.append(narrowed(one.report, one))
        bases.append(None if one.base is None else narrowed(one.base, one))
        if len(reports) == len(profiles):
            yield AdviceReports(tuple(reports), tuple(bases))
            reports, bases = [], []


def from_server(
    server: str,
    profiles: Sequence[Profile],
    job: str | None,
    node: str | None,
    what_if: Sequence[str],
    *,
    watch: bool,
) -> Iterator[AdviceReports]:
    """Yield the reports of an aggregator now; with ``watch`` each time that they differ."""
    before: list[AdviceReport] | None = None
    while True:
        found = assumed(server, what_if, job, node) if what_if else advised(server, job, node)
        chosen = [
            (_known(report, found.not_known), base)
            for report, base in zip(found.reports, found.bases, strict=True)
            if report.profile in profiles
        ]
        timeless = [msgspec.structs.replace(report, now_ms=0) for report, _ in chosen]
        if timeless != before:
            before = timeless
            yield AdviceReports(
                tuple(report for report, _ in chosen), tuple(base for _, base in chosen)
            )
        if not watch:
            return
        time.sleep(_PERIOD_SECONDS)


def _known(report: AdviceReport, not_known: dict[str, str]) -> AdviceReport:
    unread = (f"{kind}: {why}" for kind, why in sorted(not_known.items()))
    return msgspec.structs.replace(report, not_known=(*report.not_known, *unread))
