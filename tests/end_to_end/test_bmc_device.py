"""A real agent that reaches its BMC through the device, with the preloaded library in the kernel's
place: alarms, a device that hangs, one that comes later."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from dcmi_shim.emulator.bmc import BmcAlarm
from dcmi_shim.emulator.install import IPMI_PRELOAD
from tests.parts.deadlines import nothing_happens_for, patience

if TYPE_CHECKING:
    from pathlib import Path

    from tests.end_to_end.node import Node

PERIOD_SECONDS = 0.3
FAN = BmcAlarm("06000025", "Fan", 3)
FAULTY = [("Fan", 3, ["06000025"])]


@pytest.fixture
def with_device(folder_node: Node, tmp_path: Path) -> Node:
    device = str(tmp_path / "ipmi0")
    folder_node.environment |= {
        "LD_PRELOAD": str(folder_node.driver_root / IPMI_PRELOAD),
        "VIGIL_IPMI_DEVICE": device,
        "VIGIL_BMC_DEVICE": device,
        "VIGIL_BMC_PERIOD_SECONDS": str(PERIOD_SECONDS),
        "VIGIL_BMC_DEADLINE_SECONDS": "0.5",
    }
    return folder_node


def blindness(node: Node) -> list[str]:
    return [one["reason"] for one in node.status()["blind"] if one["source"] == "bmc"]


def test_alarms(with_device: Node) -> None:
    node = with_device
    node.start()
    node.healthy()
    node.wait(lambda: "bmc" in node.status()["answered"], "the BMC has answered")
    for _ in range(3):
        node.emulator.bmc.occur(FAN)
        seconds = node.wait(lambda: node.parts() == FAULTY, "the alarm is shown")
        assert seconds < patience(PERIOD_SECONDS + 0.3)
        node.emulator.bmc.clear()
        node.wait(lambda: node.node_info() is None, "the document is deleted")
    node.emulator.bmc.occur(FAN)
    node.wait(lambda: node.parts() == FAULTY, "the alarm is shown")
    node.emulator.bmc.replies([("94@*", bytes.fromhex("00 db 07 00 00 00 01 00"))])
    node.wait(lambda: blindness(node) != [], "a bad reply is blindness")
    assert "its count of alarms is 1, but it holds 0" in blindness(node)[0]
    assert node.parts() == FAULTY


@pytest.mark.parametrize("where", ["open", "ioctl"])
def test_a_device_that_hangs_holds_nothing_up(with_device: Node, where: str) -> None:
    node = with_device
    node.emulator.bmc.occur(FAN)
    node.emulator.bmc.hang(where)
    node.start()
    node.healthy()
    node.wait(lambda: blindness(node) != [], "the BMC is blind")
    assert "has not returned for" in blindness(node)[0]
    node.emulator.occur(3, "80E01801")
    assert node.until(
        lambda now: now.codes(3) == {"80E01801"}, "a chip's fault is shown"
    ) < patience(1)
    assert node.ask("/healthz")[0] == 200
    node.emulator.bmc.ok()
    node.wait(lambda: node.parts() == FAULTY, "the alarm is shown")
    node.emulator.bmc.hang(where)
    node.wait(lambda: blindness(node) != [], "the BMC is blind again")
    began = time.monotonic()
    status, _ = node.stop()
    assert status == 0, node.logged()
    assert time.monotonic() - began < patience(4)
    assert node.parts() == FAULTY


def test_a_bmc_that_comes_later(with_device: Node) -> None:
    node = with_device
    node.environment["PATH"] = ""
    node.emulator.bmc.occur(FAN)
    node.emulator.bmc.present(False)
    node.start()
    node.healthy()
    node.wait(lambda: blindness(node) != [], "the BMC is blind")
    assert blindness(node)[0].endswith("or install ipmitool")
    node.emulator.bmc.present(True)
    assert node.wait(lambda: node.parts() == FAULTY, "the alarm is shown") < patience(2)
    # A later query may miss its deadline on a busy machine.
    node.wait(lambda: blindness(node) == [], "the BMC answers")


def test_the_serial_number(with_device: Node) -> None:
    """It is asked for apart from the alarms, which do not wait for it."""
    node = with_device
    node.emulator.bmc.label(serial="2102313LNR10P5000012")
    node.emulator.bmc.replies([("90@4", bytes.fromhex("c1"))])
    node.emulator.bmc.occur(FAN)
    node.start()
    node.up()
    node.wait(lambda: node.parts() == FAULTY, "the alarm is shown")
    # No order is fixed between the two. A busy machine may miss the deadline of the first query.
    refusal = "the BMC refuses with completion code C1"
    node.wait(
        lambda: (node.status()["serial_number"]["trouble"] or "").startswith(refusal), "refused"
    )
    trouble = node.status()["serial_number"]["trouble"]
    assert trouble.endswith("(request 30 90 05 00 03 04 00 ff)")
    node.emulator.bmc.ok()
    node.wait(lambda: node.status()["serial_number"]["number"] is not None, "it is known")
    assert node.status()["serial_number"] == {"number": "2102313LNR10P5000012", "trouble": None}
    node.waits_for_text("the serial number of the server is 2102313LNR10P5000012")


def test_a_node_that_is_not_to_ask_its_bmc(with_device: Node) -> None:
    node = with_device
    node.environment["VIGIL_BMC_ENABLED"] = "false"
    node.emulator.bmc.occur(FAN)
    node.start()
    node.healthy()
    nothing_happens_for(3 * PERIOD_SECONDS, because="three periods of the BMC's queries")
    assert node.status()["blind"] == []
    assert node.node_info() is None
    node.stop()
    del node.environment["VIGIL_BMC_ENABLED"]
    node.start()
    node.wait(lambda: node.parts() == FAULTY, "the alarm is shown")
    node.stop()
    node.environment["VIGIL_BMC_ENABLED"] = "false"
    node.start()
    node.up()
    assert blindness(node) == ["the collector is switched off; its last known faults stay"]
    assert node.parts() == FAULTY
