"""``vigil scan`` of a server of each family."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.scan.conftest import Server


def test_it_says_how_late_a_fault_is_found_without_events(server: Server) -> None:
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
    # Four chips, 0.3 s each, and as long a rest.
    assert events["facts"]["period_seconds"] == pytest.approx(2.4, abs=0.3)
