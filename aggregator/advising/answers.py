"""Advice about one node or one job for pages, from the newest reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from advisor.report_filter import has_node, of_job, of_node, scope_of
from aggregator.advising.status import AdviceAbout, AdviceOfJob, AdviceStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from advisor.report import AdviceReport
    from advisor.report_filter import JobScope
    from advisor.snapshot import ClusterSnapshot
    from aggregator.advising.cluster_objects import AdvisedObjects


class NewestReports:
    """The newest reports, filtered by the current objects."""

    def __init__(self, objects: AdvisedObjects, status: Callable[[], AdviceStatus]) -> None:
        self._objects = objects
        self._status = status

    def page_of_node(self, node: str) -> AdviceStatus | None:
        """Return the advice on a node and the jobs there; ``None`` where nothing is about it."""
        status = self._status()
        snapshot = self._objects.snapshot(status.at_ms)
        if not has_node(snapshot, node):
            return None
        reports = tuple(of_node(report, snapshot, node) for report in status.reports)
        return msgspec.structs.replace(status, reports=reports)

    def of_node(self, node: str) -> AdviceAbout:
        """Return the advice on a node and the jobs there."""
        status = self._status()
        snapshot = self._objects.snapshot(status.at_ms)
        reports = tuple(of_node(report, snapshot, node) for report in status.reports)
        return AdviceAbout(status.advised_at_ms, status.not_known, reports)

    def of_job(self, namespace: str, name: str, node: str | None = None) -> AdviceOfJob | None:
        """Return the advice on a PodGroup, or on those of an owner; ``None`` for an unknown one.

        ``node``: only what is about that node, too.
        """
        status = self._status()
        snapshot = self._objects.snapshot(status.at_ms)
        scope = scope_of(snapshot, f"{namespace}/{name}")
        if scope is None:
            return None
        return AdviceOfJob(
            status.advised_at_ms,
            status.not_known,
            tuple(narrowed(report, snapshot, scope, node) for report in status.reports),
            status.at_ms,
            namespace,
            name,
            tuple(sorted(scope.groups)),
        )


def narrowed(
    report: AdviceReport, snapshot: ClusterSnapshot, job: JobScope | None, node: str | None
) -> AdviceReport:
    """Return the part of ``report`` about a job and a node, where they are given."""
    if job is not None:
        report = of_job(report, job)
    if node is not None:
        report = of_node(report, snapshot, node)
    return report
