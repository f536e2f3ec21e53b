"""A library of DCMI v2 through the same driver: chips, lists, health, events, processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from contract.errors import DriverCallError
from dcmi_shim.values import Chip, Utilization
from tests.dcmi_shim.conftest import running

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.dcmi_shim.conftest import SmallDriver


@pytest.mark.slow
async def test_an_ascend_950(small_driver: Callable[[str], SmallDriver]) -> None:
    library = small_driver("second_generation")
    async with running(library.library) as state:
        driver = state.driver
        inventory = await driver.inventory()
        assert inventory.family == "Ascend910A5"
        assert inventory.chips == (
            Chip(4, 0, 0, 0, "00000000-00000001-00000002-00000003-00000004"),
            Chip(5, 1, 1, 0, "00000001-00000002-00000003-00000004-00000005"),
        )
        assert (inventory.chip_name, inventory.driver_version) == ("Ascend950PR", "26.0.0")
        assert (inventory.super_pod, inventory.virtual, inventory.board_id) == (None, (), 0x23)
        assert inventory.main_board == 0x25
        facts, _ = await driver.facts()
        assert (facts.memory_mb, facts.main_board) == (131072, 0x25)
        assert driver.trouble is None
        good, bad = inventory.chips
        library.command("fault-1")
        assert [await driver.error_codes(chip) for chip in (good, bad)] == [(), (0x81B18603,)]
        assert [await driver.health(chip) for chip in (good, bad)] == [0, 2]
        assert await driver.processes(bad) == (1001,)
        assert await driver.process_lists((good, bad)) == {good: (1000,), bad: (1001,)}
        assert await driver.utilization(bad, Utilization.AI_CORE) == 31
        with pytest.raises(DriverCallError, match="-8255"):
            await driver.utilization(bad, Utilization.HBM)
        with pytest.raises(DriverCallError, match="-99998"):
            await driver.network_health(bad)
        names, problems = await driver.names(bad)
        assert names.model == "Ascend950PR-Ascend-V1"
        assert names.vdie == "00000001-00000002-00000003-00000004-00000005"
        assert problems == ()
        assert driver.polling_reason is None
        library.command("event")
        await state.until(lambda: state.events)
        (event,) = state.events
        assert (event.code, event.logic_id, event.assertion) == (0x81B18603, 1, 1)
        assert (event.severity, event.serial) == (1, 7)
