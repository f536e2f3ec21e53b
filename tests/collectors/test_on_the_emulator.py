"""Library, child, driver and collector together, on the emulated hardware and in real time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

import pytest

from collectors.chip_faults.collector import ChipFaultsCollector, ChipFaultsSection
from contract.observation import chip_subject
from dcmi_shim.driver import Driver
from dcmi_shim.library.device_info import VIRTUAL_DEVICES
from dcmi_shim.library.discovery import VendorPaths, find_library
from dcmi_shim.library.survey import CallEach, Query, Survey, survey
from dcmi_shim.worker.process import ChildProcess
from dcmi_shim.worker.supervisor import DriverSettings
from tests.collectors.scripted import RecordedReports
from tests.parts import deadlines
from tests.parts.collector_context import collector_context
from tests.parts.deadlines import patience, stays, time_passes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
    from pathlib import Path

    from contract.observation import Subject
    from dcmi_shim.emulator.control import Emulator
    from dcmi_shim.library.discovery import FoundLibrary
    from dcmi_shim.values import Inventory
    from dcmi_shim.worker.process import Message

pytestmark = pytest.mark.slow

HBM = "80E01801"
AIC = "80C98009"


@pytest.fixture
def library(emulated_server: tuple[Path, Emulator], hardware: Emulator) -> FoundLibrary:
    """Return the library of the emulated server, which was reset."""
    return find_library(VendorPaths(emulated_server[0], True, {}))


def wall_clock() -> int:
    return time.time_ns() // 1_000_000


@contextlib.asynccontextmanager
async def collecting(
    library: FoundLibrary, tracked: Mapping[tuple[Subject, str], int] | None = None
) -> AsyncIterator[tuple[Driver, RecordedReports]]:
    # Only a call that hangs may miss its deadline, whatever else the machine does.
    settings = DriverSettings(call_seconds=patience(1.5), probe_seconds=1.0)
    driver = Driver(library, wall_clock, settings)
    recorded = RecordedReports()
    around = collector_context(recorded, wall_clock, driver, tracked=tracked)
    collector = ChipFaultsCollector(
        ChipFaultsSection(audit_period_seconds=1.0, health_period_seconds=0.5), around
    )
    tasks = [asyncio.create_task(driver.run()), asyncio.create_task(collector.run())]
    try:
        yield driver, recorded
    finally:
        assert not any(task.done() for task in tasks), tasks
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(condition: Callable[[], object], seconds: float) -> float:
    """Wait until ``condition`` holds; return the duration (s)."""
    began = time.monotonic()
    await deadlines.until(condition, seconds=seconds)
    return time.monotonic() - began


async def test_a_fault_lives_and_ends(library: FoundLibrary, hardware: Emulator) -> None:
    hardware.occur(1, AIC)
    await time_passes(0.2)
    async with collecting(library, {(chip_subject(2), HBM): 1}) as (_, recorded):
        assert await until(lambda: "chip 7 answered" in recorded.words(), 2) < patience(1)
        assert f"chip 1 present {AIC}" in recorded.words()
        assert f"chip 2 absent {HBM}" in recorded.words()
        hardware.occur(3, HBM)
        await until(lambda: f"chip 3 occur {HBM}" in recorded.words(), 1)
        hardware.once(3, AIC)
        await until(lambda: f"chip 3 once {AIC}" in recorded.words(), 1)
        hardware.recover(3, HBM)
        await until(lambda: f"chip 3 recover {HBM}" in recorded.words(), 1)
        # Neither audits while the list lags nor the one after two seconds find fault with that.
        await stays(2.6, because="the list is asked for LAG_SECONDS, 2, after an event")
        assert [word for word in recorded.words() if word.startswith("chip 3")] == [
            "chip 3 answered",
            f"chip 3 occur {HBM}",
            f"chip 3 once {AIC}",
            f"chip 3 recover {HBM}",
        ]


async def test_a_burst_loses_nothing(library: FoundLibrary, hardware: Emulator) -> None:
    async with collecting(library) as (_, recorded):
        await until(lambda: "chip 7 answered" in recorded.words(), 2)
        for _ in range(25):
            for chip in range(8):
                hardware.occur(chip, HBM)
                hardware.recover(chip, HBM)
        await until(lambda: len(recorded.words()) >= 8 + 400, 5)
        events = [word for word in recorded.words() if "answered" not in word]
        for chip in range(8):
            own = [word for word in events if word.startswith(f"chip {chip} ")]
            assert own == [f"chip {chip} occur {HBM}", f"chip {chip} recover {HBM}"] * 25


async def test_virtual_devices_that_come_and_go_are_noticed(
    library: FoundLibrary, hardware: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dcmi_shim.driver._VIRTUAL_SECONDS", 0.2)
    hardware.virtual(6, 4)
    async with collecting(library) as (driver, recorded):
        assert (await driver.inventory()).virtual == (6,)
        hardware.virtual(2, 1)
        await until(lambda: any("gap" in word for word in recorded.words()), 10)
        assert (await driver.inventory()).virtual == (2, 6)
        hardware.fail("dcmi_get_device_info", -8005)
        driver.list_again(True)
        await stays(0.5, because="an inventory is listed at once")
        assert (await driver.inventory()).virtual == (2, 6)
        hardware.clear("dcmi_get_device_info")
        hardware.virtual(2, 0)
        await until(lambda: sum("gap" in word for word in recorded.words()) == 2, 10)
        assert (await driver.inventory()).virtual == (6,)
        hardware.virtual(6, 0)
        await until(lambda: sum("gap" in word for word in recorded.words()) == 3, 10)
        assert (await driver.inventory()).virtual == ()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each message about virtual devices adds its number of chips."""
    numbers: list[int] = []
    request, request_each = ChildProcess.request, ChildProcess.request_each

    def counted(
        child: ChildProcess, call: str, arguments: tuple[int | str, ...], deadline_seconds: float
    ) -> Coroutine[Any, Any, Message]:
        if arguments[2:] == VIRTUAL_DEVICES:
            numbers.append(1)
        return request(child, call, arguments, deadline_seconds)

    def counted_each(
        child: ChildProcess,
        call: str,
        each: Sequence[tuple[int, ...]],
        deadlines_seconds: Sequence[float],
    ) -> Coroutine[Any, Any, Message]:
        if each[0][2:] == VIRTUAL_DEVICES:
            numbers.append(len(each))
        return request_each(child, call, each, deadlines_seconds)

    monkeypatch.setattr("dcmi_shim.driver._VIRTUAL_SECONDS", 0.2)
    monkeypatch.setattr(ChildProcess, "request", counted)
    monkeypatch.setattr(ChildProcess, "request_each", counted_each)
    return numbers


async def test_a_round_about_virtual_devices_is_one_message(
    library: FoundLibrary, asked: list[int]
) -> None:
    async with collecting(library) as (driver, _):
        assert len((await driver.inventory()).chips) == 8
        assert asked[0] == 8
        # On a busy machine the child may answer too early; chips are asked one by one then.
        await until(lambda: asked[-2:] == [8, 8], 10)


async def test_a_start_makes_one_survey(
    library: FoundLibrary, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    surveys = 0
    made = survey

    async def counted(
        query: Query, each: CallEach, library: str, known: Inventory | None
    ) -> Survey:
        nonlocal surveys
        surveys += 1
        return await made(query, each, library, known)

    monkeypatch.setattr("dcmi_shim.driver.survey", counted)
    async with collecting(library) as (driver, _):
        await driver.inventory()
        asked.clear()
        # A second survey would have begun before this round.
        await until(lambda: bool(asked), 10)
        assert surveys == 1


async def test_chips_without_an_answer_in_the_message_are_asked_one_by_one(
    library: FoundLibrary, hardware: Emulator, asked: list[int]
) -> None:
    async with collecting(library) as (driver, _):
        await driver.inventory()
        await until(lambda: 8 in asked, 10)
        # The child answers after 0.1 s, without the chips that it has not asked until then.
        hardware.slow("dcmi_get_device_info", 60)
        hardware.virtual(6, 1)
        asked.clear()
        await until(lambda: driver.found is not None and driver.found.virtual == (6,), 10)
        assert {1, 8} == set(asked)


async def test_survey_in_progress_does_not_replace_a_newer_inventory(
    library: FoundLibrary, hardware: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, may_end = asyncio.Event(), asyncio.Event()

    async def held(query: Query, each: CallEach, library: str, known: Inventory | None) -> Survey:
        found = await survey(query, each, library, known)
        if known is not None:
            began.set()
            await may_end.wait()
        return found

    monkeypatch.setattr("dcmi_shim.driver._VIRTUAL_SECONDS", 0.2)
    monkeypatch.setattr("dcmi_shim.driver.survey", held)
    async with collecting(library) as (driver, recorded):
        assert (await driver.inventory()).virtual == ()
        driver.list_again(True)
        await began.wait()
        hardware.virtual(2, 1)
        await until(lambda: any("gap" in word for word in recorded.words()), 10)
        hardware.fail("dcmi_get_device_info", -8005)
        may_end.set()
        await stays(0.5, because="an inventory is listed at once")
        assert (await driver.inventory()).virtual == (2,)
