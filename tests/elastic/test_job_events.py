"""Which Events a job gets for its states, and when one is a warning."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, cast

from elastic.job_events import JobEvents
from service.clock import system_clock
from tests.elastic.jobs import read, vcjob

if TYPE_CHECKING:
    from stores.base import ClusterObjects, KubernetesEvent


class _Recorded:
    """Keeps what is recorded."""

    def __init__(self) -> None:
        self.events: list[KubernetesEvent] = []

    async def record(self, event: KubernetesEvent) -> None:
        """Take an Event."""
        self.events.append(event)


async def test_waiting_for_pods_is_a_warning_once_it_is_overdue() -> None:
    recorded, job = _Recorded(), read(vcjob())
    telling = JobEvents(cast("ClusterObjects", recorded), system_clock, records=True)
    telling.state(job, "waiting-for-pods", "a pod")
    telling.state(job, "waiting-for-pods", "a pod")
    telling.state(job, "waiting-for-pods", "a pod, overdue", is_overdue=True)
    telling.state(job, "refused", "a webhook")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.05):
            await telling.run()
    assert [(one.reason, one.message, one.normal) for one in recorded.events] == [
        ("ElasticWaitingForPods", "a pod", True),
        ("ElasticWaitingForPods", "a pod, overdue", False),
        ("ElasticRefused", "a webhook", False),
    ]
