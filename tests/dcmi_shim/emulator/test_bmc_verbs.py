"""``vigil simulate bmc`` and what ``vigil emulator status`` shows of it, in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from contract.errors import ConfigurationError, EmulatorError
from vigil.main import app

if TYPE_CHECKING:
    from tests.dcmi_shim.emulator.conftest import Server


def vigil(server: Server, *arguments: str) -> str:
    """Run a command; return its output.

    Raises what ``vigil`` turns into an exit status.
    """
    place = {"VIGIL_EMULATOR_DIR": str(server.emulator_dir)}
    result = CliRunner().invoke(app, arguments, env=place, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def bmc(server: Server, line: str) -> None:
    assert vigil(server, "simulate", "bmc", *line.split()) == ""


@pytest.mark.slow
def test_every_verb(a2: Server) -> None:
    for line in (
        "occur 28000009 --device Fan --index 3 --severity critical",
        "occur 0x2c000031 --device system",
        "recover 2C000031 --device 0x2c",
        "hang --where ioctl",
        "slow 20",
        "fail C1",
        "page 5",
        "label --serial X --manufacturer Y",
        "reply 94@0 00DB 90@4 00",
        "absent",
    ):
        bmc(a2, line)
    found = a2.emulator.status()["bmc"]
    assert isinstance(found, dict)
    assert found.pop("alarms")[0]["code"] == "28000009"
    assert found == {
        "present": False,
        "hang": "ioctl",
        "delay_ms": 20,
        "completion_code": 0xC1,
        "events_per_reply": 5,
        "played_replies": 2,
    }
    shown = vigil(a2, "emulator", "status")
    assert "BMC  absent, 1 alarm, hangs (ioctl), 20 ms slower, completion code C1" in shown
    assert "BMC  28000009 on Fan 3 severity 3" in shown
    for line in ("present", "clear", "ok"):
        bmc(a2, line)
    assert "BMC  present, 0 alarms\n" in vigil(a2, "emulator", "status")


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("occur 28000009 --device Fun", "'Fun' is not a valid device type of a BMC"),
        ("occur 28000009 --device Fan --severity bad", "'bad' is none of suggestion, minor"),
        ("fail 00", "'00' is not a valid completion code"),
        ("reply 94@0", "'94@0' has no reply"),
        ("reply 94@0 0", "'0' is not a valid reply"),
        ("hang --where here", "'here' is none of reply, ioctl, open"),
    ],
)
def test_wrong_use(a2: Server, line: str, error: str) -> None:
    with pytest.raises(ConfigurationError, match=error):
        bmc(a2, line)


def test_a_recovery_of_nothing(a2: Server) -> None:
    with pytest.raises(EmulatorError, match="the BMC has no alarm 28000009 on Fan 1"):
        bmc(a2, "recover 28000009 --device Fan --index 1")
