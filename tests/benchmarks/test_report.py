"""The figures of a latency run."""

from __future__ import annotations

import pytest

from benchmarks.report import TAINT_TARGETS, Pattern, Report, quantile_ms
from benchmarks.visibility import Change


def a_change(at: float, device_info_at: float | None, cluster_info_at: float | None) -> Change:
    change = Change("node", 0, "80E01801", True, at, device_info_at, cluster_info_at)
    if device_info_at is not None and cluster_info_at is not None:
        change.seen.set()
    return change


@pytest.mark.parametrize(
    ("quantile", "milliseconds"), [(0.5, 100.0), (0.99, 198.0), (1.0, 200.0), (0.001, 1.0)]
)
def test_quantiles_are_values_that_were_measured(quantile: float, milliseconds: float) -> None:
    seconds = [number / 1000 for number in range(200, 0, -1)]
    assert quantile_ms(seconds, quantile) == pytest.approx(milliseconds)


def test_a_change_that_never_showed_is_lost_and_misses_the_budget() -> None:
    changes = [a_change(1.0, 1.004, 1.01), a_change(2.0, 2.006, None)]
    report = Report([1.0], [Pattern("single", changes, [0.002])], [])
    device, cluster = (row for row in report.rows() if row.kind == "occur")
    assert report.lost() == 1
    assert (device.lost, cluster.lost) == (0, 1)
    assert device.p50_ms == pytest.approx(4.0)
    assert device.max_ms == pytest.approx(6.0)
    assert device.p50_ratio == pytest.approx(2.0)
    assert device.is_within_budget
    assert cluster.is_within_budget is False


def test_ratio_and_tail_each_decide_about_the_budget() -> None:
    slow = [a_change(0.0, 0.007, 0.01)] * 100
    tail = [a_change(0.0, 0.004, 0.01)] * 98 + [a_change(0.0, 0.061, 0.07)] * 2
    patterns = [("single", slow), ("burst", tail), ("train 0.1 s", tail)]
    report = Report([1.0], [Pattern(name, one, [0.002]) for name, one in patterns], [])
    verdicts = {
        row.pattern: row.is_within_budget
        for row in report.rows()
        if (row.kind, row.target) == ("occur", "device-info")
    }
    assert verdicts == {"single": False, "burst": False, "train 0.1 s": None}


def test_a_change_that_taints_is_visible_with_the_taint_of_its_node() -> None:
    change = a_change(1.0, 1.004, 1.01)
    change.taints = True
    seen_before = change.is_seen
    change.taint_at = 1.02
    assert (seen_before, change.is_seen) == (False, True)
    pattern = Pattern("taint", [change], [0.004], TAINT_TARGETS)
    documents, taint = (pattern.row(True, target) for target in TAINT_TARGETS)
    assert documents.p50_ms == pytest.approx(10.0)
    assert taint.p50_ms == pytest.approx(20.0)
    assert taint.is_within_budget is False, "five times the bare write are too much"
