"""The emulated device of the BMC, for a program that was written against the kernel's header."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dcmi_shim.emulator.bmc import BmcAlarm
from dcmi_shim.emulator.install import IPMI_PRELOAD
from dcmi_shim.ipmi import device as ipmi_device
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from tests.dcmi_shim.emulator.conftest import Server


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("client") / "ipmi_client"
    source = Path(__file__).with_name("ipmi_client.c")
    subprocess.run(["gcc", "-Wall", "-Wextra", "-Werror", "-o", program, source], check=True)
    return program


def ask(
    server: Server, client: Path, request: str, wait_ms: int = 1000, device: str = "/dev/ipmi0"
) -> str:
    # Behind the library of the address sanitizer, where the tests run with it.
    preloads = (os.environ.get("LD_PRELOAD", ""), str(server.root / IPMI_PRELOAD))
    environment = {"LD_PRELOAD": " ".join(filter(None, preloads))}
    if device != "/dev/ipmi0":
        environment["VIGIL_IPMI_DEVICE"] = device
    command = [str(client), device, str(wait_ms), *request.split()]
    result = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=patience(10)
    )
    return result.stdout


REQUEST = "30 94 db 07 00 40 00 00 00 0e ff"


def test_the_shim_has_the_numbers_of_the_kernel(client: Path) -> None:
    found = subprocess.run([client, "abi"], stdout=subprocess.PIPE, text=True, check=True).stdout
    send, receive, request, received, address = found.split()
    assert int(send, 16) == ipmi_device.SEND_COMMAND
    assert int(receive, 16) == ipmi_device.RECEIVE_MESSAGE_TRUNCATED
    assert int(request) == ipmi_device.SENT.size
    assert int(received) == ipmi_device.RECEIVED.size
    assert int(address) == 8


@pytest.mark.slow
def test_the_device_for_a_program_of_someone_else(a2: Server, client: Path) -> None:
    header = "1 12 123456789abc 31 94:"
    for device in ("/dev/ipmi0", "/tmp/another"):
        assert ask(a2, client, REQUEST, device=device) == f"{header} 00 db 07 00 00 00 00 00\n"
    a2.emulator.bmc.slow(300)
    assert ask(a2, client, REQUEST, wait_ms=50) == "nothing\n"
    assert ask(a2, client, REQUEST).startswith(header)
    a2.emulator.bmc.ok()
    a2.emulator.bmc.alarms(BmcAlarm("28000009", "Fan", index) for index in range(10))
    assert ask(a2, client, REQUEST).startswith(f"truncated {header} 00 db 07 00 0a 00 0a 00")
    a2.emulator.bmc.hang()
    assert ask(a2, client, REQUEST, wait_ms=100) == "nothing\n"
    a2.emulator.bmc.ok()
    a2.emulator.bmc.present(False)
    assert ask(a2, client, REQUEST) == "open: No such file or directory\n"
