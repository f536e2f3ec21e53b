"""Merging: nothing is dropped and memory is bounded, whatever comes."""

from __future__ import annotations

from typing import TypeAlias

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.kubernetes_events.correlator import (
    BURST,
    PERIOD_MS,
    CorrelatedEvent,
    EventCorrelator,
    Item,
    Other,
    ReleasedReasons,
)
from agent.kubernetes_events.event_rules import ChipFaultChange
from contract.codes.levels import ChipLevel
from contract.pages.agent_status import Upgrade
from stores.base import Involved, KubernetesEvent

Given: TypeAlias = tuple[ChipFaultChange, int]

CHANGES = st.builds(
    ChipFaultChange,
    chip=st.integers(0, 15),
    code=st.integers(0x80000000, 0x80000020).map(lambda code: f"{code:08X}"),
    reason=st.sampled_from(["Occur", "Recovery", "Notice"]),
    action=st.sampled_from(["SeparateNPU", "NotHandleFault"]),
    at_ms=st.integers(1_700_000_000_000, 1_700_000_100_000),
)


def drain(backlog: EventCorrelator, now: int) -> list[Item]:
    """Return all Events in the order and at the times that the bucket permits."""
    items: list[Item] = []
    while (seconds := backlog.seconds_until_next(now)) is not None:
        now += round(seconds * 1000)
        item = backlog.pop_next(now)
        assert item is not None, "whoever waited as long as it says gets one"
        items.append(item)
    return items


def count(items: list[Item], code: str | None = None) -> int:
    groups = [item for item in items if isinstance(item, CorrelatedEvent)]
    return sum(group.count for group in groups if code is None or code in group.codes)


@pytest.mark.slow
@given(st.lists(st.tuples(CHANGES, st.integers(0, 2000))), st.integers(0, 20))
def test_the_sum_of_counts_is_what_went_in(given_: list[Given], takes_each: int) -> None:
    backlog, now, sent = EventCorrelator(), 0, list[Item]()
    for place, (fault_change, pause) in enumerate(given_):
        now += pause
        backlog.add(fault_change, str(place), now)
        if takes_each and place % takes_each == 0 and (item := backlog.pop_next(now)) is not None:
            sent.append(item)
        assert len(backlog) <= BURST + 10 + 6
    sent += drain(backlog, now)
    groups = [item for item in sent if isinstance(item, CorrelatedEvent)]
    assert len(groups) == len(sent)
    assert count(sent) == len(given_)
    assert backlog.merged == len(given_) - len(groups)
    assert len({group.name for group in groups}) == len(groups)
    for fault_change, _ in given_:
        assert any(
            fault_change.chip in group.chips
            and fault_change.code in group.codes
            and (fault_change.reason, fault_change.action) == (group.reason, group.action)
            and group.first_ms <= fault_change.at_ms <= group.last_ms
            for group in groups
        ), "every chip and code is named"


@given(st.lists(CHANGES, max_size=60), st.integers(0, 60))
def test_waiting_events_survive_the_journal(
    fault_changes: list[ChipFaultChange], taken: int
) -> None:
    before = EventCorrelator()
    for place, fault_change in enumerate(fault_changes):
        before.add(fault_change, str(place), 0)
    sent = [item for _ in range(taken) if (item := before.pop_next(0)) is not None]
    text = msgspec.json.encode(before.items())
    after = EventCorrelator(msgspec.json.decode(text, type=tuple[Item, ...]))
    assert count(sent + drain(after, 0)) == len(fault_changes)


def test_a_burst_goes_out_singly_and_at_once() -> None:
    backlog = EventCorrelator()
    for chip in range(BURST):
        backlog.add(ChipFaultChange(chip, "80E3A201", "Occur", "SeparateNPU", 0), str(chip), 0)
    items = [backlog.pop_next(0) for _ in range(BURST)]
    assert all(isinstance(item, CorrelatedEvent) and item.count == 1 for item in items)
    assert backlog.pop_next(0) is None


def test_thirty_two_reports_of_two_codes_are_fourteen_events() -> None:
    """``many-faults-and-the-event-limiter``: upstream writes eleven and drops the rest."""
    backlog, items = EventCorrelator(), list[Item]()
    for reason, now in (("Occur", 0), ("Recovery", 8000)):
        for chip in range(8):
            for code, action in (("80E21007", "NotHandleFault"), ("80818C06", "SubHealthFault")):
                fault_change = ChipFaultChange(chip, code, reason, action, 0)
                backlog.add(fault_change, f"{reason}-{chip}-{code}", now)
        while (item := backlog.pop_next(now)) is not None:
            items.append(item)
    items += drain(backlog, 8000)
    assert count(items) == 32
    assert (count(items, "80E21007"), count(items, "80818C06")) == (16, 16)
    assert len(items) == 14


def test_ten_thousand_in_a_second_are_few() -> None:
    backlog = EventCorrelator()
    for number in range(10_000):
        code = f"{0x80000000 + number:08X}"
        backlog.add(
            ChipFaultChange(number % 16, code, "Occur", "SeparateNPU", number), str(number), 0
        )
    assert len(backlog) <= BURST + 10 + 1
    assert len(msgspec.json.encode(backlog.items())) < 10_000
    assert count(drain(backlog, 0)) == 10_000


def test_when_none_is_taken_the_first_burst_does_not_grow() -> None:
    backlog = EventCorrelator()
    for hour in range(100):
        fault_change = ChipFaultChange(hour % 16, "80E3A201", "Occur", "SeparateNPU", hour)
        backlog.add(fault_change, str(hour), hour * 3_600_000)
    assert len(backlog) == BURST + 1


def test_the_bucket_gives_twenty_a_minute() -> None:
    backlog = EventCorrelator()
    codes = [f"8000000{number}" for number in range(10)]
    for code in ["80E3A201"] * BURST + codes:
        backlog.add(ChipFaultChange(0, code, "Occur", "SeparateNPU", 0), code, 0)
    now = 0
    for _ in range(BURST):
        assert backlog.pop_next(now) is not None
    for _ in codes:
        assert backlog.pop_next(now) is None
        seconds = backlog.seconds_until_next(now)
        assert seconds is not None
        assert 0 < seconds <= PERIOD_MS / 1000
        now += round(seconds * 1000)
        assert backlog.pop_next(now) is not None
    assert backlog.seconds_until_next(now) is None
    assert 27_000 < now <= 30_000


def test_others_are_merged_only_when_they_are_very_many() -> None:
    backlog = EventCorrelator()
    upgrade = Upgrade("80C98008", "FaultFrequency", ChipLevel.MANUALLY_SEPARATE_NPU, 1, "", "e")
    involved = Involved("ConfigMap", "fault-config", "kube-system")
    for number in range(500):
        event = KubernetesEvent(
            "kube-system", f"e{number}", involved, True, "R", "A", "text", number, number
        )
        backlog.post(Other(event), 0)
        backlog.post(ReleasedReasons(f"r{number}", ((1, upgrade),), number, number), 0)
    assert len(backlog) <= BURST + 102
    items = drain(backlog, 0)
    assert sum(item.event.count for item in items if isinstance(item, Other)) == 500
    assert sum(item.count for item in items if isinstance(item, ReleasedReasons)) == 500
