"""The emulated BMC: its ipmitool, its device, its scenario steps."""

from __future__ import annotations

import json
import os
import struct
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from contract.codes.levels import Severity
from contract.errors import ConfigurationError, EmulatorError
from dcmi_shim.emulator.bmc import BmcAlarm
from dcmi_shim.emulator.control import Emulator
from dcmi_shim.emulator.install import IPMITOOL, install
from dcmi_shim.emulator.scenario import parse_scenario, play
from tests.parts.deadlines import patience
from tests.vectors import VECTORS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.dcmi_shim.emulator.conftest import Server

EVENTS = "0x30 0x94 0xDB 0x07 0x00 0x40 0x00"
RECORDINGS = [
    json.loads(line) for line in (VECTORS / "bmc" / "polls.jsonl").read_text().splitlines()
]


def ipmitool(
    server: Server, line: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [server.root / IPMITOOL, *line.split()],
        env=environment or {},
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(10),
    )


def printed(server: Server, line: str) -> str:
    result = ipmitool(server, line)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def events(first: int) -> str:
    return f"raw {EVENTS} {first & 0xFF} {first >> 8} 0x0E 0xFF"


def test_it_prints_as_ipmitool(a2: Server) -> None:
    a2.emulator.bmc.occur(BmcAlarm("28000009", "Fan", 3, Severity.MAJOR, 0x6553F100))
    assert printed(a2, events(0)) == (
        " db 07 00 01 00 01 00 09 00 00 28 00 f1 53 65 02\n 04 03 00 00 00 00\n"
    )
    a2.emulator.bmc.clear()
    assert printed(a2, events(0)) == " db 07 00 00 00 00 00\n"


def test_labels(a2: Server) -> None:
    a2.emulator.bmc.label(serial="ABC", manufacturer="")
    assert printed(a2, "raw 0x30 0x90 0x05 0x00 0x03 0x04 0x00 0xFF") == " 00 41 42 43\n"
    assert printed(a2, "raw 0x30 0x90 0x05 0x00 0x03 0x00 0x00 0xFF") == " 00\n"


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("raw 0x06 0x01", "netfn=0x6 lun=0x0 cmd=0x1 rsp=0xc1): Invalid command"),
        (f"raw {EVENTS} 0 0 0x0E", "cmd=0x94 rsp=0xc7): Request data length invalid"),
        ("raw 0x30 0x94 1 2 3 4 5 6 7 8 9", "rsp=0xcc): Invalid data field in request"),
        ("raw 0x30 0x90 5 0 3 9 0 0xff", "rsp=0xcc): Invalid data field in request"),
        ("raw 0x30", "Not enough parameters given."),
        ("raw 0x30 0x100", 'Given command "0x100" is invalid.'),
        ("raw 0x30 0x94 x", 'Given data "x" is invalid.'),
        ("sdr list", "Invalid command: sdr"),
    ],
)
def test_its_errors(a2: Server, line: str, error: str) -> None:
    result = ipmitool(a2, line)
    assert (result.returncode, result.stdout) == (1, "")
    assert error in result.stderr


def test_troubles(a2: Server) -> None:
    bmc = a2.emulator.bmc
    bmc.fail(0xC0)
    received = "Unable to send RAW command (channel=0x0 netfn=0x30 lun=0x0 cmd=0x94 rsp=0xc0): "
    assert ipmitool(a2, events(0)).stderr == f"{received}Node busy\n"
    bmc.ok()
    bmc.present(False)
    assert "Could not open device at /dev/ipmi0 or" in ipmitool(a2, events(0)).stderr
    bmc.ok()
    bmc.replies([("94@7", b"\xd5\x01"), ("94@*", b"\0\x01")])
    assert "rsp=0xd5): Command not supported in present state" in ipmitool(a2, events(7)).stderr
    assert printed(a2, events(8)) == " 01\n"
    bmc.replies([("94@*", b"")])
    assert ipmitool(a2, events(0)).stderr.endswith("netfn=0x30 lun=0x0 cmd=0x94)\n")
    a2.emulator.reset()
    assert printed(a2, events(0)) == " db 07 00 00 00 00 00\n"


@pytest.mark.slow
def test_a_hang_ends_with_its_cause(a2: Server) -> None:
    a2.emulator.bmc.hang()
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run([a2.root / IPMITOOL, *events(0).split()], timeout=0.3, check=False)
    waiting = subprocess.Popen(
        [a2.root / IPMITOOL, *events(0).split()], stdout=subprocess.PIPE, text=True
    )
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(0.2)
    a2.emulator.bmc.ok()
    assert waiting.communicate(timeout=patience(5))[0] == " db 07 00 00 00 00 00\n"


@pytest.mark.slow
def test_only_one_run_at_a_time_if_asked(a2: Server) -> None:
    a2.emulator.tool("ipmitool", "busy")
    # The second run has to begin meanwhile; bmc.ok() ends it early.
    a2.emulator.bmc.slow(10_000)
    first = subprocess.Popen(
        [a2.root / IPMITOOL, *events(0).split()], stdout=subprocess.PIPE, text=True
    )
    with pytest.raises(subprocess.TimeoutExpired):
        first.wait(patience(0.3))
    refused = ipmitool(a2, events(0))
    a2.emulator.bmc.ok()
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "Could not open device at /dev/ipmi0" in refused.stderr
    assert first.communicate(timeout=patience(5))[0] == " db 07 00 00 00 00 00\n"


def test_the_environment_wins(a2: Server, tmp_path: Path) -> None:
    place = {"VIGIL_EMULATOR_DIR": str(tmp_path)}
    result = ipmitool(a2, events(0), place)
    assert (result.returncode, result.stdout) == (1, "")
    assert "the emulated hardware cannot be used: No such file or directory" in result.stderr


def alarms_in(replies: dict[str, str]) -> list[BmcAlarm]:
    """Return the alarms of recorded pages, in their order."""
    found = []
    for reply in replies.values():
        body = bytes.fromhex(reply)[8:]
        for code, raised, severity, kind, index in struct.iter_unpack("<IIBBB4x", body):
            found.append(
                BmcAlarm(f"{code:08X}", f"0x{kind:02x}", index, Severity(severity), raised)
            )
    return found


@pytest.mark.parametrize(
    "name", ["every-subject-type", "more-than-hundred-alarms", "paging-page-size-changes"]
)
def test_it_answers_as_recorded(a2: Server, name: str) -> None:
    (recording,) = (r for r in RECORDINGS if r["recording"] == f"noded/{name}")
    for poll in recording["polls"]:
        replies: dict[str, str] = poll["replies"]
        a2.emulator.bmc.alarms(alarms_in(replies))
        a2.emulator.bmc.page(bytes.fromhex(replies["0"])[6] or 10)
        for first, reply in replies.items():
            assert bytes.fromhex(printed(a2, events(int(first)))) == bytes.fromhex(reply)[1:]


def test_the_severities_that_are_asked_for(a2: Server) -> None:
    a2.emulator.bmc.alarms(
        BmcAlarm("28000009", "Fan", int(severity), severity, 0) for severity in Severity
    )
    assert bytes.fromhex(printed(a2, events(0)))[3] == 3
    assert bytes.fromhex(printed(a2, f"raw {EVENTS} 0 0 0x08 0xFF"))[3] == 1
    assert bytes.fromhex(printed(a2, f"raw {EVENTS} 0 0 0x0F 0x05"))[3] == 0


def test_status(a2: Server) -> None:
    bmc = a2.emulator.bmc
    bmc.occur(BmcAlarm("28000009", "Fan", 3, Severity.MINOR, 7))
    bmc.occur(BmcAlarm("28000009", "fan", 3, Severity.CRITICAL, 8))
    bmc.hang("ioctl")
    bmc.slow(5)
    bmc.fail(0xC1)
    bmc.page(3)
    bmc.present(False)
    bmc.replies([("90@4", b"\0\0")])
    alarm = {"code": "28000009", "type": 4, "index": 3, "severity": 3, "raised_at_seconds": 8}
    troubled = {
        "present": False,
        "hang": "ioctl",
        "delay_ms": 5,
        "completion_code": 0xC1,
        "events_per_reply": 3,
        "alarms": [alarm],
        "played_replies": 1,
    }
    assert a2.emulator.status()["bmc"] == troubled
    bmc.ok()
    well: dict[str, Any] = {
        "present": True,
        "hang": None,
        "delay_ms": 0,
        "completion_code": 0,
        "played_replies": 0,
    }
    assert a2.emulator.status()["bmc"] == {**troubled, **well}
    a2.emulator.reset()
    assert a2.emulator.status()["bmc"] == {
        **troubled,
        **well,
        "alarms": [],
        "events_per_reply": 10,
    }


def test_wrong_values(a2: Server) -> None:
    bmc = a2.emulator.bmc
    wrong: list[Callable[[], None]] = [
        lambda: bmc.occur(BmcAlarm("2800", "Fan")),
        lambda: bmc.occur(BmcAlarm("28000009", "Fun")),
        lambda: bmc.occur(BmcAlarm("28000009", "Fan", 256)),
        lambda: bmc.occur(BmcAlarm("28000009", "Fan", raised_at_seconds=-1)),
        lambda: bmc.hang("somewhere"),
        lambda: bmc.slow(0),
        lambda: bmc.fail(0),
        lambda: bmc.page(61),
        lambda: bmc.label(serial="x" * 64),
        lambda: bmc.replies([("95@0", b"")]),
        lambda: bmc.replies([("94@65536", b"")]),
        lambda: bmc.replies([("94@0", bytes(1025))]),
        lambda: bmc.replies([("94@0", b"")] * 33),
    ]
    for change in wrong:
        with pytest.raises(ConfigurationError):
            change()
    with pytest.raises(EmulatorError, match="the BMC has no alarm 28000009 on Fan 0"):
        bmc.recover("28000009", "Fan")
    with pytest.raises(EmulatorError, match="as many alarms as it can"):
        bmc.alarms([BmcAlarm("28000009", "Fan")] * 1025)
    assert a2.emulator.status()["bmc"] == {
        "present": True,
        "hang": None,
        "delay_ms": 0,
        "completion_code": 0,
        "events_per_reply": 10,
        "alarms": [],
        "played_replies": 0,
    }


STEPS = """
[[steps]]
at_ms = 0
do = "bmc_occur"
code = "28000009"
device = "Fan"
index = 3
severity = "critical"
[[steps]]
at_ms = 0
do = "bmc_occur"
code = "02000007"
device = "0x02"
[[steps]]
at_ms = 0
do = "bmc_recover"
code = "02000007"
device = "Disk"
[[steps]]
at_ms = 0
do = "bmc_page"
alarms = 2
[[steps]]
at_ms = 0
do = "bmc_hang"
where = "open"
[[steps]]
at_ms = 0
do = "bmc_slow"
delay_ms = 10
[[steps]]
at_ms = 0
do = "bmc_fail"
completion_code = "C1"
[[steps]]
at_ms = 0
do = "bmc_reply"
request = "94@0"
reply = "00 DB"
[[steps]]
at_ms = 0
do = "bmc_label"
serial = "2102313LNR10P5000012"
[[steps]]
at_ms = 0
do = "bmc_absent"
"""


def test_a_scenario(a2: Server) -> None:
    play(parse_scenario(STEPS, "steps"), a2.emulator)
    found = a2.emulator.status()["bmc"]
    assert isinstance(found, dict)
    (alarm,) = found.pop("alarms")
    assert (alarm["code"], alarm["type"], alarm["index"]) == ("28000009", 4, 3)
    assert found == {
        "present": False,
        "hang": "open",
        "delay_ms": 10,
        "completion_code": 0xC1,
        "events_per_reply": 2,
        "played_replies": 1,
    }
    ends = "".join(
        f'[[steps]]\nat_ms = 0\ndo = "{what}"\n' for what in ("bmc_present", "bmc_ok", "bmc_clear")
    )
    play(parse_scenario(ends, "ends"), a2.emulator)
    assert printed(a2, events(0)) == " db 07 00 00 00 00 00\n"
    assert bytes.fromhex(printed(a2, "raw 0x30 0x90 5 0 3 4 0 0xff"))[1:] == b"2102313LNR10P5000012"


@pytest.mark.parametrize(
    ("step", "where"),
    [
        ('do = "bmc_occur"\ncode = "28000009"\ndevice = "Fun"', "steps[0].device"),
        ('do = "bmc_occur"\ncode = "28"\ndevice = "Fan"', "steps[0].code"),
        ('do = "bmc_recover"\ncode = "28000009"\ndevice = "Fan"\nindex = 256', "steps[0].index"),
        ('do = "bmc_fail"\ncompletion_code = "00"', "steps[0].completion_code"),
        ('do = "bmc_hang"\nwhere = "here"', "steps[0].where"),
        ('do = "bmc_reply"\nrequest = "1@1"\nreply = "0"', "steps[0].request"),
        ('do = "bmc_page"\nalarms = 61', "steps[0].alarms"),
        ('do = "bmc_label"\nserial = "é"', "steps[0].serial"),
    ],
)
def test_steps_that_are_wrong(step: str, where: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_scenario(f"[[steps]]\nat_ms = 0\n{step}\n", "wrong")
    assert where in {problem.where for problem in caught.value.problems}


@pytest.mark.slow
def test_install_over_a_running_one(tmp_path: Path) -> None:
    """The state of an earlier version is made anew, not misread."""
    install(tmp_path, tmp_path / "emulator")
    state = tmp_path / "emulator" / "state"
    content = bytearray(state.read_bytes())
    struct.pack_into("<I", content, 8, 1)
    state.write_bytes(content)
    emulator = Emulator(tmp_path / "emulator")
    with pytest.raises(EmulatorError, match="vigil emulator start"):
        emulator.bmc.clear()
    emulator.start()
    emulator.bmc.clear()
    emulator.close()
    assert os.access(tmp_path / IPMITOOL, os.X_OK)
