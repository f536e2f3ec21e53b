"""What a server is: chips of one family, which does not change."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from contract.errors import DriverCallError, DriverCallStuck, DriverError
from dcmi_shim.emulator.control import Emulator
from dcmi_shim.emulator.install import LIBRARY, install
from dcmi_shim.library.discovery import FoundLibrary
from dcmi_shim.values import Chip
from tests.dcmi_shim.conftest import SCALED, running
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.dcmi_shim.conftest import SmallDriver


@pytest.mark.slow
async def test_two_families_are_refused_with_both_names(
    small_driver: Callable[[str], SmallDriver], caplog: pytest.LogCaptureFixture
) -> None:
    library = small_driver("plain")
    library.command("other-family-1")
    async with running(library.library) as state:
        await state.until(lambda: "different families" in caplog.text)
        assert "Ascend910B (910B3: chips 0) and Ascend310P (310P3: chips 1)" in caplog.text
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(state.driver.inventory(), 0.5)
        trouble = state.driver.trouble
        assert trouble is not None
        assert "310P3" in trouble
        library.take_back("other-family-1")
        assert (
            await asyncio.wait_for(state.driver.inventory(), patience(5))
        ).family == "Ascend910B"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["other-family", "other-family-1"])
async def test_chips_that_become_others_while_they_are_served(
    small_driver: Callable[[str], SmallDriver], caplog: pytest.LogCaptureFixture, how: str
) -> None:
    library = small_driver("plain")
    async with running(library.library) as state:
        before = await state.driver.inventory()
        library.command(how)
        library.command("crash-health-1")
        for chip in before.chips:
            await asyncio.gather(state.driver.health(chip), return_exceptions=True)
        library.take_back("crash-health-1")
        wanted = "different families" if how == "other-family-1" else "called them 910B3"
        await state.until(lambda: wanted in caplog.text)
        assert await state.driver.inventory() == before, "what was known stays"
        assert await state.driver.error_codes(before.chips[0]) == ()
        library.take_back(how)
        await state.until(lambda: state.driver.trouble is None)


@pytest.mark.slow
async def test_ids_with_gaps(small_driver: Callable[[str], SmallDriver]) -> None:
    library = small_driver("gaps")
    async with running(library.library) as state:
        inventory = await state.driver.inventory()
        chips = Chip(8, 2, 1, 0), Chip(14, 5, 6, 0), Chip(16, 6, 6, 1)
        assert inventory.chips == chips
        assert state.driver.trouble is None
        library.command("fault-1")
        assert [await state.driver.error_codes(chip) for chip in chips] == [(0x80E01801,)] * 3


@pytest.mark.slow
async def test_a_die_that_answers_beside_one_that_does_not(
    small_driver: Callable[[str], SmallDriver], caplog: pytest.LogCaptureFixture
) -> None:
    library = small_driver("gaps")
    library.command("silent-die")
    async with running(library.library) as state:
        inventory = await state.driver.inventory()
        assert inventory.chips == (Chip(8, 2, 1, 0), Chip(16, 6, 6, 1))
        assert "card 6 device 0" in caplog.text
        assert await state.driver.health(inventory.chips[1]) == 0
        library.take_back("silent-die")
        await state.until(lambda: "other chips than before" in state.gaps)
        assert len((await state.driver.inventory()).chips) == 3


@pytest.mark.slow
async def test_64_chips(small_driver: Callable[[str], SmallDriver]) -> None:
    async with running(small_driver("many").library) as state:
        inventory = await asyncio.wait_for(state.driver.inventory(), patience(10))
        assert [chip.physical_id for chip in inventory.chips] == list(range(64))
        assert state.driver.trouble is None
        answers = [await state.driver.error_codes(chip) for chip in inventory.chips]
        assert answers == [()] * 64


def a5_without(place: Path, *missing: str) -> FoundLibrary:
    """Install an emulated driver of an A5 that lacks the functions in ``missing``; return it."""
    install(place / "driver", place / "emulator", "a5", missing)
    return FoundLibrary(place / "driver" / LIBRARY, (), ())


@pytest.mark.slow
async def test_a_library_of_the_second_generation_without_what_may_be_missing(
    tmp_path: Path,
) -> None:
    missing = ("dcmiv2_get_mainboard_id", "dcmiv2_get_device_hbm_info", "dcmiv2_get_dcmi_version")
    async with running(a5_without(tmp_path, *missing)) as state:
        inventory = await state.driver.inventory()
        assert (len(inventory.chips), inventory.family) == (8, "Ascend910A5")
        assert (inventory.main_board, inventory.driver_version) == (None, None)
        facts, problems = await state.driver.facts()
        assert (facts.memory_mb, facts.main_board, problems) == (None, None, ())
        assert await state.driver.error_codes(inventory.chips[7]) == ()
        assert state.driver.trouble is None


@pytest.mark.slow
async def test_a_library_of_the_second_generation_without_its_lists(tmp_path: Path) -> None:
    missing = "dcmiv2_get_device_error_code_list", "dcmiv2_get_device_health"
    async with running(a5_without(tmp_path, *missing)) as state:
        (chip, *_) = (await state.driver.inventory()).chips
        for call in (state.driver.error_codes(chip), state.driver.health(chip)):
            with pytest.raises(DriverCallError, match="-99998"):
                await call


@pytest.mark.slow
async def test_a_library_of_the_second_generation_without_its_chips(tmp_path: Path) -> None:
    async with running(a5_without(tmp_path, "dcmiv2_get_device_list")) as state:
        with pytest.raises(DriverError, match="dcmi"):
            await asyncio.wait_for(state.run, patience(10))


@pytest.mark.slow
async def test_lists_of_several_chips_in_one_message(
    small_driver: Callable[[str], SmallDriver],
) -> None:
    library = small_driver("plain")
    async with running(library.library, SCALED) as state:
        driver = state.driver
        good, bad = (await driver.inventory()).chips
        library.command("fault-0")
        assert await driver.code_lists((good, bad)) == {good: (0x80E01801,), bad: ()}
        library.command("hang-codes-1")
        (stuck,) = (await driver.code_lists((good, bad))).items()
        assert stuck[0] == bad
        assert isinstance(stuck[1], DriverCallStuck)
        assert await driver.error_codes(good) == (0x80E01801,), "by another process"
        answers = await driver.code_lists((good, bad))
        assert answers[good] == (0x80E01801,)
        assert isinstance(answers[bad], DriverCallStuck), "left out, and the other chip is asked"
        library.take_back("hang-codes-1")


@pytest.mark.slow
async def test_a_slow_driver_gives_the_first_lists(tmp_path: Path) -> None:
    install(tmp_path / "driver", tmp_path / "emulator", "310p")
    emulator = Emulator(tmp_path / "emulator")
    emulator.slow("dcmi_get_device_errorcode_v2", 150)
    emulator.fail("dcmi_get_device_errorcode_v2", -8009, 0)
    try:
        library = FoundLibrary(tmp_path / "driver" / LIBRARY, (), ())
        async with running(library) as state:
            chips = (await state.driver.inventory()).chips
            (answer,) = (await state.driver.code_lists(chips)).items()
            assert answer[0] == chips[0]
            assert isinstance(answer[1], DriverCallError), "it failed, slowly"
            emulator.clear("dcmi_get_device_errorcode_v2", 0)
            assert await state.driver.code_lists(chips[1:]) == {chips[1]: ()}
    finally:
        emulator.close()
