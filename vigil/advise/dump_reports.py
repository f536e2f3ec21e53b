"""The advice about each session of dumps, of one job or node where that is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.report_filter import has_node, of_job, of_node, scope_of
from contract.errors import ConfigurationError, Problem
from vigil.advise.run import AdvicePair, run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from advisor.options import Profile
    from advisor.report import AdviceReport
    from advisor.snapshot import ClusterSnapshot
    from advisor.what_if.assumptions import Assumption


def from_dumps(
    sources: Sequence[str],
    profiles: Sequence[Profile],
    job: str | None,
    node: str | None,
    assumptions: Sequence[Assumption],
    state: Path | None,
    parts: Mapping[str, bool],
) -> Iterator[list[AdvicePair]]:
    """Yield the reports of each session in ``sources``; ``parts`` as in ``run``."""

    def narrowed(report: AdviceReport, snapshot: ClusterSnapshot) -> AdviceReport:
        if job is not None:
            scope = scope_of(snapshot, job)
            if scope is None:
                what = f"no PodGroup {job} is in the dump, and none that it owns"
                raise ConfigurationError("--job", [Problem(repr(job), what)])
            report = of_job(report, scope)
        if node is not None:
            if not has_node(snapshot, node):
                what = "no such Node is in the dump"
                raise ConfigurationError("--node", [Problem(repr(node), what)])
            report = of_node(report, snapshot, node)
        return report

    pairs: list[AdvicePair] = []
    for snapshot, (report, base) in run(sources, profiles, assumptions, state, parts):
        narrowed_base = None if base is None else narrowed(base, snapshot)
        pairs.append(AdvicePair(narrowed(report, snapshot), narrowed_base))
        if len(pairs) == len(profiles):
            yield pairs
            pairs = []
