"""Why nothing is started at all: a job that was started and of which no PodGroup is made."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from contract.documents.elastic_job import Cause, CauseSource, PersistedJob
from elastic.aggregator_client import AggregatorReply
from elastic.controller import ElasticController
from elastic.end_cause import Evicted
from elastic.job import JobPod
from elastic.job_cache import KINDS
from service.clock import Instant
from stores.cluster import KindUnavailable, Snapshot
from stores.interruption import Interrupted
from tests.elastic.jobs import ENDED_MS, OPEN, UID, read, size, vcjob, with_cause, with_kept

_WRITTEN_MS = ENDED_MS + 1000


async def _no_faults(*_: object, **__: object) -> AggregatorReply:
    return AggregatorReply()


_AGGREGATORS = cast("Any", SimpleNamespace(request=_no_faults))


def _pod(name: str) -> Snapshot[JobPod]:
    """Return that there is a pod of this name, which no job owns."""
    return Snapshot({"p": JobPod("kube-system", name, "p", phase="Running")})


async def _standing_still(now_ms: int, **metadata: object) -> tuple[str, ...]:
    """Return what is shown of a follower that follows one started job without a PodGroup."""
    item = vcjob(phase="Pending")
    item = with_kept(item, PersistedJob(size(4), size(2), "x", 1, _WRITTEN_MS), started=1)
    item["metadata"] |= metadata
    nothing = cast("Any", None)
    follower = cast("Any", SimpleNamespace(leads=False))
    controller = ElasticController(
        nothing, _AGGREGATORS, follower, nothing, lambda: Instant(now_ms, now_ms), acts=True
    )
    given: dict[str, dict[str, Any]] = {"jobs": {"u": read(item)}, "queues": OPEN}
    for name in KINDS:
        controller.cache.update(name, Snapshot(given.get(name, {})))
    await controller.round()
    return controller.blocked_reasons


@pytest.mark.parametrize(("seconds", "stands_still"), [(30, False), (31, True)])
async def test_a_controller_that_is_away_is_named(seconds: int, stands_still: bool) -> None:
    found = await _standing_still(_WRITTEN_MS + seconds * 1000)
    assert any("default/j" in one and "controller" in one for one in found) is stands_still


async def test_a_job_of_a_namespace_that_ends_stops_no_other_one() -> None:
    """Finalizers may keep it for long; the controller makes nothing for it any more."""
    found = await _standing_still(_WRITTEN_MS + 31_000, deletionTimestamp="2026-11-23T11:00:05Z")
    assert found == ()


@pytest.mark.parametrize(
    ("name", "event", "why"),
    [
        ("pods", _pod("resilience-controller-5d7c9"), "a Resilience-Controller runs"),
        ("groups", KindUnavailable("the CRD is missing"), "PodGroups: the CRD is missing"),
        ("queues", KindUnavailable("queues is forbidden"), "Queues: queues is forbidden"),
        ("records", Interrupted("forbidden"), "job-reschedule-reason: forbidden"),
        ("pods", KindUnavailable("pods is forbidden"), "pods: pods is forbidden"),
    ],
)
async def test_a_rival_and_what_cannot_be_read_are_named(name: str, event: Any, why: str) -> None:
    """The evicted job waits meanwhile, and the aggregator is not asked."""
    item = with_cause(vcjob(), Cause("CardUnhealthy", "n0", ENDED_MS, CauseSource.RECORD, UID))
    nothing = cast("Any", None)
    events = cast("Any", SimpleNamespace(report_state=lambda *_, **__: None))
    leader = cast("Any", SimpleNamespace(leads=True))
    now = Instant(ENDED_MS + 1000, ENDED_MS + 1000)
    controller = ElasticController(nothing, nothing, leader, events, lambda: now, acts=True)
    job = read(item)
    evicted = {"r": {job.group: (Evicted(ENDED_MS // 1000 - 60, "CardUnhealthy", "n0"),)}}
    given: dict[str, dict[str, Any]] = {"jobs": {"u": job}, "records": evicted, "queues": OPEN}
    for kind in KINDS:
        controller.cache.update(kind, Snapshot(given.get(kind, {})))
    controller.cache.update(name, event)
    await controller.round()
    assert any(why in one for one in controller.blocked_reasons)
    (shown,) = controller.jobs
    assert shown.state == "standing-still"
    assert why in shown.why
