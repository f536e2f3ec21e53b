"""Answers that cannot be: a clear error for the call, and nothing worse."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from contract.errors import DriverCallError, DriverError
from dcmi_shim.values import SuperPod
from tests.dcmi_shim.conftest import PATIENT, running
from tests.parts.deadlines import patience
from tests.parts.examples import mostly_slow

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.dcmi_shim.conftest import SmallDriver


@pytest.mark.parametrize(
    "lie",
    mostly_slow(
        ["lie-5-devices", "lie-logic-id", "lie-phy-id", "lie-same-id", "lie-absent-card"], 5
    ),
)
async def test_a_chip_with_an_impossible_identity_is_left_out(
    small_driver: Callable[[str], SmallDriver], lie: str
) -> None:
    liar = small_driver("liar")
    liar.command(lie)
    async with running(liar.library) as state:
        inventory = await state.driver.inventory()
        assert [chip.card_id for chip in inventory.chips] == [0, 1]
        liar.take_back(lie)
        await state.until(lambda: "other chips than before" in state.gaps)
        inventory = await state.driver.inventory()
        assert [chip.card_id for chip in inventory.chips] == [0, 1, 2]


async def test_a_die_whose_words_are_all_equal_has_no_identity(
    small_driver: Callable[[str], SmallDriver],
) -> None:
    async with running(small_driver("liar").library) as state:
        inventory = await state.driver.inventory()
    zeros = "00000000-" * 4
    assert [chip.die for chip in inventory.chips] == ["", f"{zeros}00000007", f"{zeros}00000007"]


@pytest.mark.slow
@pytest.mark.parametrize("lie", ["lie-65-cards", "lie-no-cards", "lie-strange-name"])
async def test_no_inventory_is_made_of_lies(
    small_driver: Callable[[str], SmallDriver], lie: str, caplog: pytest.LogCaptureFixture
) -> None:
    liar = small_driver("liar")
    liar.command(lie)
    async with running(liar.library, PATIENT) as state:
        if lie == "lie-strange-name":
            with pytest.raises(DriverError, match="belongs to no supported chip family"):
                await asyncio.wait_for(state.run, patience(5))
            return
        await state.until(lambda: "inventory: " in caplog.text)
        if lie == "lie-65-cards":
            assert "not 0 to 64" in caplog.text
        else:
            assert await state.driver.listed() == (), "it may have lost all of them"
            state.driver.list_again(True)
        assert state.driver.found is None
        liar.take_back(lie)
        assert len((await asyncio.wait_for(state.driver.inventory(), patience(2))).chips) == 3


async def test_names_and_pods(small_driver: Callable[[str], SmallDriver]) -> None:
    liar = small_driver("liar")
    liar.command("lie-empty-name")
    async with running(liar.library) as state:
        inventory = await state.driver.inventory()
        assert inventory.chip_name == "910B3"
        assert inventory.super_pod == SuperPod(None, None, None, None, None, None)


async def test_a_number_that_is_none_does_not_end_the_driver_process(
    small_driver: Callable[[str], SmallDriver],
) -> None:
    liar = small_driver("liar")
    liar.command("lie-no-number")
    async with running(liar.library) as state:
        assert len((await asyncio.wait_for(state.driver.inventory(), patience(5))).chips) == 3
        assert state.gaps == "", "the process that answered first is still there"


async def test_a_pod_of_a_wrong_size_is_none(small_driver: Callable[[str], SmallDriver]) -> None:
    liar = small_driver("liar")
    liar.command("lie-pod-size")
    async with running(liar.library) as state:
        assert (await state.driver.inventory()).super_pod is None


@pytest.mark.parametrize(
    ("lie", "what"),
    [
        ("lie-129-codes", "the number of error codes is 129, not 0 to 128"),
        ("lie-minus-codes", "the number of error codes is -1, not 0 to 128"),
    ],
)
async def test_impossible_code_lists(
    small_driver: Callable[[str], SmallDriver], lie: str, what: str
) -> None:
    liar = small_driver("liar")
    liar.command(lie)
    async with running(liar.library) as state:
        chip = (await state.driver.inventory()).chips[1]
        with pytest.raises(DriverCallError, match=what) as caught:
            await state.driver.error_codes(chip)
        assert caught.value.chip == "chip 1 (card 1 device 0)"


async def test_a_list_written_beyond_its_end_does_no_harm(
    small_driver: Callable[[str], SmallDriver],
) -> None:
    liar = small_driver("liar")
    liar.command("lie-overflow")
    async with running(liar.library) as state:
        chip = (await state.driver.inventory()).chips[1]
        before = state.driver.child_pid
        for _ in range(3):
            codes = await state.driver.error_codes(chip)
            assert codes == tuple(0xFFFFFF00 + i for i in range(1, 128, 2))
        assert state.driver.child_pid == before


async def test_health_words(small_driver: Callable[[str], SmallDriver]) -> None:
    liar = small_driver("liar")
    async with running(liar.library) as state:
        chip = (await state.driver.inventory()).chips[0]
        assert await state.driver.health(chip) == 7
        liar.command("lie-health")
        with pytest.raises(DriverCallError, match="the health is 2147483647"):
            await state.driver.health(chip)
        liar.command("lie-unknown-health")
        assert await state.driver.health(chip) is None


@pytest.mark.slow
async def test_odd_events(small_driver: Callable[[str], SmallDriver]) -> None:
    liar = small_driver("liar")
    async with running(liar.library) as state:
        await state.driver.inventory()
        liar.command("odd-events")
        await state.until(lambda: len(state.events) == 2)
        assert "an event without data" in state.gaps
        assert "an event of the unknown type 5" in state.gaps
        odd, good = state.events
        assert (odd.code, odd.logic_id, odd.severity, odd.assertion) == (
            0xFFFFFFFF,
            65535,
            None,
            255,
        )
        assert odd.driver_raised_at_ms is None
        assert odd.name == "\ufffd" * 256
        assert (good.logic_id, good.assertion) == (1, 1)
