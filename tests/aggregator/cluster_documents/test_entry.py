"""Entries and their stamps: always greater, hardly ahead of the clock, across restarts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from aggregator.cluster_documents.kinds import ClusterEntry, Wait, merge
from contract.documents.cluster_info import member, value_of
from contract.documents.device_info import LEAD_SECONDS
from service.clock import Instant
from tests.aggregator.nodes import T0, faulty, healthy, instant, record
from tests.contract.documents.clusterd_examples import EXAMPLES
from tests.contract.documents.node_documents import config

if TYPE_CHECKING:
    from contract.documents.cluster_device import DeviceRecord


def entry(result: ClusterEntry[DeviceRecord] | Wait) -> ClusterEntry[DeviceRecord]:
    assert isinstance(result, ClusterEntry)
    return result


def test_e24_a_newer_time_travels_with_the_next_change() -> None:
    def value(one: ClusterEntry[DeviceRecord]) -> str:
        return value_of([member("mindx-dl-deviceinfo-node1", one.text)])

    first = entry(merge("node1", record(healthy()), None, instant(100)))
    assert value(first) == EXAMPLES["E24"]["before"]
    assert merge("node1", record(healthy(T0 + 60)), first, instant(161)) is first
    changed = record(config(unhealthy=(1,), update_time=T0 + 61))
    assert value(entry(merge("node1", changed, first, instant(162)))) == EXAMPLES["E24"]["output"]


def test_a_stamp_grows_although_the_node_reports_an_older_time() -> None:
    first = entry(merge("n", record(healthy(T0 + 50)), None, instant(100)))
    second = entry(merge("n", record(faulty(update_time=T0 + 40)), first, instant(101)))
    assert (first.stamp, second.stamp) == (T0 + 50, T0 + 51)
    assert json.loads(second.text)["UpdateTime"] == T0 + 51


def test_a_node_whose_clock_runs_ahead_is_not_followed() -> None:
    first = entry(merge("n", record(healthy(T0 + 9000)), None, instant(100)))
    assert first.stamp == T0 + 100 + LEAD_SECONDS


def test_changes_that_would_run_ahead_are_taken_together_once_a_second() -> None:
    now, one = instant(0), entry(merge("n", record(healthy()), None, instant(0)))
    for chip in range(1, 6):
        one = entry(merge("n", record(faulty(chip)), one, now))
    assert one.stamp == T0 + 5
    assert merge("n", record(faulty(6)), one, instant(0.4)) == Wait(1000)
    # The whole second comes sooner than a second after the last change.
    assert merge("n", record(faulty(6)), one, Instant(T0 * 1000 + 900, 400)) == Wait(500)
    assert entry(merge("n", record(faulty(7)), one, instant(1.0))).stamp == T0 + 6


def test_a_clock_that_was_set_back_delays_a_fault_by_a_second_at_most() -> None:
    one = entry(merge("n", record(healthy(T0 + 3600)), None, instant(3600, steady=10)))
    assert merge("n", record(faulty(1)), one, instant(0, steady=10.5)) == Wait(11_000)
    later = entry(merge("n", record(faulty(1)), one, instant(0.5, steady=11)))
    assert later.stamp == T0 + 3601


def test_an_entry_of_an_earlier_run_is_followed_at_once() -> None:
    before = entry(merge("n", record(healthy(T0 + 3600)), None, instant(3600)))
    restored = ClusterEntry(before.text, before.stamp, before.record)
    assert entry(merge("n", record(faulty(1)), restored, instant(0))).stamp == T0 + 3601
    assert merge("n", record(healthy(T0)), restored, instant(0)) is restored


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(-20, 20), st.integers(0, 2500))))
def test_whatever_comes_stamps_grow_with_every_change(
    changes: list[tuple[int, int, int]],
) -> None:
    one = entry(merge("n", record(healthy()), None, instant(0)))
    now_ms = 0
    for chip, skew_seconds, pause_ms in changes:
        now_ms += pause_ms
        now = instant(now_ms / 1000)
        new = record(faulty(chip, T0 + now_ms // 1000 + skew_seconds))
        result = merge("n", new, one, now)
        if isinstance(result, Wait):
            assert now.steady_ms < result.until_ms <= now.steady_ms + 1000
            assert one.stamp >= T0 + now_ms // 1000 + LEAD_SECONDS
        elif result is not one:
            assert result.stamp > one.stamp
            assert result.stamp <= T0 + now_ms // 1000 + LEAD_SECONDS + 1
            one = result
