"""Chips without events, in virtual time: how soon and how often their lists are asked."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from collectors.chip_faults.collector import LIST_PERIOD, ChipFaultsCollector, ChipFaultsSection
from tests.collectors.scripted import (
    CHIP_1,
    HBM,
    HBM_CODE,
    STUCK,
    RecordedReports,
    ScriptedDriver,
    virtual_ms,
)
from tests.parts.collector_context import collector_context
from tests.parts.tasks import beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from contract.observation import Subject

pytestmark = pytest.mark.looptime


@contextlib.asynccontextmanager
async def collecting(
    driver: ScriptedDriver, shown: dict[str, float | None] | None = None, period: float = 1.0
) -> AsyncIterator[RecordedReports]:
    """Yield the reports of a collector that runs on ``driver``.

    ``shown`` receives the period that the collector shows.
    """
    recorded, readings = RecordedReports(), {} if shown is None else shown

    def show(_: Subject, name: str, value: float | None) -> None:
        readings[name] = value

    around = collector_context(recorded, virtual_ms, driver, show=show)
    collector = ChipFaultsCollector(ChipFaultsSection(list_period_seconds=period), around)
    async with beside(collector.run()):
        yield recorded


def polled(chips: int = 2) -> ScriptedDriver:
    """Return a driver of so many chips that has no events."""
    driver = ScriptedDriver(chips)
    driver.polling_reason = "not supported"
    driver.family = "Ascend310P"
    return driver


def asked(driver: ScriptedDriver, query: str, chip: int | None = None) -> list[float]:
    """Return the times at which ``query`` was made."""
    return [at for at, what, whom in driver.asked if what == query and chip in (None, whom)]


async def test_a_fault_is_found_within_its_period() -> None:
    driver = polled()
    async with collecting(driver) as recorded:
        for begin in (10.1, 20.5, 30.9):
            await asyncio.sleep(begin - asyncio.get_running_loop().time())
            driver.occur(1, HBM, push=False)
            await asyncio.sleep(1.1)
            assert recorded.words(begin)[-1] == f"chip 1 present {HBM_CODE}"
            driver.recover(1, HBM, push=False)
            await asyncio.sleep(1.4)
            assert recorded.words(begin)[-1] == f"chip 1 absent {HBM_CODE}"


@pytest.mark.slow
async def test_lists_every_second_and_health_as_before_and_with_each_change() -> None:
    driver = polled(8)
    async with collecting(driver):
        await asyncio.sleep(5.5)
        driver.asked.clear()
        await asyncio.sleep(60)
        assert len(asked(driver, "codes")) == 8 * 60
        assert len(asked(driver, "health")) == 8 * 12
        driver.asked.clear()
        driver.occur(1, HBM, push=False)
        await asyncio.sleep(1.1)
        (health,) = asked(driver, "health", 1)
        assert health - max(at for at in asked(driver, "codes", 1) if at < health) < 0.01
        assert not asked(driver, "health", 0)


async def test_with_events_nothing_is_asked_more_often() -> None:
    driver = ScriptedDriver(8)
    async with collecting(driver):
        await asyncio.sleep(60.5)
        driver.asked.clear()
        await asyncio.sleep(60)
    assert len(asked(driver, "codes")) == 8 * 4
    assert len(asked(driver, "health")) == 8 * 12


@pytest.mark.slow
@pytest.mark.parametrize(("chips", "seconds"), [(64, 0.025), (8, 0.4)])
async def test_a_slow_driver_has_half_of_its_time_for_itself(chips: int, seconds: float) -> None:
    driver, shown = polled(chips), dict[str, float | None]()
    for query in ("codes", "health"):
        driver.slow_seconds |= {(query, chip): seconds for chip in range(chips)}
    async with collecting(driver, shown):
        await asyncio.sleep(60)
        driver.asked.clear()
        await asyncio.sleep(120)
        busy = len(driver.asked) * seconds
        assert busy <= 0.52 * 120
        assert len(asked(driver, "codes")) >= 0.5 * 120 / (4 * seconds)
    period = shown[LIST_PERIOD]
    assert period is not None
    assert period >= 2 * chips * seconds


async def test_the_period_is_shown_and_is_the_setting_where_the_driver_is_quick() -> None:
    driver, shown = polled(4), dict[str, float | None]()
    async with collecting(driver, shown, period=10.0):
        await asyncio.sleep(30.5)
        driver.asked.clear()
        await asyncio.sleep(60)
    assert shown[LIST_PERIOD] == 10.0
    assert len(asked(driver, "codes")) == 4 * 6


async def test_a_blind_chip_is_asked_every_five_seconds() -> None:
    driver = polled()
    driver.trouble = {("codes", 1): STUCK, ("health", 1): STUCK}
    async with collecting(driver) as recorded:
        await asyncio.sleep(10.5)
        driver.asked.clear()
        await asyncio.sleep(60)
        assert len(asked(driver, "codes", 1)) == 12
        assert len(asked(driver, "codes", 0)) == 60
        driver.trouble.clear()
        await asyncio.sleep(5.1)
        assert recorded.words(70)[-1] == f"{CHIP_1} answered"
        driver.asked.clear()
        await asyncio.sleep(10)
        assert len(asked(driver, "codes", 1)) == 10


async def test_once_events_arrive_the_lists_are_audits_again() -> None:
    driver, shown = polled(), dict[str, float | None]()
    async with collecting(driver, shown):
        await asyncio.sleep(10.5)
        driver.polling_reason = None
        driver.gap("subscribed")
        await asyncio.sleep(20)
        assert shown[LIST_PERIOD] == 15.0
        driver.asked.clear()
        await asyncio.sleep(60)
        assert len(asked(driver, "codes", 1)) == 4


UNLISTED, UNLISTED_CODE = 0x80ABCDEF, "80ABCDEF"


async def test_the_health_word_is_reported_with_each_new_list_and_before_it() -> None:
    driver = polled(1)
    async with collecting(driver) as recorded:
        await asyncio.sleep(10.5)
        assert recorded.words() == ["chip 0 health 0 with no code", "chip 0 answered"]
        driver.occur(0, UNLISTED, push=False)
        driver.words[0] = 1
        await asyncio.sleep(1.2)
        (batch,) = [reports for at, reports in recorded.batches if at > 10]
        words = [f"chip 0 health 1 with {UNLISTED_CODE}", f"chip 0 present {UNLISTED_CODE}"]
        assert recorded.words(10.0) == words
        assert len(batch) == 2, "one document"
        driver.words[0] = 3
        await asyncio.sleep(5.1)
        assert recorded.words(10.0)[2:] == [f"chip 0 health 3 with {UNLISTED_CODE}"]
        await asyncio.sleep(60)
        assert len(recorded.words(10.0)) == 3, "what says nothing new is not reported"


@pytest.mark.parametrize("slow", [0.001, 0.4])
async def test_three_questions_without_an_answer_within_three_seconds(slow: float) -> None:
    driver = polled(1)
    async with collecting(driver) as recorded:
        await asyncio.sleep(10.1)
        begin = asyncio.get_running_loop().time()
        driver.occur(0, UNLISTED, push=False)
        driver.trouble["health", 0] = STUCK
        driver.slow_seconds["health", 0] = slow
        await asyncio.sleep(1.5)
        assert f"chip 0 present {UNLISTED_CODE}" in recorded.words(begin), (
            "the code waits for nothing"
        )
        driver.asked.clear()
        await asyncio.sleep(2.6)
        assert f"chip 0 health None with {UNLISTED_CODE}" in recorded.words(begin)
        assert len(asked(driver, "health")) == 2
        await asyncio.sleep(30)
        assert len(asked(driver, "health")) <= 9, "and every five seconds from then on"
        driver.trouble.clear()
        driver.words[0] = 1
        await asyncio.sleep(6)
        assert f"chip 0 health 1 with {UNLISTED_CODE}" in recorded.words(begin)


async def test_missing_health_word_changes_nothing_while_the_list_stays() -> None:
    driver = polled(1)
    async with collecting(driver) as recorded:
        driver.occur(0, UNLISTED, push=False)
        await asyncio.sleep(10)
        driver.healthless.add(0)
        begin = asyncio.get_running_loop().time()
        await asyncio.sleep(30)
        assert not [text for text in recorded.words(begin) if "health None" in text]


async def test_chips_with_events_report_no_word() -> None:
    driver = ScriptedDriver(1)
    driver.polling_reason = "refused"
    async with collecting(driver) as recorded:
        driver.occur(0, UNLISTED, push=False)
        await asyncio.sleep(10)
        assert recorded.words() == ["chip 0 answered", f"chip 0 present {UNLISTED_CODE}"]
