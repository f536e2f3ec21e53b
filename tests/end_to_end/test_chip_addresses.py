"""Addresses of chips on the Node, as the recording ``chip-address-changes`` has them.

Source: docs/spec/device-plugin.md#6.3.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from typing import TYPE_CHECKING

import pytest

from agent.node.chip_labels import ChipLabels
from agent.node.node_object import NodeObjectWriter
from contract.errors import DriverCallError
from dcmi_shim.driver import Driver
from dcmi_shim.emulator.control import CONTROL_LIBRARY, Emulator
from dcmi_shim.library.discovery import VendorPaths, find_library
from stores.address import open_store
from tests.agent.held_claim import held_claim
from tests.parts.deadlines import stays, until
from tests.parts.tasks import beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from dcmi_shim.values import Inventory
    from stores.base import ClusterObjects
    from tests.parts.controlplane import ControlPlane

pytestmark = pytest.mark.apiserver


@pytest.fixture
def hardware(
    tmp_path: Path, built: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Emulator, Path]]:
    shutil.copy(built / "emulator" / CONTROL_LIBRARY, tmp_path)
    monkeypatch.setenv("VIGIL_EMULATOR_DIR", str(tmp_path))
    emulator = Emulator(tmp_path)
    emulator.start("a2")
    yield emulator, built / "driver"
    emulator.close()


@pytest.fixture
async def driver(hardware: tuple[Emulator, Path]) -> AsyncIterator[Driver]:
    library = find_library(VendorPaths(hardware[1], True, {}))
    driver = Driver(library, lambda: time.time_ns() // 1_000_000)
    async with beside(driver.run()):
        yield driver


@contextlib.asynccontextmanager
async def keeping(objects: ClusterObjects, driver: Driver) -> AsyncIterator[None]:
    keeper = NodeObjectWriter(
        objects, "node-1", held_claim(), ChipLabels(driver, refresh_seconds=0.2), None
    )
    async with beside(keeper.run()):
        yield


async def test_an_address_follows_and_the_last_one_is_kept(
    control_plane: ControlPlane, hardware: tuple[Emulator, Path], driver: Driver
) -> None:
    emulator = hardware[0]
    control_plane.request("POST", "/api/v1/nodes", {"metadata": {"name": "node-1"}})
    store = open_store("kubernetes:", control_plane.kubeconfig)
    objects = store.objects
    assert objects is not None

    async def address_is(address: str) -> None:
        async def is_shown() -> bool:
            devices = (await objects.get_node("node-1")).annotations.get("baseDeviceInfos")
            return devices is not None and json.loads(devices)["Ascend910-3"]["IP"] == address

        await until(is_shown, f"the address is {address}")

    async with keeping(objects, driver):
        await address_is("192.168.100.13")
        emulator.address(3, "10.20.30.40")
        await address_is("10.20.30.40")
        emulator.address(3, None)
        await stays(0.6, because="the labels are refreshed several times")
        await address_is("10.20.30.40")
    async with keeping(objects, driver):
        await stays(0.6, because="the labels are refreshed several times")
        await address_is("10.20.30.40")
        emulator.address(3, "10.20.30.41")
        await address_is("10.20.30.41")
    await store.close()


async def test_driver_reports_facts_and_addresses_of_chips(
    hardware: tuple[Emulator, Path], driver: Driver
) -> None:
    inventory: Inventory = await driver.inventory()
    facts, problems = await driver.facts()
    assert (facts.aicores, facts.memory_mb, facts.main_board) == (20, 65536, 0)
    assert (facts.products, facts.super_devices, problems) == ((), {}, ())
    assert await driver.address(inventory.chips[7]) == "192.168.100.17"
    hardware[0].address(7, None)
    with pytest.raises(DriverCallError, match="dcmi_get_device_ip"):
        await driver.address(inventory.chips[7])
