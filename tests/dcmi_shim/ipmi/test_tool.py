"""Readings through ``ipmitool``: the look-alike, and scripts as foreign ones."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import (
    BmcError,
    ForeignBmc,
    ToolError,
    ToolFailed,
    ToolInvalidOutput,
    ToolMissing,
    ToolSilent,
)
from dcmi_shim.emulator.bmc import BmcAlarm
from dcmi_shim.emulator.install import IPMITOOL
from dcmi_shim.ipmi.alarms import request_from
from dcmi_shim.ipmi.bmc import Ipmi
from dcmi_shim.ipmi.tool import parse_raw, raw_arguments
from dcmi_shim.library.discovery import VendorPaths
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from pathlib import Path

    from dcmi_shim.emulator.control import Emulator

DEADLINE_SECONDS = patience(0.5)
SILENT = f"no answer within {DEADLINE_SECONDS:g} s"


def test_the_command_line_is_that_of_the_specification() -> None:
    words = "raw 0x30 0x94 0xDB 0x07 0x00 0x40 0x00 0x0A 0x00 0x0E 0xFF"
    assert " ".join(raw_arguments(request_from(10))) == words


@pytest.mark.parametrize(
    ("printed", "reply"),
    [
        (" db 07 00 01\n 0f\n", "db07000 10f"),
        ("DB 07 00\r\n", "db0700"),
        ("\n", ""),
    ],
)
def test_printed_bytes_are_the_reply(printed: str, reply: str) -> None:
    assert parse_raw(printed) == bytes.fromhex(reply.replace(" ", ""))


@given(st.binary(max_size=100), st.sampled_from([" ", "\n", " \n ", "\t"]))
def test_whatever_it_prints_is_read(reply: bytes, between: str) -> None:
    assert parse_raw(reply.hex(" ").replace(" ", between)) == reply


@given(st.text(max_size=60))
def test_noise_is_bytes_or_an_error(printed: str) -> None:
    try:
        reply = parse_raw(printed)
    except ToolInvalidOutput:
        return
    assert reply.hex() == "".join(printed.split()).lower()


@pytest.mark.parametrize("printed", ["db07", "0xdb", "d b", "no reply", "zz", "db 7"])
def test_output_that_is_no_reply_is_refused(printed: str) -> None:
    with pytest.raises(ToolInvalidOutput, match=r"printed no reply.*printed: "):
        parse_raw(printed)


def ipmi(place: Path, deadline_seconds: float = 5.0, trust_driver: bool = True) -> Ipmi:
    path = f"{place}:{os.environ['PATH']}"
    missing = place / "no-device"
    return Ipmi(missing, VendorPaths(None, trust_driver, {"PATH": path}), deadline_seconds)


async def test_the_look_alike(emulated_server: tuple[Path, Emulator], hardware: Emulator) -> None:
    bmc = ipmi((emulated_server[0] / IPMITOOL).parent)
    hardware.bmc.alarms(BmcAlarm("28000009", "Fan", index) for index in range(25))
    found = await bmc.alarms(None)
    assert [alarm.index for alarm in found] == list(range(25))
    hardware.bmc.clear()
    assert await bmc.alarms(found) == ()


@pytest.mark.slow
async def test_its_troubles(emulated_server: tuple[Path, Emulator], hardware: Emulator) -> None:
    bmc = ipmi((emulated_server[0] / IPMITOOL).parent, DEADLINE_SECONDS)
    hardware.bmc.fail(0xC1)
    with pytest.raises(ForeignBmc, match=r"cmd=0x94 rsp=0xc1\): Invalid command"):
        await bmc.alarms(None)
    hardware.bmc.ok()
    hardware.bmc.present(False)
    with pytest.raises(ToolFailed, match="Could not open device at /dev/ipmi0"):
        await bmc.alarms(None)
    hardware.bmc.ok()
    hardware.bmc.hang()
    with pytest.raises(ToolSilent, match=f"{SILENT}; killed"):
        await bmc.alarms(None)
    hardware.bmc.ok()
    hardware.bmc.replies([("94@0", bytes.fromhex("00 db 07 00 01 00 01"))])
    with pytest.raises(BmcError, match="from index 0 on is bad: it has 6 bytes"):
        await bmc.alarms(None)
    hardware.bmc.ok()
    assert await bmc.alarms(None) == ()


@pytest.mark.slow
async def test_the_troubles_of_tools(
    emulated_server: tuple[Path, Emulator], hardware: Emulator
) -> None:
    bmc = ipmi((emulated_server[0] / IPMITOOL).parent, DEADLINE_SECONDS)
    hardware.tool("ipmitool", "garble")
    with pytest.raises(ToolInvalidOutput, match="printed no reply"):
        await bmc.alarms(None)
    hardware.tool("ipmitool", "ok")
    hardware.tool("ipmitool", "fail", exit_status=3, text="no such luck")
    with pytest.raises(ToolFailed, match="exit status 3: no such luck"):
        await bmc.alarms(None)
    hardware.tool("ipmitool", "hang")
    with pytest.raises(ToolSilent, match=SILENT):
        await bmc.alarms(None)
    hardware.tool("ipmitool", "ok")
    assert await bmc.alarms(None) == ()


def script(place: Path, text: str) -> None:
    tool = place / "ipmitool"
    tool.write_text(f"#!/bin/sh\n{text}\n")
    tool.chmod(0o755)


async def test_a_foreign_one(tmp_path: Path) -> None:
    wanted = "raw 0x30 0x94 0xDB 0x07 0x00 0x40 0x00 0x00 0x00 0x0E 0xFF"
    event = "09 00 00 28 F1 53 65 00 02 04 03 00 00 00 00"
    script(tmp_path, f'test "$*" = "{wanted}" && echo " DB 07 00 01 00 01 00 {event}"')
    found = await ipmi(tmp_path).alarms(None)
    assert [alarm.identity for alarm in found] == [("28000009", "Fan", 3)]


@pytest.mark.parametrize(
    ("text", "error", "what"),
    [
        ("echo rubbish", ToolInvalidOutput, "printed no reply.*rubbish"),
        ("exit 0", BmcError, "it has 0 bytes"),
        ("echo broken >&2; exit 3", ToolFailed, "exit status 3: broken"),
        ("kill -9 $$", ToolFailed, "ended by signal 9"),
        ("sleep 30", ToolSilent, SILENT),
        ("yes 00", (ToolInvalidOutput, ToolSilent), "more than|no answer"),
    ],
)
async def test_foreign_ones_in_trouble(
    tmp_path: Path,
    text: str,
    error: type[Exception] | tuple[type[Exception], ...],
    what: str,
) -> None:
    script(tmp_path, text)
    with pytest.raises(error, match=what):
        await ipmi(tmp_path, DEADLINE_SECONDS).alarms(None)


async def test_a_program_that_must_not_be_run(tmp_path: Path) -> None:
    script(tmp_path, "echo")
    (tmp_path / "ipmitool").chmod(0o777)
    with pytest.raises(ToolMissing, match=r"is not run: .*; see --trust-driver"):
        await ipmi(tmp_path, trust_driver=False).alarms(None)


async def test_one_that_appears_later(tmp_path: Path) -> None:
    bmc = Ipmi(tmp_path / "none", VendorPaths(None, True, {"PATH": str(tmp_path)}), 1.0)
    with pytest.raises(BmcError, match=r"neither .*/none nor ipmitool is there; load"):
        await bmc.alarms(None)
    script(tmp_path, 'echo " db 07 00 00 00 00 00"')
    assert await bmc.alarms(None) == ()
    (tmp_path / "ipmitool").unlink()
    with pytest.raises((BmcError, ToolError), match="neither"):
        await bmc.alarms(None)
