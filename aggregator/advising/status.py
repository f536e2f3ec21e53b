"""What is shown of the advice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from advisor.options import Profile
from advisor.report import Decision, Report
from aggregator.advising.outcomes import Missed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from advisor.snapshot import PodGroup


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
    reports: tuple[Report, ...] = ()


class AdviceChange(msgspec.Struct, frozen=True):
    """What the scheduler will do with a job, otherwise than before.

    ``decision`` is ``None`` where nothing is to be done with it any more. ``node`` is that of the
    first pod at fault, empty where there is none.
    """

    node: str
    at_ms: int
    profile: Profile
    job: str
    decision: Decision | None


def changes_of(
    reports: Iterable[Report], before: Iterable[Report], at_ms: int
) -> Iterator[AdviceChange]:
    """The decisions that are otherwise than before, by profile and job."""
    old = {(report.profile, one.job): one for report in before for one in report.decisions}
    for report in reports:
        for one in report.decisions:
            if old.pop((report.profile, one.job), None) != one:
                node = one.fault_pods[0].node if one.fault_pods else ""
                yield AdviceChange(node, at_ms, report.profile, one.job, one)
    for (profile, job), last in old.items():
        node = last.fault_pods[0].node if last.fault_pods else ""
        yield AdviceChange(node, at_ms, profile, job, None)


class AdviceOfJob(msgspec.Struct, frozen=True):
    """What is advised about one PodGroup, with where its pods can go."""

    at_ms: int
    namespace: str
    podgroup: str
    reports: tuple[Report, ...]


def without_placement(status: AdviceStatus) -> AdviceStatus:
    """``status`` for the page of all jobs: in a large cluster placement has millions of entries,
    and verdicts about nodes that are well are left out."""
    return msgspec.structs.replace(
        status,
        reports=tuple(
            msgspec.structs.replace(
                report,
                placement=(),
                node_verdicts=tuple(one for one in report.node_verdicts if not one.is_calm),
            )
            for report in status.reports
        ),
    )


def of_job(group: PodGroup, pods: Collection[str], status: AdviceStatus) -> AdviceOfJob:
    """What ``status`` has about a PodGroup, whose pods have the uids ``pods``."""
    owner = group.owner.name if group.owner is not None else group.name
    subjects = {f"{group.namespace}/{name}" for name in (group.name, owner)}
    reports = tuple(
        msgspec.structs.replace(
            report,
            node_verdicts=(),
            decisions=tuple(one for one in report.decisions if one.job == group.key),
            create_advice=tuple(
                one for one in report.create_advice if f"{one.namespace}/{one.name}" in subjects
            ),
            elastic_advice=tuple(
                one for one in report.elastic_advice if f"{one.namespace}/{one.name}" in subjects
            ),
            findings=tuple(
                one for one in report.findings if one.object.rpartition(" ")[2] in subjects
            ),
            placement=tuple(
                one for one in report.placement if any(pod.uid in pods for pod in one.pods)
            ),
            gangs=tuple(one for one in report.gangs if f"{one.namespace}/{one.name}" == group.key),
        )
        for report in status.reports
    )
    return AdviceOfJob(status.at_ms, group.namespace, group.name, reports)
