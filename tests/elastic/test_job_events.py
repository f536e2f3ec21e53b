"""Which Events a job gets for its states, and when one is a warning."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, cast

from contract.errors import StoreForbidden
from elastic.job_events import JobEvents
from service.clock import system_clock
from tests.elastic.jobs import read, vcjob

if TYPE_CHECKING:
    import pytest

    from stores.base import ClusterObjects, KubernetesEvent


class _Recorded:
    """Keeps what is recorded; nothing of the namespace ``refused`` is."""

    def __init__(self) -> None:
        self.events: list[KubernetesEvent] = []
        self.refused = ""

    async def record(self, event: KubernetesEvent) -> None:
        """Take an Event."""
        if event.namespace == self.refused:
            raise StoreForbidden(f"{event.namespace} is being terminated")
        self.events.append(event)


async def test_waiting_for_pods_is_a_warning_once_it_is_overdue() -> None:
    recorded, job = _Recorded(), read(vcjob())
    events = JobEvents(cast("ClusterObjects", recorded), system_clock, records=True)
    events.report_state(job, "waiting-for-pods", "a pod")
    events.report_state(job, "waiting-for-pods", "a pod")
    events.report_state(job, "waiting-for-pods", "a pod, overdue", is_overdue=True)
    events.report_state(job, "refused", "a webhook")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.05):
            await events.run()
    assert [(one.reason, one.message, one.normal) for one in recorded.events] == [
        ("ElasticWaitingForPods", "a pod", True),
        ("ElasticWaitingForPods", "a pod, overdue", False),
        ("ElasticRefused", "a webhook", False),
    ]


async def test_an_event_that_is_refused_keeps_no_other_one_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In a namespace that ends nothing can be created."""
    recorded, ends, goes_on = _Recorded(), vcjob(), vcjob()
    ends["metadata"]["namespace"] = recorded.refused = "ending"
    events = JobEvents(cast("ClusterObjects", recorded), system_clock, records=True)
    events.report_state(read(ends), "refused", "the namespace is being terminated")
    goes_on["metadata"]["uid"] = "u-other"
    events.report_state(read(goes_on), "refused", "a webhook")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.05):
            await events.run()
    assert [one.message for one in recorded.events] == ["a webhook"]
    assert "is not written: ending is being terminated" in caplog.text
