"""The values in which pages and streams show advice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from advisor.options import Profile
from advisor.report import AdviceReport, JobDecision
from aggregator.advising.outcomes import Missed
from contract.pages.messages import PageMessage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class AdviceStatus(msgspec.Struct, frozen=True):
    """What the scheduler will do, by profile.

    ``advised_at_ms`` is the time of the newest session (epoch milliseconds), 0 before the first.
    ``sessions`` are the assumed ones: pending counts in the reports are estimates. ``seconds`` is
    the CPU time of the newest one. ``not_known`` has for each kind that cannot be read the reason.
    ``outcomes`` counts what became of deletions since the start, ``missed`` are the last of them
    that did not come as foretold.
    """

    at_ms: int
    advised_at_ms: int = 0
    sessions: int = 0
    seconds: float = 0.0
    not_known: dict[str, str] = {}
    outcomes: dict[str, int] = {}
    missed: tuple[Missed, ...] = ()
    reports: tuple[AdviceReport, ...] = ()


class AdviceChange(msgspec.Struct, frozen=True):
    """A changed decision of the scheduler about a job.

    ``decision`` is ``None`` where nothing will be done with it any more. ``node`` is that of the
    first pod at fault, empty where there is none.
    """

    node: str
    at_ms: int
    profile: Profile
    job: str
    decision: JobDecision | None


def changes_of(
    reports: Iterable[AdviceReport], before: Sequence[AdviceReport], at_ms: int
) -> Iterator[AdviceChange]:
    """Yield the decisions that changed, by profile and job."""
    now = tuple(reports)
    same = {id(decision) for report in now for decision in report.decisions}
    same &= {id(decision) for report in before for decision in report.decisions}
    old = {
        (report.profile, decision.job): decision
        for report in before
        for decision in report.decisions
        if id(decision) not in same
    }
    for report in now:
        for decision in report.decisions:
            if (
                id(decision) not in same
                and old.pop((report.profile, decision.job), None) != decision
            ):
                node = decision.fault_pods[0].node if decision.fault_pods else ""
                yield AdviceChange(node, at_ms, report.profile, decision.job, decision)
    for (profile, job), last in old.items():
        node = last.fault_pods[0].node if last.fault_pods else ""
        yield AdviceChange(node, at_ms, profile, job, None)


class AdviceAbout(msgspec.Struct, frozen=True):
    """The advice on one node or one job, by profile.

    ``advised_at_ms`` and ``not_known`` are those of ``AdviceStatus``.
    """

    advised_at_ms: int
    not_known: dict[str, str]
    reports: tuple[AdviceReport, ...]


class AdviceOfJob(AdviceAbout, frozen=True):
    """The advice on PodGroups that have a name, or whose owner has it, with placement.

    ``podgroup`` is the requested name, ``podgroups`` are ``<namespace>/<name>``. ``messages`` are
    the sentences that a verb can translate, by their English text. In ``JobStatus`` they are empty.
    """

    at_ms: int
    namespace: str
    podgroup: str
    podgroups: tuple[str, ...]
    messages: dict[str, PageMessage] = {}


class AssumedAdvice(msgspec.Struct, frozen=True):
    """The advice of the next session under the assumptions ``what_if``, by profile.

    ``bases`` are the reports without the assumptions. Verdicts about healthy nodes are left out
    where both have them, and placement where the request names neither a job nor a node.
    ``messages`` are those of ``AdviceOfJob``.
    """

    at_ms: int
    what_if: tuple[str, ...]
    not_known: dict[str, str]
    reports: tuple[AdviceReport, ...]
    bases: tuple[AdviceReport, ...]
    messages: dict[str, PageMessage] = {}


def without_placement(status: AdviceStatus) -> AdviceStatus:
    """Return ``status`` for the page of all jobs: without placement, which has millions of entries
    in a large cluster, and without verdicts about healthy nodes.
    """
    return msgspec.structs.replace(
        status,
        reports=tuple(
            msgspec.structs.replace(
                report,
                placement=(),
                node_verdicts=tuple(
                    verdict for verdict in report.node_verdicts if not verdict.is_calm
                ),
            )
            for report in status.reports
        ),
    )
