"""What keeps `vigil elastic` from starting jobs again raises its alerts, on a real API server."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from tests.alerts.times import FACTOR, Cause
from tests.alerts.watcher import Targets, Watcher
from tests.elastic.bed import Bed
from tests.elastic.jobs import vcjob
from tests.parts import pods
from tests.parts.controlplane import ControlPlane
from tests.parts.volcano import JOBS, Volcano, install

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.alerts.times import Times

pytestmark = [pytest.mark.apiserver, pytest.mark.daemon, pytest.mark.timeout(600)]

RIVAL = "resilience-controller-5d7c9"
EARLIER = "earlier"


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """Yield a cluster with an aggregator that advises, and a stand-in for Volcano."""
    with ControlPlane(tmp_path_factory.mktemp("plane")) as plane:
        install(plane)
        made = Bed(tmp_path_factory.mktemp("elastic"), Volcano(plane), 1)
        with contextlib.ExitStack() as stack:
            stack.callback(made.stop)
            stack.enter_context(made.volcano)
            yield made


@pytest.fixture(scope="module")
def watcher(bed: Bed) -> Iterator[Watcher]:
    """Yield what watches the aggregator and a daemon that makes a dry run."""
    elastic = bed.elastic("daemon")
    elastic.start()
    addresses = [url.removeprefix("http://") for url in (bed.aggregator.url, elastic.url)]
    targets = Targets({}, (addresses[0],), (addresses[1],))
    watcher = Watcher(bed.directory / "watcher", targets, FACTOR)
    yield watcher
    watcher.close()
    elastic.stop()


def test_another_controller_and_a_job_that_ended_long_ago(
    bed: Bed, watcher: Watcher, times: Times
) -> None:
    def end_job() -> None:
        """Add a job that ended before the history of the aggregator begins."""
        item = vcjob(EARLIER, 1)
        status = item.pop("status")
        for field in ("uid", "resourceVersion", "creationTimestamp"):
            del item["metadata"][field]
        bed.plane.request("POST", JOBS, item)
        bed.plane.request("PATCH", f"{JOBS}/{EARLIER}/status", {"status": status})

    times.measure(
        watcher,
        Cause(
            "NpuVigilElasticCauseNotKnown",
            {"state": "cause-not-known"},
            "a job that ended before the history of the aggregator begins",
            end_job,
            lambda: bed.plane.request("DELETE", f"{JOBS}/{EARLIER}"),
        ),
    )
    times.measure(
        watcher,
        Cause(
            "NpuVigilElasticStandingStill",
            {},
            "a pod of a Resilience-Controller",
            lambda: pods.make(bed.plane, RIVAL, bed.nodes[0]),
            lambda: pods.delete(bed.plane, RIVAL),
        ),
    )
