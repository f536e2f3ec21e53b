"""An alert outlives a change of the leader and a restart of Prometheus, with real parts."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import pytest

from tests.alerts.cluster import Cluster
from tests.alerts.watcher import SCRAPE_SECONDS, seconds_of
from tests.parts.deadlines import patience, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

    from tests.aggregator.daemon import Daemon

pytestmark = [pytest.mark.daemon, pytest.mark.timeout(300)]

FACTOR = 3
"""Divides durations; an alert is pending for long enough that something else can happen."""
ALERT = "NpuVigilNodeLost"
LASTS_SECONDS = seconds_of("1m") / FACTOR
SLACK_SECONDS = 10


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, built: Path) -> Iterator[Cluster]:
    """Yield two nodes and two aggregators, of which the first one leads."""
    cluster = Cluster(tmp_path_factory.mktemp("changes"), built, nodes=2, aggregators=2)
    with contextlib.closing(cluster):
        cluster.start(FACTOR)
        yield cluster


def alert_in(cluster: Cluster, *states: str) -> dict[str, Any]:
    """Return the alert if it is in one of ``states``, else nothing; no other one may fire."""
    watcher = cluster.watcher
    assert watcher.alerts("firing").keys() <= {ALERT}
    return watcher.alerts(*states).get(ALERT, {})


def begin(cluster: Cluster) -> dict[str, Any]:
    """Kill an agent; return the alert once it is pending."""
    cluster.watcher.resolve()
    cluster.nodes[1].kill()
    return wait_until(lambda: alert_in(cluster, "pending"), "it is pending", 30, 0.1)


def fire(cluster: Cluster) -> dict[str, Any]:
    """Wait until the alert fires, and return it."""
    seconds = 2 * LASTS_SECONDS + SLACK_SECONDS
    return wait_until(lambda: alert_in(cluster, "firing"), "it fires", seconds, 0.1)


def leads(cluster: Cluster, aggregator: Daemon) -> bool:
    """Return whether an aggregator leads, as Prometheus sees it."""
    series = cluster.watcher.ask("npu_vigil_aggregator_leader == 1")
    return [row["metric"]["instance"] for row in series] == [aggregator.url.partition("//")[2]]


def test_a_new_leader_does_not_delay_an_alert_that_is_pending(cluster: Cluster) -> None:
    first, second = cluster.aggregators
    wait_until(lambda: leads(cluster, first), "the first one leads")
    pending = begin(cluster)
    first.kill()
    wait_until(lambda: leads(cluster, second), "the second one leads")
    assert alert_in(cluster, "pending")["activeAt"] == pending["activeAt"]
    assert fire(cluster)["activeAt"] == pending["activeAt"]
    cluster.nodes[1].start()
    first.spawn()
    cluster.watcher.resolve()


def test_prometheus_restarts_while_an_alert_is_pending_and_while_it_fires(cluster: Cluster) -> None:
    since = time.monotonic()
    begin(cluster)
    cluster.watcher.restart_prometheus()
    restarted = time.monotonic()
    fire(cluster)
    # Prometheus keeps the age of an alert only where it is pending for ten minutes and longer.
    limit = LASTS_SECONDS + SCRAPE_SECONDS + SLACK_SECONDS
    assert time.monotonic() - restarted <= patience(limit)
    notices = cluster.watcher.notices
    wait_until(lambda: notices({ALERT: since}, "firing"), "it is sent")
    sent = time.monotonic()
    cluster.watcher.restart_prometheus()
    fire(cluster)
    # Who has the first message gets no second one, and none about an end.
    assert notices({ALERT: sent}, "firing") == notices({ALERT: sent}, "resolved") == {}
    cluster.nodes[1].start()
    wait_until(lambda: notices({ALERT: sent}, "resolved"), "its end is sent", 30)
    cluster.watcher.resolve()
