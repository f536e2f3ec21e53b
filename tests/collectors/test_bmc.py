"""The BMC's alarms: what readings change, and the collector on the emulated hardware."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from collectors.bmc import BmcCollector, BmcSection, BmcTracker, plausible_ms
from collectors.registry import COLLECTORS
from contract.codes.levels import Severity
from contract.observation import (
    NODE,
    Assertion,
    Observation,
    SourceAnswered,
    SourceBlind,
    host_subject,
)
from dcmi_shim.emulator.bmc import BmcAlarm
from dcmi_shim.emulator.install import IPMITOOL
from dcmi_shim.ipmi.alarms import Alarm
from tests.collectors.scripted import RecordedReports, ScriptedDriver, word
from tests.parts import deadlines
from tests.parts.collector_context import collector_context
from tests.parts.deadlines import patience, stays

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from contract.observation import Report, Subject
    from dcmi_shim.emulator.control import Emulator

NOW_MS = 1_800_000_000_000
DEADLINE_SECONDS = patience(0.5)
FAN = Alarm("28000009", "Fan", 3, Severity.MAJOR, 1_700_000_000)
DISK = Alarm("02000007", "Disk", 0, Severity.CRITICAL, 1_700_000_001)
FAN_3, DISK_0 = host_subject("Fan", 3), host_subject("Disk", 0)


def words(reports: list[Report]) -> list[str]:
    return [word(report) for report in reports]


def test_the_first_reading_answers_and_reports_all_in_the_order_of_the_bmc() -> None:
    tracker = BmcTracker("bmc", {})
    answered, fan, disk = tracker.observe_alarms((FAN, DISK), NOW_MS)
    assert answered == SourceAnswered("bmc", NODE, NOW_MS)
    assert isinstance(fan, Observation)
    assert (fan.source, fan.subject, fan.code) == ("bmc", FAN_3, "28000009")
    assert (fan.severity, fan.seen_at_ms) == (Severity.MAJOR, NOW_MS)
    assert fan.driver_raised_at_ms == 1_700_000_000_000
    assert words([disk]) == ["host 0 Disk present 02000007"]
    assert tracker.observe_alarms((DISK, FAN), NOW_MS) == []


def test_unlisted_code_is_reported_absent() -> None:
    tracker = BmcTracker("bmc", {})
    tracker.observe_alarms((FAN, DISK), NOW_MS)
    assert words(tracker.observe_alarms((DISK,), NOW_MS)) == ["host 3 Fan absent 28000009"]
    assert words(tracker.observe_alarms((), NOW_MS)) == ["host 0 Disk absent 02000007"]
    assert words(tracker.observe_alarms((FAN,), NOW_MS)) == ["host 3 Fan present 28000009"]


def test_no_alarm_is_an_answer() -> None:
    tracker = BmcTracker("bmc", {})
    assert words(tracker.observe_alarms((), NOW_MS)) == ["node 0 answered"]


def test_codes_tracked_before_a_restart_are_compared() -> None:
    tracker = BmcTracker("bmc", {(FAN_3, "28000009"): 1, (DISK_0, "02000007"): 1})
    fan, other = FAN, replace(FAN, code="28000010")
    assert words(tracker.observe_alarms((other, fan), NOW_MS)) == [
        "node 0 answered",
        "host 3 Fan present 28000010",
        "host 3 Fan present 28000009",
        "host 0 Disk absent 02000007",
    ]


def test_the_first_reading_after_a_restart_reports_the_order_anew() -> None:
    """The document has the codes of a part in the order in which they are listed then."""
    other = replace(FAN, code="28000010")
    tracker = BmcTracker("bmc", {(FAN_3, "28000009"): 1, (FAN_3, "28000010"): 1})
    _, first, second = tracker.observe_alarms((other, FAN), NOW_MS)
    assert words([first, second]) == ["host 3 Fan present 28000010", "host 3 Fan present 28000009"]
    assert isinstance(first, Observation)
    assert isinstance(second, Observation)
    assert (first.serial, second.serial) == (0, 1)
    assert tracker.observe_alarms((FAN, other), NOW_MS) == [], "another order alone is no change"


def test_blindness_is_logged_once_and_changes_nothing() -> None:
    tracker = BmcTracker("bmc", {})
    tracker.observe_alarms((FAN,), NOW_MS)
    assert tracker.observe_failure("hangs", NOW_MS) == [SourceBlind("bmc", NODE, NOW_MS, "hangs")]
    assert tracker.observe_failure("hangs more", NOW_MS) == []
    assert words(tracker.observe_alarms((FAN, DISK), NOW_MS)) == [
        "node 0 answered",
        "host 0 Disk present 02000007",
    ]
    assert words(tracker.observe_failure("again", NOW_MS)) == ["node 0 blind: again"]


def test_blind_from_the_start() -> None:
    tracker = BmcTracker("bmc", {(FAN_3, "28000009"): 1})
    assert words(tracker.observe_failure("none", NOW_MS)) == ["node 0 blind: none"]
    assert words(tracker.observe_alarms((FAN,), NOW_MS)) == [
        "node 0 answered",
        "host 3 Fan present 28000009",
    ]


alarms = st.builds(
    Alarm,
    st.sampled_from(["28000009", "02000007"]),
    st.sampled_from(["Fan", "Disk", "UNKNOWN"]),
    st.integers(0, 2),
    st.sampled_from([None, *Severity]),
    st.integers(0, 0xFFFFFFFF),
)


@pytest.mark.slow
@given(
    st.frozensets(
        st.tuples(st.builds(host_subject, st.just("Fan"), st.integers(0, 2)), st.just("28000009"))
    ),
    st.lists(st.none() | st.lists(alarms, max_size=6)),
)
def test_reported_alarms_are_always_those_of_the_last_complete_reading(
    tracked: frozenset[tuple[Subject, str]], readings: list[list[Alarm] | None]
) -> None:
    tracker = BmcTracker("bmc", dict.fromkeys(tracked, 1))
    present = set(tracked)
    blind, is_first = False, True
    for number, reading in enumerate(readings):
        if reading is None:
            reports = tracker.observe_failure("no answer", NOW_MS)
            assert [isinstance(report, SourceBlind) for report in reports] == [True] * (not blind)
            blind = True
            continue
        reports = tracker.observe_alarms(tuple(reading), NOW_MS)
        answers = [report for report in reports if isinstance(report, SourceAnswered)]
        assert len(answers) == (blind or all(before is None for before in readings[:number]))
        blind = False
        listed = list(
            dict.fromkeys(
                (host_subject(alarm.device, alarm.index), alarm.code) for alarm in reading
            )
        )
        changed = {subject for subject, _ in (set(listed) if is_first else present ^ set(listed))}
        is_first = False
        reported = [report for report in reports if isinstance(report, Observation)]
        there = [one for one in reported if one.assertion is Assertion.PRESENT]
        assert [(one.subject, one.code, one.serial) for one in there] == [
            (*key, place) for place, key in enumerate(listed) if key[0] in changed
        ]
        gone = {(one.subject, one.code) for one in reported if one.assertion is Assertion.ABSENT}
        assert gone == present - set(listed)
        present = set(listed)


@pytest.mark.parametrize(
    ("seconds", "milliseconds"),
    [
        (0, None),
        (1_500_000_000, None),
        (1_700_000_000, 1_700_000_000_000),
        (1_800_000_300, 1_800_000_300_000),
        (1_800_000_301, None),
        (0xFFFFFFFF, None),
    ],
)
def test_plausible_times(seconds: int, milliseconds: int | None) -> None:
    assert plausible_ms(seconds, NOW_MS) == milliseconds


def test_it_is_in_the_table() -> None:
    assert BmcCollector in COLLECTORS


class Watched:
    """A running collector: its reports, and how often it made progress."""

    def __init__(self) -> None:
        self.recorded = RecordedReports()
        self.steps = 0

    def progress(self) -> None:
        self.steps += 1


@contextlib.asynccontextmanager
async def collecting(
    tools: Path,
    tracked: Mapping[tuple[Subject, str], int] | None = None,
    period_seconds: float = 0.2,
) -> AsyncIterator[Watched]:
    watched = Watched()
    around = collector_context(
        watched.recorded,
        lambda: time.time_ns() // 1_000_000,
        ScriptedDriver(),
        tracked=tracked,
        environment={"PATH": f"{tools}:{os.environ['PATH']}"},
        progress=watched.progress,
    )
    collector = BmcCollector(
        BmcSection(
            period_seconds=period_seconds,
            deadline_seconds=DEADLINE_SECONDS,
            device=str(tools / "no-device"),
        ),
        around,
    )
    task = asyncio.create_task(collector.run())
    try:
        yield watched
    finally:
        assert not task.done(), task
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], object], seconds: float = 5.0) -> None:
    await deadlines.until(condition, seconds=seconds)


@pytest.mark.slow
async def test_from_the_bmc_to_observations(
    emulated_server: tuple[Path, Emulator], hardware: Emulator
) -> None:
    tools = (emulated_server[0] / IPMITOOL).parent
    async with collecting(tools, {(FAN_3, "28000009"): 1}) as watched:
        recorded = watched.recorded
        await until(lambda: recorded.batches)
        assert recorded.words() == ["node 0 answered", "host 3 Fan absent 28000009"]
        for change in range(3):
            hardware.bmc.alarms(
                BmcAlarm("28000009", "Fan", index) for index in range(change, change + 12)
            )
            began = asyncio.get_running_loop().time()
            before = len(recorded.batches)
            await until(lambda before=before: len(recorded.batches) > before)  # type: ignore[misc]
            # Within its period, and whatever a busy machine takes; benchmarks.latency holds 100 ms.
            assert recorded.batches[-1][0] - began < 0.2 + patience(1.0)
        assert len(recorded.batches) == 4
        assert recorded.words(began) == [
            "host 13 Fan present 28000009",
            "host 1 Fan absent 28000009",
        ]
        steps = watched.steps
        await until(lambda: watched.steps > steps + 2)


@pytest.mark.slow
async def test_a_bmc_that_is_absent_comes_and_hangs(
    emulated_server: tuple[Path, Emulator], hardware: Emulator
) -> None:
    hardware.bmc.occur(BmcAlarm("28000009", "Fan", 3))
    hardware.bmc.present(False)
    async with collecting((emulated_server[0] / IPMITOOL).parent) as watched:
        recorded = watched.recorded
        await until(lambda: recorded.batches)
        await stays(0.5, because="several periods of the queries pass")
        (blind,) = recorded.words()
        assert blind.startswith("node 0 blind: ipmitool raw 0x30 0x94")
        hardware.bmc.present(True)
        await until(lambda: len(recorded.batches) == 2)
        assert recorded.words()[1:] == ["node 0 answered", "host 3 Fan present 28000009"]
        hardware.bmc.hang()
        hardware.bmc.clear()
        steps = watched.steps
        await until(lambda: len(recorded.batches) == 3)
        assert f"no answer within {DEADLINE_SECONDS:g} s; killed" in recorded.words()[-1]
        assert watched.steps > steps + 1
        hardware.bmc.ok()
        await until(lambda: len(recorded.batches) == 4)
        assert recorded.words()[-2:] == ["node 0 answered", "host 3 Fan absent 28000009"]


@pytest.mark.slow
async def test_bad_replies_change_nothing(
    emulated_server: tuple[Path, Emulator], hardware: Emulator
) -> None:
    hardware.bmc.occur(BmcAlarm("28000009", "Fan", 3))
    async with collecting((emulated_server[0] / IPMITOOL).parent) as watched:
        recorded = watched.recorded
        await until(lambda: recorded.batches)
        hardware.bmc.replies([("94@*", bytes.fromhex("00 01 00 01 00 09 00 00 28"))])
        await until(lambda: len(recorded.batches) == 2)
        assert "it begins with 01 00 01 instead of db 07 00: shifted" in recorded.words()[-1]
        hardware.bmc.replies([("94@*", bytes.fromhex("00 db 07 00 01 00 00 00"))])
        await stays(0.5, because="several periods of the queries pass")
        hardware.bmc.ok()
        await until(lambda: len(recorded.batches) == 3)
        assert recorded.words()[2:] == [recorded.words()[2], "node 0 answered"]
