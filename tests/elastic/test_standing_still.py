"""Why nothing is started at all: a job that was started and of which no PodGroup is made."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from contract.documents.elastic_job import PersistedJob
from elastic.controller import Acting
from elastic.job_cache import KINDS
from service.clock import Instant
from stores.cluster import Snapshot
from tests.elastic.jobs import ENDED_MS, read, size, vcjob, with_kept

_WRITTEN_MS = ENDED_MS + 1000


async def _standing_still(now_ms: int, **metadata: object) -> tuple[str, ...]:
    """Return what is shown of a follower that follows one started job without a PodGroup."""
    item = vcjob(phase="Pending")
    item = with_kept(item, PersistedJob(size(4), size(2), "x", 1, _WRITTEN_MS), started=1)
    item["metadata"] |= metadata
    nothing = cast("Any", None)
    follower = cast("Any", SimpleNamespace(leads=False))
    acting = Acting(nothing, nothing, follower, nothing, lambda: Instant(now_ms, now_ms), acts=True)
    for name in KINDS:
        acting.known.observe(name, Snapshot({"u": read(item)} if name == "jobs" else {}))
    await acting.round()
    return acting.standing_still


@pytest.mark.parametrize(("seconds", "stands_still"), [(30, False), (31, True)])
async def test_a_closed_queue_is_named(seconds: int, stands_still: bool) -> None:
    found = await _standing_still(_WRITTEN_MS + seconds * 1000)
    assert any("default/j" in one and "queue" in one for one in found) is stands_still


async def test_a_job_of_a_namespace_that_ends_stops_no_other_one() -> None:
    """Finalizers may keep it for long; the controller makes nothing for it any more."""
    found = await _standing_still(_WRITTEN_MS + 31_000, deletionTimestamp="2026-11-23T11:00:05Z")
    assert found == ()
