"""``vigil scan`` of a server of each family."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from contract.codes.families import FAMILIES
from dcmi_shim.emulator.install import install
from tests.parts.device_plugin import device_plugin
from tests.vigil.scan.server import OF_THE_MACHINE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.vigil.scan.server import Server


def test_it_states_how_late_a_fault_is_found_without_events(server: Server) -> None:
    server.emulator.start("310p")
    events = server.scan().check("driver-events")
    assert events["state"] == "ok"
    assert "up to 1 s late" in events["found"]
    assert "these chips have none" in events["found"]
    server.environment["VIGIL_CHIP_FAULTS_LIST_PERIOD_SECONDS"] = "7"
    assert "up to 7 s late" in server.scan().check("driver-events")["found"]


def test_a_slow_driver_makes_it_later(server: Server) -> None:
    server.emulator.start("310")
    server.emulator.slow("dcmi_get_device_errorcode_v2", 300)
    events = server.scan().check("driver-events")
    # Four chips, 0.3 s each or a little more, and as long a rest.
    assert 2.4 <= events["facts"]["period_seconds"] < 6


def test_a_plugin_that_resets_duo_cards_as_one(server: Server) -> None:
    server.emulator.start("duo")
    assert server.scan().check("duo-cards")["state"] == "ok"
    with device_plugin("-hotReset=0") as pid:
        check = server.scan().check("duo-cards")
        assert check["state"] == "problem"
        assert f"process {pid}" in check["facts"]["plugins"]
        assert "duo_cards" in check["advice"]
        server.environment["VIGIL_COMPATIBILITY_DUO_CARDS"] = "together"
        assert server.scan().check("duo-cards")["state"] == "ok"


@pytest.mark.parametrize(
    ("profile", "family", "name"),
    [
        ("a2", "Ascend910B", "Ascend910-7"),
        ("a3", "Ascend910A3", "Ascend910-15"),
        ("910a", "Ascend910", "Ascend910-7"),
        ("310p", "Ascend310P", "Ascend310P-3"),
        ("310", "Ascend310", "Ascend310-3"),
        ("duo", "Ascend310P", "Ascend310P-7"),
        ("a5", "Ascend910A5", "npu-7"),
    ],
)
def test_a_server_of_each_family_that_is_well(
    server: Server, tmp_path: Path, profile: str, family: str, name: str
) -> None:
    if profile == "a3":
        # Its switches have a library of their own.
        server.driver_root = tmp_path / "a3" / "driver"
        install(server.driver_root, tmp_path / "a3" / "emulator", profile)
    server.emulator.start(profile)
    scanned = server.scan()
    assert scanned.problems() <= OF_THE_MACHINE
    facts = scanned.check("driver")["facts"]
    assert (facts["family"], facts["chips"][-1]) == (family, name)
    switches = scanned.check("switch-library")
    assert (switches["state"] == "ok") is (profile == "a3"), switches
    links = scanned.check("hccn_tool")
    assert (links["state"] == "ok") is FAMILIES[family].has_network, links
