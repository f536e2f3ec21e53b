"""What the parts of ``make test-alerts`` share."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.alerts.cluster import Cluster
from tests.alerts.times import Times
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Healthy(NamedTuple):
    """A healthy cluster with the file of rules as it is, and since when it has been watched."""

    cluster: Cluster
    since: float


@pytest.fixture(scope="session")
def healthy(tmp_path_factory: pytest.TempPathFactory, built: Path) -> Iterator[Healthy]:
    """Yield a cluster that stays healthy while other tests cause alerts elsewhere."""
    cluster = Cluster(tmp_path_factory.mktemp("healthy"), built)
    with contextlib.closing(cluster):
        cluster.start(factor=1, scrape_seconds=15)
        yield Healthy(cluster, time.monotonic())


@pytest.fixture(scope="session")
def times(request: pytest.FixtureRequest, healthy: Healthy) -> Iterator[Times]:
    """Yield the times; a run without a failure replaces the rows that it has measured.

    Not where the limits are multiplied, because those of the table would be others.
    """
    times = Times()
    yield times
    is_strict = patience(1) == 1
    if is_strict and not request.session.testsfailed:
        times.publish()
