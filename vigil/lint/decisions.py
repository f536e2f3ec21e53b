"""What the advisor finds about the decisions of a running cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.advise import advise
from advisor.findings import LIVE_CODES
from advisor.inputs.scheduler_options import scheduler_options
from advisor.lint.finding import FindingPlace, finding
from advisor.options import AdvisorOptions
from advisor.scheduler_view.state import SchedulerState
from contract.errors import ConfigurationError
from vigil.advise.dump import sessions_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from advisor.lint.finding import LintFinding

SCHEDULER = "kubernetes:scheduler"
"""The file of these findings."""


def judge_decisions(pages: Iterable[tuple[str, bytes]], not_known: list[str]) -> list[LintFinding]:
    """Return what the scheduler is not shown, or decides by a defect of its own.

    ``pages`` are lists and objects of an API server with a name for each. What cannot be read is
    added to ``not_known``.
    """
    found = []
    try:
        for snapshot in sessions_of(pages):
            options = scheduler_options(snapshot.configmaps)
            report, _ = advise(
                snapshot, SchedulerState(), options[0] if options else AdvisorOptions()
            )
            for one in report.findings:
                if one.code in LIVE_CODES:
                    place = FindingPlace(SCHEDULER, 0, one.object)
                    found.append(finding(one.code, place, text=one.text))
    except ConfigurationError as error:
        not_known.append(f"not known: what the scheduler decides: {error}")
    return found
