"""The file of rules as it is raises nothing in ten healthy minutes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.parts.deadlines import nothing_happens_for

if TYPE_CHECKING:
    from tests.alerts.conftest import Healthy

_SECONDS = 600
_FIRST_SECONDS = 60
"""Until all were scraped once, no leader is known, and that alert is pending."""


@pytest.mark.daemon
@pytest.mark.timeout(900)
def test_ten_healthy_minutes_raise_nothing(healthy: Healthy) -> None:
    cluster, since = healthy
    until = since + _FIRST_SECONDS + _SECONDS
    nothing_happens_for(
        max(0.0, until - time.monotonic()), because="the longest of all rules holds for 15 minutes"
    )
    scrapes = cluster.watcher.ask(f"count_over_time(up[{_SECONDS}s])")
    assert min(float(series["value"][1]) for series in scrapes) >= _SECONDS / 15 - 1
    assert cluster.watcher.ask(f"count_over_time(ALERTS[{_SECONDS}s])") == []
