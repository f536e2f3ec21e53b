"""Readings through the device: real ioctls, answered by the preloaded library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from contract.codes.levels import Severity
from dcmi_shim.emulator.bmc import BmcAlarm
from dcmi_shim.emulator.install import IPMI_PRELOAD, IPMITOOL
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dcmi_shim.emulator.control import Emulator

ROOT = Path(__file__).parents[3]
DEADLINE_SECONDS = patience(0.5)
SILENT = f"the BMC does not answer within {DEADLINE_SECONDS:g} s"

READER = """
import asyncio, json, os, sys, threading, time
from pathlib import Path

from contract.errors import BmcError, ToolError
from dcmi_shim.ipmi.bmc import Ipmi
from dcmi_shim.library.discovery import VendorPaths

async def main():
    ipmi = Ipmi(Path(sys.argv[1]), VendorPaths(None, True, os.environ), float(sys.argv[2]))
    while line := await asyncio.to_thread(sys.stdin.readline):
        began = time.monotonic()
        try:
            answer = [[*alarm.identity, alarm.severity, alarm.raised_at_seconds]
                    for alarm in await ipmi.alarms(None)]
        except (BmcError, ToolError) as error:
            answer = f"{type(error).__name__}: {error}"
        threads = [thread.name for thread in threading.enumerate() if thread.name == "ipmi"]
        files = sum("timerfd" in os.readlink(f"/proc/self/fd/{fd}")
                    for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}"))
        print(json.dumps([answer, time.monotonic() - began, len(threads), files]), flush=True)

asyncio.run(main())
"""


class Reader:
    """A process that reads the BMC on request."""

    def __init__(self, device: Path, deadline_seconds: float, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", READER, str(device), str(deadline_seconds)],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("read\n")
        self.process.stdin.flush()

    def read(self) -> tuple[Any, float]:
        """Read the BMC; return the alarms or the error's text, and the duration (s)."""
        self.start()
        return self.result()

    def result(self) -> tuple[Any, float]:
        assert self.process.stdout is not None
        output, seconds, self.threads, self.descriptors = json.loads(self.process.stdout.readline())
        return output, seconds

    def close(self) -> float:
        """End it as a daemon ends; how long that took."""
        began = time.monotonic()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        assert self.process.wait(patience(10)) == 0
        self.process.stdout.close()
        return time.monotonic() - began


@pytest.fixture
def reader(emulated_server: tuple[Path, Emulator], tmp_path: Path) -> Iterator[Reader]:
    device = tmp_path / "ipmi0"
    environment = {
        "LD_PRELOAD": str(emulated_server[0] / IPMI_PRELOAD),
        "VIGIL_IPMI_DEVICE": str(device),
        "PATH": str(tmp_path),
    }
    started = Reader(device, DEADLINE_SECONDS, environment)
    yield started
    assert started.close() < patience(3)


@pytest.mark.slow
def test_alarms(hardware: Emulator, reader: Reader) -> None:
    assert reader.read()[0] == []
    hardware.bmc.occur(BmcAlarm("28000009", "Fan", 3, Severity.MINOR, 1_700_000_000))
    hardware.bmc.occur(BmcAlarm("2C000031", "0x2c", 0, Severity.CRITICAL, 1_700_000_001))
    assert reader.read()[0] == [
        ["28000009", "Fan", 3, 1, 1_700_000_000],
        ["2C000031", "System", 0, 3, 1_700_000_001],
    ]
    hardware.bmc.recover("28000009", "fan", 3)
    assert [alarm[0] for alarm in reader.read()[0]] == ["2C000031"]
    assert reader.descriptors == 0


@pytest.mark.slow
def test_pages(hardware: Emulator, reader: Reader) -> None:
    hardware.bmc.alarms(BmcAlarm("28000009", "Fan", index) for index in range(120))
    for size in (10, 1, 60):
        hardware.bmc.page(size)
        assert [alarm[2] for alarm in reader.read()[0]] == list(range(120))


@pytest.mark.parametrize(
    ("reply", "what"),
    [
        ("", "has no byte"),
        ("c1", "completion code C1: it does not know this command"),
        ("d5 db 07 00 01 00 01 00", "completion code D5 (request 30 94"),
        ("00 db 07", "it has 2 bytes"),
        ("00" + "ff" * 1023, "it begins with ff ff ff"),
    ],
)
@pytest.mark.slow
def test_bad_replies(hardware: Emulator, reader: Reader, reply: str, what: str) -> None:
    hardware.bmc.replies([("94@*", bytes.fromhex(reply))])
    output, _ = reader.read()
    assert what in output
    hardware.bmc.ok()
    assert reader.read()[0] == []


@pytest.mark.slow
def test_a_bad_second_page(hardware: Emulator, reader: Reader) -> None:
    hardware.bmc.alarms(BmcAlarm("28000009", "Fan", index) for index in range(12))
    hardware.bmc.replies([("94@10", bytes.fromhex("00 db 07 00 0c 00 00 00"))])
    assert "from index 10 on is bad: it is empty" in reader.read()[0]


@pytest.mark.slow
def test_a_bmc_that_is_slow_and_one_that_is_too_slow(hardware: Emulator, reader: Reader) -> None:
    hardware.bmc.slow(200)
    output, seconds = reader.read()
    assert output == []
    assert seconds >= 0.2
    hardware.bmc.slow(round(1400 * DEADLINE_SECONDS))
    output, seconds = reader.read()
    assert SILENT in output
    assert DEADLINE_SECONDS <= seconds < patience(2)
    hardware.bmc.ok()
    assert reader.read()[0] == []


@pytest.mark.slow
def test_many_slow_pages_end_together(hardware: Emulator, reader: Reader) -> None:
    hardware.bmc.alarms(BmcAlarm("28000009", "Fan", index) for index in range(60))
    hardware.bmc.page(1)
    hardware.bmc.slow(round(600 * DEADLINE_SECONDS))
    output, seconds = reader.read()
    assert f"the list takes more than {6 * DEADLINE_SECONDS:g} s" in output
    assert seconds < patience(5)


@pytest.mark.slow
def test_a_bmc_that_gives_no_answer(hardware: Emulator, reader: Reader) -> None:
    hardware.bmc.hang()
    assert SILENT in reader.read()[0]
    hardware.bmc.ok()
    assert reader.read()[0] == []


@pytest.mark.slow
@pytest.mark.parametrize(("where", "call"), [("open", "open"), ("ioctl", "the send ioctl")])
def test_a_call_that_hangs_in_the_kernel(
    hardware: Emulator, reader: Reader, where: str, call: str
) -> None:
    hardware.bmc.occur(BmcAlarm("28000009", "Fan", 3))
    hardware.bmc.hang(where)
    output, seconds = reader.read()
    assert f"{call} has not returned for" in output
    assert seconds < patience(3.5)
    for _ in range(3):
        output, seconds = reader.read()
        assert f"{call} has not returned for" in output
        assert seconds < patience(0.4)
        assert reader.threads == 1
    hardware.bmc.ok()
    deadline = time.monotonic() + patience(5)
    while isinstance(output, str) and time.monotonic() < deadline:
        output, _ = reader.read()
    assert [alarm[0] for alarm in output] == ["28000009"]
    assert reader.descriptors == 0


@pytest.mark.slow
@pytest.mark.parametrize("where", ["open", "ioctl"])
def test_the_end_of_the_process_waits_for_no_hang(
    emulated_server: tuple[Path, Emulator], hardware: Emulator, tmp_path: Path, where: str
) -> None:
    device = tmp_path / "ipmi0"
    preload = str(emulated_server[0] / IPMI_PRELOAD)
    reader = Reader(device, 0.2, {"LD_PRELOAD": preload, "VIGIL_IPMI_DEVICE": str(device)})
    hardware.bmc.hang(where)
    assert "has not returned for" in reader.read()[0]
    assert reader.close() < patience(3)


@pytest.mark.slow
def test_no_way_to_a_bmc_and_one_that_appears_later(
    emulated_server: tuple[Path, Emulator], hardware: Emulator, reader: Reader, tmp_path: Path
) -> None:
    hardware.bmc.occur(BmcAlarm("28000009", "Fan", 3))
    hardware.bmc.present(False)
    output, _ = reader.read()
    assert output.startswith(f"BmcError: neither {tmp_path}/ipmi0 nor ipmitool is there")
    (tmp_path / "ipmitool").symlink_to(emulated_server[0] / IPMITOOL)
    output, _ = reader.read()
    assert output.startswith("ToolFailed: ipmitool raw 0x30 0x94 0xDB")
    assert "Could not open device at /dev/ipmi0" in output
    hardware.bmc.present(True)
    assert [alarm[0] for alarm in reader.read()[0]] == ["28000009"]


@pytest.mark.slow
def test_a_device_that_may_not_be_opened(hardware: Emulator, tmp_path: Path) -> None:
    """A directory in its place: opening it for writing is refused also for root."""
    device = tmp_path / "ipmi0"
    device.mkdir()
    reader = Reader(device, DEADLINE_SECONDS, {"PATH": str(tmp_path)})
    assert f"{device} cannot be opened: Is a directory" in reader.read()[0]
    reader.close()


@pytest.mark.slow
def test_a_file_that_is_no_ipmi_device(tmp_path: Path) -> None:
    device = tmp_path / "ipmi0"
    device.touch()
    reader = Reader(device, DEADLINE_SECONDS, {"PATH": str(tmp_path)})
    assert "the send ioctl failed: Inappropriate ioctl" in reader.read()[0]
    reader.close()
