"""Hang detection: its rules, and the whole way from a real library and tool to the report."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import asdict, replace
from typing_extensions import override

from collectors.hang.collector import HangCollector
from collectors.hang.tracker import Figures, HangSection, HangTracker, looks_hung
from contract.codes.chip_codes import HANG
from contract.observation import Observation, chip_subject
from dcmi_shim.driver import Driver
from dcmi_shim.library.discovery import VendorPaths, find_library
from dcmi_shim.values import Chip
from dcmi_shim.worker.supervisor import DriverSettings
from tests.collectors.scripted import CHIP_1, UNSUPPORTED, RecordedReports, ScriptedDriver, word
from tests.parts import deadlines
from tests.parts.collector_context import collector_context
from tests.parts.deadlines import patience, stays

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from contract.errors import DriverError
    from contract.observation import Report, Subject
    from dcmi_shim.emulator.control import Emulator
    from dcmi_shim.interface import ChipDriver
    from dcmi_shim.library.discovery import FoundLibrary

LIMITS = HangSection()
STILL = Figures(aicore=0, hbm=30, traffic=1000, cpu_seconds=50)
USERS = frozenset({11, 12})
ROUND = 0.1


@pytest.mark.parametrize(
    ("now", "hung"),
    [
        (STILL, True),
        (replace(STILL, aicore=4), True),
        (replace(STILL, aicore=5), False),
        (replace(STILL, hbm=29), True),
        (replace(STILL, hbm=31), False),
        (replace(STILL, traffic=1099), True),
        (replace(STILL, traffic=1100), False),
        (replace(STILL, traffic=999), False),
        (replace(STILL, cpu_seconds=54), True),
        (replace(STILL, cpu_seconds=55), False),
        (replace(STILL, aicore=None), None),
        (replace(STILL, hbm=None), None),
        (replace(STILL, traffic=None), None),
        (replace(STILL, cpu_seconds=None), None),
        (replace(STILL, traffic=None, aicore=80), False),
    ],
)
def test_thresholds(now: Figures, hung: bool | None) -> None:
    assert looks_hung(now, STILL, LIMITS) is hung


def tracker(*, hung: bool = False) -> HangTracker:
    return HangTracker("hang", CHIP_1, LIMITS, hung=hung)


def rounds(about: HangTracker, *figures: Figures, users: frozenset[int] = USERS) -> list[str]:
    """Return one word for each round: what was reported in it."""
    recorded = []
    for number, one in enumerate(figures):
        troubles = "" if None not in asdict(one).values() else "no answer"
        reports = about.observe_figures(users, one, troubles, number)
        recorded.append(", ".join(word(report).removeprefix("chip 1 ") for report in reports))
    return recorded


BEGINS, ENDS = f"occur {HANG}", f"recover {HANG}"


def test_the_sixth_round_reports_and_the_first_that_moves_takes_it_back() -> None:
    about = tracker()
    assert rounds(about, *[STILL] * 7) == ["", "", "", "", "", BEGINS, ""]
    moved = replace(STILL, aicore=60)
    assert rounds(about, moved, moved) == [ENDS, ""]


def test_a_figure_that_failed_is_no_evidence() -> None:
    """K49: upstream reads it as 0, which is below every threshold."""
    about = tracker()
    lost = replace(STILL, traffic=None)
    recorded = rounds(about, *[STILL] * 3, lost, lost, *[STILL] * 3)
    assert recorded == ["", "", "", "blind: no answer", "", "answered", "", BEGINS]
    grown = replace(STILL, traffic=2000)
    about = tracker()
    assert rounds(about, STILL, lost, grown, *[grown] * 5)[-1] == BEGINS
    assert rounds(tracker(), STILL, *[lost] * 9)[1:] == ["blind: no answer", *[""] * 8]


def test_other_processes_begin_anew_and_none_end_it() -> None:
    about = tracker()
    rounds(about, *[STILL] * 5)
    assert rounds(about, *[STILL] * 6, users=frozenset({11}))[-2:] == ["", BEGINS]
    assert rounds(about, STILL, users=frozenset({13})) == [""], "they may hang as well"
    assert [word(report) for report in about.observe_idle(1)] == [f"chip 1 {ENDS}"]
    assert about.observe_idle(2) == []


def test_hang_of_an_earlier_run_holds_until_something_moves() -> None:
    about = tracker(hung=True)
    assert rounds(about, STILL, STILL, replace(STILL, cpu_seconds=80)) == ["", "", ENDS]


@contextlib.asynccontextmanager
async def detecting(
    driver: ChipDriver,
    root: Path | None = None,
    tracked: Mapping[tuple[Subject, str], int] | None = None,
    *,
    detect: bool = True,
) -> AsyncIterator[RecordedReports]:
    recorded = RecordedReports()
    around = collector_context(
        recorded, wall_clock, driver, tracked=tracked, driver_root=root, environment=os.environ
    )
    collector = HangCollector(
        HangSection(period_seconds=ROUND, deadline_seconds=patience(2), enabled=detect), around
    )
    task = asyncio.create_task(collector.run())
    try:
        yield recorded
    finally:
        assert not task.done(), task
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def wall_clock() -> int:
    return time.time_ns() // 1_000_000


async def until(condition: Callable[[], object], seconds: float = 5) -> None:
    await deadlines.until(condition, seconds=seconds)


@pytest.mark.slow
async def test_only_chips_with_processes_are_asked_for_more() -> None:
    driver = ScriptedDriver()
    driver.family = "Ascend310P"  # has no network, so the tool is not asked
    driver.users[1] = (os.getpid(),)
    async with detecting(driver) as recorded:
        await until(lambda: f"chip 1 {BEGINS}" in recorded.words())
        assert recorded.words() == [f"chip 1 {BEGINS}"]
    asked = [(query, chip) for _, query, chip in driver.asked]
    assert set(asked) == {("processes", 0), ("processes", 1), ("AI_CORE", 1), ("HBM", 1)}


class CountedDriver(ScriptedDriver):
    """Records each message about processes; the answer about all chips lacks ``missing``."""

    def __init__(self, *missing: int) -> None:
        super().__init__(chips=8)
        self.family = "Ascend310P"  # has no network, so the tool is not asked
        self.missing = missing
        self.messages: list[str] = []

    @override
    async def processes(self, chip: Chip) -> tuple[int, ...]:
        self.messages.append(str(chip))
        return self.users.get(chip.logic_id, ())

    @override
    async def process_lists(
        self, chips: Sequence[Chip]
    ) -> dict[Chip, tuple[int, ...] | DriverError]:
        self.messages.append("all chips")
        listed = [chip for chip in chips if chip.logic_id not in self.missing]
        return {chip: self.users.get(chip.logic_id, ()) for chip in listed}


@pytest.mark.slow
async def test_a_round_about_chips_at_rest_is_one_message() -> None:
    driver = CountedDriver()
    async with detecting(driver):
        await until(lambda: len(driver.messages) >= 3)
    assert set(driver.messages) == {"all chips"}


@pytest.mark.slow
async def test_a_chip_that_the_answer_lacks_is_asked_by_itself() -> None:
    driver = CountedDriver(1)
    driver.users[1] = (os.getpid(),)
    async with detecting(driver) as recorded:
        await until(lambda: f"chip 1 {BEGINS}" in recorded.words())
    assert driver.messages[:4] == ["all chips", "chip 1 (card 1 device 0)"] * 2


@pytest.mark.slow
async def test_a_driver_without_process_lists_is_not_blind() -> None:
    driver = ScriptedDriver()
    driver.trouble = {("processes", chip): UNSUPPORTED for chip in (0, 1)}
    async with detecting(driver, tracked={(CHIP_1, HANG): 1}) as recorded:
        await until(recorded.words)
        await stays(4 * ROUND, because="four rounds of queries pass")
        assert recorded.words() == [f"chip 1 blind: {UNSUPPORTED}"]
    assert [chip for _, _, chip in driver.asked] == [0, 1]


@pytest.mark.slow
async def test_disabled_detection_ends_hangs_without_a_call() -> None:
    driver = ScriptedDriver()
    tracked = {(CHIP_1, HANG): 1, (chip_subject(9), HANG): 1}
    async with detecting(driver, tracked=tracked, detect=False) as recorded:
        await until(lambda: len(recorded.words()) == 2)
        await stays(3 * ROUND, because="three rounds of queries would pass")
        assert recorded.words() == [f"chip 1 {ENDS}", f"chip 9 {ENDS}"]
    assert not driver.asked


@pytest.mark.slow
async def test_a_chip_that_is_gone_is_blind() -> None:
    driver = ScriptedDriver()
    async with detecting(driver, tracked={(chip_subject(9), HANG): 1}) as recorded:
        await until(recorded.words)
        await stays(4 * ROUND, because="four rounds of queries pass")
        gone = "chip 9 blind: the driver does not show this chip"
        assert recorded.words() == [gone]
        driver.chips.append(Chip(9, 9, 9, 0))
        await until(lambda: len(recorded.words()) == 3)
        assert recorded.words() == [gone, "chip 9 answered", f"chip 9 {ENDS}"], "it is idle"


@pytest.fixture
def busy() -> Iterator[int]:
    """Yield the id of a process that does nothing but wait for its end."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.terminate()


@contextlib.asynccontextmanager
async def on_hardware(root: Path) -> AsyncIterator[RecordedReports]:
    library: FoundLibrary = find_library(VendorPaths(root, True, {}))
    # No call hangs here, so none may miss its deadline, whatever else the machine does.
    settings = DriverSettings(call_seconds=patience(1.5), probe_seconds=1.0)
    driver = Driver(library, wall_clock, settings)
    task = asyncio.create_task(driver.run())
    try:
        async with detecting(driver, root) as recorded:
            yield recorded
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def observations(recorded: RecordedReports) -> list[Observation]:
    return [one for _, batch in recorded.batches for one in batch if isinstance(one, Observation)]


@pytest.mark.slow
async def test_a_chip_hangs_and_works_again(
    emulated_server: tuple[Path, Emulator], hardware: Emulator, busy: int
) -> None:
    """The real library and tool; periods are compressed."""
    for chip in (2, 5, 6):
        hardware.load(chip, aicore=0, traffic=False, processes=[busy])
    hardware.load(5, aicore=70)
    hardware.load(6, traffic=True)
    began = wall_clock()
    async with on_hardware(emulated_server[0]) as recorded:
        await until(lambda: observations(recorded), 15)
        (found,) = observations(recorded)
        assert word(found) == f"chip 2 {BEGINS}"
        assert began < found.seen_at_ms <= wall_clock(), "milliseconds (K16)"
        hardware.load(2, hbm=40)
        await until(lambda: len(observations(recorded)) == 2)
        assert recorded.words()[-1] == f"chip 2 {ENDS}"
        hardware.load(5, aicore=3)
        await until(lambda: f"chip 5 {BEGINS}" in recorded.words(), 15)
        hardware.load(5, processes=[])
        await until(lambda: recorded.words()[-1] == f"chip 5 {ENDS}")
        assert not any(word.startswith("chip 6") for word in recorded.words())


@pytest.mark.slow
async def test_a_tool_that_hangs_or_a_process_that_is_gone_is_no_evidence(
    emulated_server: tuple[Path, Emulator], hardware: Emulator, busy: int
) -> None:
    hardware.tool("hccn_tool", "fail", 1, exit_status=3, text="Get device health status failed!")
    hardware.load(1, traffic=False, processes=[busy])
    hardware.load(3, traffic=False, processes=[2**22])
    hardware.load(4, traffic=False, processes=[busy])
    async with on_hardware(emulated_server[0]) as recorded:
        await until(lambda: f"chip 4 {BEGINS}" in recorded.words(), 15)
        await stays(3 * ROUND, because="three rounds of queries pass")
        others = [word for word in recorded.words() if not word.startswith("chip 4")]
        assert sorted(word[:20] for word in others) == [
            "chip 1 blind: hccn_t",
            "chip 3 blind: CPU ti",
        ]
        hardware.tool("hccn_tool", "ok", 1)
        await until(lambda: f"chip 1 {BEGINS}" in recorded.words(), 15)


def test_reports_are_of_the_detector_alone() -> None:
    """A driver's audit ends codes of `chip-faults`, never this one (K16)."""
    about = tracker()
    reports: list[Report] = []
    for number in range(6):
        reports += about.observe_figures(USERS, STILL, "", number)
    (found,) = reports
    assert isinstance(found, Observation)
    assert (found.source, found.code) == (HangCollector.name, HANG)
