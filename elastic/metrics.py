"""Prometheus metrics of the daemon, computed at each scrape."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from prometheus_client.registry import Collector

from elastic.decision import REFUSED, VcjobState
from service.metric_families import counter, gauge, single_counter, single_gauge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from elastic.controller import ElasticController

STATES = (*(state.value for state in VcjobState), REFUSED)
_REFUSALS = ("conflict", "refused", "unavailable")


class ElasticMetrics(Collector):
    """The metrics of a controller."""

    def __init__(self, controller: ElasticController) -> None:
        self._controller = controller

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        states = Counter(job.state for job in self._controller.jobs)
        yield gauge(
            "npu_vigil_elastic_jobs",
            "Elastic vcjobs by how it stands with them.",
            ["state"],
            (([state], states[state]) for state in STATES),
        )
        yield single_counter(
            "npu_vigil_elastic_starts",
            "Vcjobs that this process started again.",
            self._controller.starts,
        )
        yield single_counter(
            "npu_vigil_elastic_ends",
            "Vcjobs that this process ended because of a network fault.",
            self._controller.faults.ends,
        )
        yield single_counter(
            "npu_vigil_elastic_deleted_pods",
            "Pods of dead nodes that this process deleted by force.",
            self._controller.faults.deleted_pods,
        )
        yield counter(
            "npu_vigil_elastic_refusals",
            "Writes that the API server did not take.",
            ["reason"],
            (([reason], self._controller.refusals[reason]) for reason in _REFUSALS),
        )
        yield single_gauge(
            "npu_vigil_elastic_blocking_reasons",
            "How many reasons there are to start nothing at all.",
            len(self._controller.blocked_reasons),
        )
