"""The collector in virtual time: when it asks, and what it reports."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import TYPE_CHECKING

import pytest

from collectors.chip_faults.collector import ChipFaultsCollector, ChipFaultsSection
from collectors.registry import COLLECTORS
from contract.codes.chip_codes import CARD_DROP, RESET_FINISHED
from contract.errors import DriverError
from contract.observation import SourceBlind, chip_subject
from tests.collectors.scripted import (
    CHIP_1,
    DROPPED,
    GONE,
    HBM,
    HBM_CODE,
    REFUSED,
    STUCK,
    UNSUPPORTED,
    RecordedReports,
    ScriptedDriver,
    virtual_ms,
)
from tests.parts.collector_context import collector_context
from tests.parts.examples import mostly_slow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from contract.observation import Subject

pytestmark = pytest.mark.looptime


@contextlib.asynccontextmanager
async def collecting(
    driver: ScriptedDriver,
    tracked: Mapping[tuple[Subject, str], int] | None = None,
    marks: list[float] | None = None,
    chips: frozenset[int] = frozenset(),
) -> AsyncIterator[RecordedReports]:
    recorded = RecordedReports()
    beats: list[float] = [] if marks is None else marks
    loop = asyncio.get_running_loop()
    around = collector_context(
        recorded,
        virtual_ms,
        driver,
        tracked=tracked,
        progress=lambda: beats.append(loop.time()),
        chips=chips,
    )
    collector = ChipFaultsCollector(ChipFaultsSection(), around)
    task = asyncio.create_task(collector.run())
    try:
        yield recorded
    finally:
        assert not task.done(), task.exception()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        pauses = [after - before for before, after in itertools.pairwise(beats)]
        assert max(pauses, default=0) <= collector.period_seconds


async def test_the_table_makes_collectors() -> None:
    around = collector_context(RecordedReports(), virtual_ms, ScriptedDriver())
    made = [make(make.settings(), around) for make in COLLECTORS]
    assert [one.name for one in made] == [make.name for make in COLLECTORS]


async def test_the_first_round_is_one_batch() -> None:
    driver = ScriptedDriver(3)
    driver.occur(1, HBM, push=False)
    await asyncio.sleep(1)
    async with collecting(driver) as recorded:
        await asyncio.sleep(1)
        assert len(recorded.batches) == 1
        assert sorted(recorded.words()) == [
            "chip 0 answered",
            "chip 1 answered",
            f"chip 1 present {HBM_CODE}",
            "chip 2 answered",
        ]


@pytest.mark.slow
async def test_an_idle_round_is_ordered_once_and_not_for_every_chip() -> None:
    driver, marks = ScriptedDriver(16), list[float]()
    async with collecting(driver, marks=marks):
        await asyncio.sleep(60.5)
        driver.asked.clear()
        marks.clear()
        await asyncio.sleep(60)
    # Twelve rounds of health words, in four of them code lists as well.
    assert len(driver.asked) == 16 * (12 + 4)
    # A mark for each message, one for each order: before the round, behind it, after the pause.
    assert len(marks) <= (12 + 4) + 12 * 3


async def test_slow_words_of_changed_lists_are_no_stall() -> None:
    driver, marks = ScriptedDriver(6), list[float]()
    driver.polling_reason = "no events"
    async with collecting(driver, marks=marks):
        # The words of the first round are not due again when all lists change.
        await asyncio.sleep(0.5)
        for chip in range(6):
            driver.slow_seconds["health", chip] = 1.5
            driver.occur(chip, HBM, push=False)
        await asyncio.sleep(15)
        marks.append(asyncio.get_running_loop().time())
    assert max(after - before for before, after in itertools.pairwise(marks)) < 2


async def test_events_go_out_at_once_and_are_audited_two_seconds_later() -> None:
    driver = ScriptedDriver()
    async with collecting(driver) as recorded:
        await asyncio.sleep(7)
        at = asyncio.get_running_loop().time()
        driver.occur(1, HBM)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert recorded.words(at) == [f"chip 1 occur {HBM_CODE}"]
        assert recorded.batches[-1][0] == at
        driver.asked.clear()
        await asyncio.sleep(2.5)
        checks = [when for when, query, chip in driver.asked if (query, chip) == ("codes", 1)]
        assert checks == [pytest.approx(at + 2, abs=0.05)]
        driver.recover(1, HBM)
        await asyncio.sleep(5)
        assert recorded.words(at) == [f"chip 1 occur {HBM_CODE}", f"chip 1 recover {HBM_CODE}"]


@pytest.mark.parametrize("lost", ["occur", "recover"])
async def test_a_lost_event_is_repaired_by_the_periodic_audit(lost: str) -> None:
    driver = ScriptedDriver()
    async with collecting(driver) as recorded:
        await asyncio.sleep(1)
        driver.occur(1, HBM, push=lost != "occur")
        await asyncio.sleep(61)
        driver.recover(1, HBM, push=lost != "recover")
        await asyncio.sleep(61)
        last = [text for text in recorded.words() if HBM_CODE in text]
        assert last == (
            [f"chip 1 present {HBM_CODE}", f"chip 1 recover {HBM_CODE}"]
            if lost == "occur"
            else [f"chip 1 occur {HBM_CODE}", f"chip 1 absent {HBM_CODE}"]
        )


async def test_an_event_without_a_fault_is_taken_back_after_two_seconds() -> None:
    driver = ScriptedDriver()
    async with collecting(driver) as recorded:
        await asyncio.sleep(1)
        driver.push(1, HBM, 1)
        await asyncio.sleep(2.2)
        assert recorded.words(1.0) == [f"chip 1 occur {HBM_CODE}", f"chip 1 absent {HBM_CODE}"]


async def test_a_gap_is_reported_and_audited() -> None:
    driver = ScriptedDriver()
    async with collecting(driver) as recorded:
        await asyncio.sleep(1)
        driver.occur(1, HBM, push=False)
        await asyncio.sleep(1)
        driver.gap("lost")
        await asyncio.sleep(0.1)
        assert recorded.words(1.0) == ["gap: lost", f"chip 1 present {HBM_CODE}"]


async def test_a_gap_may_bring_new_chips_and_other_numbers() -> None:
    driver = ScriptedDriver(3)
    late = driver.chips.pop()
    async with collecting(driver) as recorded:
        await asyncio.sleep(1)
        driver.chips.append(late)
        driver.gap("other chips")
        await asyncio.sleep(0.1)
        assert recorded.words(1.0) == ["gap: other chips", "chip 2 answered"]


async def test_reset_finished_is_audited_at_once() -> None:
    driver = ScriptedDriver()
    async with collecting(driver) as recorded:
        driver.occur(1, HBM)
        await asyncio.sleep(10)
        driver.recover(1, HBM, push=False)
        await asyncio.sleep(1)
        driver.push(1, int(RESET_FINISHED, 16), 2)
        await asyncio.sleep(0.1)
        assert recorded.words(11.0) == [
            f"chip 1 once {RESET_FINISHED}",
            f"chip 1 absent {HBM_CODE}",
        ]


@pytest.mark.parametrize(("chip", "assertion", "why"), [(99, 1, "chip"), (1, 7, "assertion")])
async def test_an_event_that_cannot_be_placed_is_a_gap(chip: int, assertion: int, why: str) -> None:
    driver = ScriptedDriver()
    async with collecting(driver) as recorded:
        await asyncio.sleep(1)
        driver.occur(1, HBM, push=False)
        await asyncio.sleep(1)
        driver.push(chip, HBM, assertion)
        await asyncio.sleep(0.1)
        gap = f"gap: event {HBM_CODE} of logic id {chip} with assertion {assertion}: no such {why}"
        assert recorded.words(1.5) == [gap, f"chip 1 present {HBM_CODE}"]


async def test_the_code_zero_is_no_event() -> None:
    driver = ScriptedDriver()
    async with collecting(driver) as recorded:
        await asyncio.sleep(1)
        driver.push(1, 0, 1)
        await asyncio.sleep(5)
        assert recorded.words(1.0) == []


@pytest.mark.parametrize("trouble", [STUCK, GONE, REFUSED])
@pytest.mark.parametrize("query", ["codes", "health"])
async def test_blind_names_the_reason_once_and_ends_by_itself(
    query: str, trouble: DriverError
) -> None:
    driver = ScriptedDriver()
    async with collecting(driver) as recorded:
        await asyncio.sleep(1)
        driver.trouble[query, 1] = trouble
        await asyncio.sleep(60 if query == "codes" else 5)
        driver.occur(0, HBM)
        await asyncio.sleep(20)
        del driver.trouble[query, 1]
        await asyncio.sleep(6)
        words = recorded.words(1.0)
        assert words == [
            f"chip 1 blind: {trouble}",
            f"chip 0 occur {HBM_CODE}",
            "chip 1 answered",
        ]


async def test_recoveries_of_a_blind_chip_wait() -> None:
    driver = ScriptedDriver()
    async with collecting(driver) as recorded:
        driver.occur(1, HBM)
        await asyncio.sleep(50)
        driver.trouble["codes", 1] = STUCK
        driver.gap("look")
        await asyncio.sleep(1)
        driver.recover(1, HBM)
        await asyncio.sleep(30)
        assert recorded.words(50.0) == ["gap: look", f"chip 1 blind: {STUCK}"]
        del driver.trouble["codes", 1]
        await asyncio.sleep(6)
        assert recorded.words(52.0) == ["chip 1 answered", f"chip 1 recover {HBM_CODE}"]


async def test_a_slow_chip_delays_others_by_its_own_time_only() -> None:
    driver = ScriptedDriver(8)
    driver.slow_seconds = {("codes", 3): 0.5, ("health", 3): 0.5}
    driver.trouble = {("codes", 3): STUCK, ("health", 3): STUCK}
    async with collecting(driver) as recorded:
        await asyncio.sleep(0.7)
        answered = [text for text in recorded.words() if text.endswith("answered")]
        assert len(answered) >= 3
        await asyncio.sleep(0.6)
        answered = [text for text in recorded.words() if text.endswith("answered")]
        assert answered == [f"chip {number} answered" for number in range(8) if number != 3]


async def test_a_card_drops_and_returns() -> None:
    driver = ScriptedDriver()
    async with collecting(driver) as recorded:
        await asyncio.sleep(1)
        driver.trouble = {("health", 1): DROPPED, ("codes", 1): DROPPED}
        await asyncio.sleep(70)
        assert recorded.words(1.0) == [f"chip 1 present {CARD_DROP}"]
        driver.trouble.clear()
        await asyncio.sleep(5.1)
        assert recorded.words(70.0) == [f"chip 1 absent {CARD_DROP}"]


@pytest.mark.parametrize("later", [-0.3, 0.0, 0.3, 0.9])
@pytest.mark.parametrize("phase", [0.0, 1.1, 2.7, 4.4])
async def test_a_card_that_drops_beside_an_event_is_shown_within_a_second(
    phase: float, later: float
) -> None:
    """Upstream asks for all health words in the cycle of an event, which is 1 s long."""
    driver, loop = ScriptedDriver(8), asyncio.get_running_loop()
    async with collecting(driver) as recorded:
        await asyncio.sleep(11 + phase)
        event_at = loop.time() + 0.5
        drop_at = event_at + later
        loop.call_at(event_at, driver.occur, 5, HBM)
        trouble = {("health", 1): DROPPED}
        loop.call_at(drop_at, driver.trouble.update, trouble)
        await asyncio.sleep(0.5 + max(later, 0) + 1.1)
        assert f"chip 1 present {CARD_DROP}" in recorded.words(event_at - 0.5)


async def test_the_health_of_an_events_own_card_is_asked_at_once() -> None:
    driver = ScriptedDriver(8)
    async with collecting(driver) as recorded:
        await asyncio.sleep(12.3)
        driver.occur(1, HBM)
        await asyncio.sleep(0.2)
        driver.trouble = {("health", 1): DROPPED}
        at = asyncio.get_running_loop().time()
        driver.occur(1, HBM + 1)
        await asyncio.sleep(0.05)
        assert f"chip 1 present {CARD_DROP}" in recorded.words(at)


@pytest.mark.slow
async def test_many_events_ask_for_health_once_a_second() -> None:
    driver = ScriptedDriver(8)
    async with collecting(driver):
        await asyncio.sleep(12)
        driver.asked.clear()
        for number in range(500):
            driver.occur(1, HBM + number)
            await asyncio.sleep(0.02)
        await asyncio.sleep(1.5)
        asked = [chip for _, query, chip in driver.asked if query == "health"]
        for chip in (0, 2, 7):
            assert 10 <= asked.count(chip) <= 13
        assert asked.count(1) <= 115
        driver.asked.clear()
        await asyncio.sleep(20)
        asked = [chip for _, query, chip in driver.asked if query == "health"]
        assert asked.count(0) <= 5, "then as before"


async def test_a_silent_card_is_lost_after_five_minutes() -> None:
    driver = ScriptedDriver()
    async with collecting(driver) as recorded:
        await asyncio.sleep(1)
        driver.trouble = {("health", 1): STUCK, ("codes", 1): STUCK}
        driver.gap("look")
        await asyncio.sleep(299)
        assert recorded.words(1.0) == ["gap: look", f"chip 1 blind: {STUCK}"]
        await asyncio.sleep(7)
        assert recorded.words(300.0) == [f"chip 1 present {CARD_DROP}"]
        driver.trouble.clear()
        await asyncio.sleep(6)
        assert recorded.words(307.0) == ["chip 1 answered", f"chip 1 absent {CARD_DROP}"]


@pytest.mark.slow
async def test_a_missing_driver_loses_no_card() -> None:
    driver = ScriptedDriver()
    async with collecting(driver) as recorded:
        await asyncio.sleep(1)
        driver.trouble = {(query, 1): GONE for query in ("health", "codes")}
        await asyncio.sleep(1000)
        assert recorded.words(1.0) == [f"chip 1 blind: {GONE}"]


@pytest.mark.slow
@pytest.mark.parametrize("trouble", mostly_slow([STUCK, REFUSED, DROPPED], 3))
async def test_while_the_driver_is_replaced_no_card_is_lost(trouble: DriverError) -> None:
    driver = ScriptedDriver()
    async with collecting(driver) as recorded:
        await asyncio.sleep(1)
        driver.in_place = False
        driver.trouble = {(query, 1): trouble for query in ("health", "codes")}
        await asyncio.sleep(1000)
        assert recorded.words(1.0) == [f"chip 1 blind: {trouble}"]
        driver.in_place = True
        driver.trouble.clear()
        await asyncio.sleep(6)
        assert recorded.words(1001.0) == ["chip 1 answered"]


async def test_no_health_query_is_no_blindness_and_an_unknown_health_is() -> None:
    driver = ScriptedDriver(3)
    driver.trouble["health", 1] = UNSUPPORTED
    driver.healthless.add(2)
    async with collecting(driver) as recorded:
        await asyncio.sleep(300)
        assert sorted(recorded.words()) == [
            "chip 0 answered",
            "chip 1 answered",
            "chip 2 blind: the health is unknown",
        ]
        assert sum(asked[1:] == ("health", 1) for asked in driver.asked) == 1


async def test_without_events_lists_are_polled_often() -> None:
    driver = ScriptedDriver()
    driver.polling_reason = "refused"
    async with collecting(driver) as recorded:
        await asyncio.sleep(1)
        driver.occur(1, HBM, push=False)
        await asyncio.sleep(5)
        assert recorded.words(1.0) == [f"chip 1 present {HBM_CODE}"]


async def test_tracked_chips_are_blind_until_the_driver_answers() -> None:
    driver = ScriptedDriver()
    driver.ready.clear()
    gone = chip_subject(7)
    async with collecting(driver, {(CHIP_1, HBM_CODE): 1, (gone, HBM_CODE): 1}) as recorded:
        await asyncio.sleep(30)
        why = "the driver has not answered since the start"
        assert recorded.words() == [f"chip 1 blind: {why}", f"chip 7 blind: {why}"]
        assert recorded.batches[0][1][0] == SourceBlind("chip-faults", CHIP_1, 1_001_000, why, True)
        driver.ready.set()
        await asyncio.sleep(2)
        assert sorted(recorded.words(30.0)) == [
            "chip 0 answered",
            f"chip 1 absent {HBM_CODE}",
            "chip 1 answered",
            "chip 7 blind: the driver does not list this chip",
        ]


async def test_a_chip_that_is_remembered_and_not_listed_is_lost_until_it_is_listed() -> None:
    driver = ScriptedDriver()
    chips = driver.chips
    driver.chips = chips[:1]
    async with collecting(driver, {(CHIP_1, HBM_CODE): 1}, chips=frozenset({0, 1})) as recorded:
        await asyncio.sleep(299)
        silent = "chip 1 blind: the driver does not list this chip"
        assert recorded.words() == ["chip 0 answered", silent]
        await asyncio.sleep(7)
        assert recorded.words()[2:] == ["chip 1 present 40F84E00"]
        assert {chip for _, _, chip in driver.asked} == {0}, "nobody asks in its place"
        driver.chips = chips
        driver.gap("the driver lists other chips than before")
        await asyncio.sleep(5)
        assert sorted(recorded.words()[3:]) == [
            "chip 1 absent 40F84E00",
            f"chip 1 absent {HBM_CODE}",
            "chip 1 answered",
            "gap: the driver lists other chips than before",
        ]


async def test_while_the_driver_is_replaced_no_chip_that_is_not_listed_is_lost() -> None:
    driver = ScriptedDriver(0)
    driver.in_place = False
    async with collecting(driver, chips=frozenset({0, 1})) as recorded:
        await asyncio.sleep(400)
        assert not any("present" in word for word in recorded.words())
        driver.in_place = True
        await asyncio.sleep(310)
        assert sum("present 40F84E00" in word for word in recorded.words()) == 2, "all alike"


async def test_a_failing_inventory_ends_the_collector() -> None:
    driver = ScriptedDriver()

    async def fail() -> None:
        raise DriverError("no supported chip family")

    driver.listed = fail  # type: ignore[method-assign, assignment]
    with pytest.raises(DriverError, match="no supported chip family"):
        await ChipFaultsCollector(
            ChipFaultsSection(), collector_context(RecordedReports(), virtual_ms, driver)
        ).run()
