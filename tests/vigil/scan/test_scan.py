"""``vigil scan`` of an emulated server: what works, what does not, and what to do."""

from __future__ import annotations

import json
import os
import re
import socket
from contextlib import ExitStack
from inspect import signature
from typing import TYPE_CHECKING

import pytest

from dcmi_shim.emulator.bmc import BmcAlarm
from tests.parts.deadlines import patience
from tests.parts.processes import free_ports
from tests.parts.verbs import columns_of
from tests.vigil.scan.server import OF_THE_MACHINE
from vigil.agent import agent
from vigil.scan.verb import scan

if TYPE_CHECKING:
    from pathlib import Path

    from tests.vigil.scan.server import Server


def files(server: Server) -> set[Path]:
    """Return all files in the directories that an agent writes."""
    places = (server.state_dir, server.state_dir.parent / "store")
    return {file for place in places for file in place.rglob("*")}


def test_a_server_that_is_well(server: Server) -> None:
    before = files(server)
    scanned = server.scan()
    assert scanned.problems() <= OF_THE_MACHINE
    assert scanned.status == (1 if scanned.problems() else 0)
    assert files(server) == before, "nothing is written"
    driver = scanned.check("driver")["facts"]
    assert driver["chips"] == [f"Ascend910-{chip}" for chip in range(8)]
    assert driver["family"] == "Ascend910B"
    assert driver["driver_version"]
    assert scanned.check("hccn_tool")["facts"] == {"cards": 8, "down": [], "failed": []}
    bmc = scanned.check("bmc")["facts"]
    assert (bmc["way"], bmc["alarms"], bmc["serial_number"]) == (
        "ipmitool",
        0,
        "2102314VIGIL0000001",
    )
    assert scanned.check("switch-library")["state"] == "not-applicable"
    for absent in ("listen", "storage-dpc", "storage-dtfs", "clusterd"):
        assert scanned.check(absent)["state"] == "not-applicable"
    assert "--trust-driver" in scanned.check("driver-library")["found"]


def test_faults_of_the_hardware_are_no_problems_of_the_set_up(server: Server) -> None:
    server.emulator.occur(3, "80E01801")
    server.emulator.link(5, up=False)
    server.emulator.bmc.occur(BmcAlarm("2C000031", "System"))
    scanned = server.scan()
    assert scanned.problems() <= OF_THE_MACHINE
    assert scanned.check("driver-calls")["facts"]["codes"]["3"] == ["80E01801"]
    assert {"driver-calls", "hccn_tool", "bmc"} <= scanned.warnings()
    assert scanned.status == (1 if scanned.problems() else 0), "a warning is no problem"
    assert scanned.check("hccn_tool")["facts"]["down"] == ["Ascend910-5"]
    assert scanned.check("bmc")["facts"]["alarms"] == 1


def test_a_bmc_that_refuses_its_serial_number_is_well(server: Server) -> None:
    server.emulator.bmc.replies([("90@4", bytes.fromhex("c1"))])
    bmc = server.scan().check("bmc")
    assert (bmc["state"], bmc["facts"]["alarms"], bmc["facts"]["serial_number"]) == ("ok", 0, None)


def test_a_driver_that_hangs_in_a_call_is_reported_as_such(server: Server) -> None:
    server.emulator.hang("dcmi_get_device_errorcode_v2", 3)
    scanned = server.scan()
    assert scanned.status == 1
    calls = scanned.check("driver-calls")
    assert calls["state"] == "problem"
    assert calls["facts"]["hangs"] == ["dcmi_get_device_errorcode_v2 on chip 3 (card 3 device 0)"]
    assert scanned.check("hccn_tool")["state"] == "ok", "what does not hang is looked at"


def test_a_driver_that_hangs_from_the_start_blocks_no_other(server: Server) -> None:
    server.emulator.hang("dcmi_init")
    scanned = server.scan()
    assert scanned.status == 3
    assert scanned.seconds < patience(30)
    assert "hangs" in scanned.check("driver")["found"]
    assert scanned.check("driver-calls")["state"] == "not-applicable"
    assert scanned.check("bmc")["state"] == "ok"


def test_no_driver(server: Server, tmp_path: Path) -> None:
    scanned = server.scan("--driver-root", str(tmp_path / "nothing"))
    assert scanned.status == 3
    assert (
        str(tmp_path / "nothing/lib64/driver/libdcmi.so")
        in scanned.check("driver-library")["found"]
    )
    assert scanned.check("hccn_tool")["state"] == "not-applicable"


def test_tools_that_fail_or_are_not_there(server: Server, tmp_path: Path) -> None:
    server.emulator.tool("hccn_tool", "fail", exit_status=7, text="no such device")
    server.environment["PATH"] = str(tmp_path)
    scanned = server.scan()
    assert {"hccn_tool", "bmc"} <= scanned.problems()
    assert "ipmitool" not in scanned.problems(), "a missing BMC is one problem"
    assert "ipmitool" in scanned.warnings()
    assert "exit status 7" in scanned.check("hccn_tool")["found"]
    assert "modprobe" in scanned.check("bmc")["advice"]
    assert scanned.status == 1


def test_everything_wrong_in_the_configuration_is_reported_at_once(server: Server) -> None:
    server.environment["VIGIL_LINKS_PERIOD_SECONDS"] = "never"
    scanned = server.scan("--listen", "nowhere", "--node-name", "No_Name")
    assert scanned.status == 2
    assert scanned.report["node"] is None
    assert len(scanned.check("configuration")["facts"]["problems"]) == 3


def test_beside_a_running_agent(server: Server) -> None:
    (port,) = free_ports(1)
    server.options = ["--listen", f"127.0.0.1:{port}"]
    server.start()
    server.healthy()
    beats = server.journal("start")
    scanned = server.scan()
    assert scanned.problems() <= OF_THE_MACHINE
    assert scanned.check("agent")["facts"] == {"runs": True}
    assert "by the agent" in scanned.check("listen")["found"]
    assert server.journal("start") == beats
    assert server.process.status is None
    assert server.status()["driver"]["trouble"] is None


def test_an_address_that_another_program_has(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        scanned = server.scan("--listen", address)
    assert "listen" in scanned.problems()
    assert address in scanned.check("listen")["found"]


def test_directories_that_cannot_be_used(server: Server, tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file\n")
    (tmp_path / "state").write_text("a file\n")
    scanned = server.scan()
    assert {"directory", "state-dir"} <= scanned.problems()
    assert scanned.status == 3


def test_a_wrong_fault_configuration(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "fault-config"
    folder.mkdir()
    (folder / "faultCode.json").write_text("{")
    scanned = server.scan("--fault-config-dir", str(folder))
    assert "fault-configuration" in scanned.problems()
    assert "faultCode.json (file)" in scanned.check("fault-configuration")["found"]
    assert scanned.status == 1


def test_people_read_a_plain_list(server: Server) -> None:
    server.emulator.tool("hccn_tool", "fail", exit_status=7)
    result = server.run_scan()
    lines = result.stdout.splitlines()
    assert result.returncode == 1
    assert result.stdout.isascii()
    assert "\x1b" not in result.stdout
    assert any(line.startswith("ok       driver  ") for line in lines)
    (wrong,) = [
        number for number, line in enumerate(lines) if line.startswith("PROBLEM  hccn_tool")
    ]
    assert any("to do:" in line for line in lines[wrong : wrong + 12])
    assert "hccn_tool" in lines[-1]
    assert lines[-1].startswith("node-1: ")


def test_people_read_it_in_chinese_and_programs_read_the_same(server: Server) -> None:
    server.emulator.tool("hccn_tool", "fail", exit_status=7)
    server.environment |= {"VIGIL_LANG": "zh", "PYTHONUTF8": "1"}
    assert not re.search("[一-鿿]", json.dumps(server.scan().report, ensure_ascii=False))
    lines = server.run_scan().stdout.splitlines()
    # A path stays in one piece.
    assert max(columns_of(line) for line in lines if "/" not in line) <= 100
    assert any(line.startswith("问题     hccn_tool ") for line in lines)
    assert any("处理:   请以 root 手动运行" in line for line in lines)
    assert re.match("node-1: [1-9] 个问题：hccn_tool", lines[-1])


def test_it_takes_whatever_the_agent_takes() -> None:
    assert signature(agent).parameters.keys() <= signature(scan).parameters.keys()


_REFUSES = (
    'echo "Unable to send RAW command (channel=0x0 netfn=0x30 lun=0x0 cmd=0x94 rsp=0xc1): '
    'Invalid command" >&2; exit 1'
)
_IS_DELL = (
    'if [ "$2" = 0x06 ]; then echo " 20 81 04 40 02 df a2 02 00 00 01 00 00 00 00"; exit 0; fi'
)
_IS_OLD = _IS_DELL.replace("a2 02 00", "db 07 00")


@pytest.mark.parametrize(
    ("script", "found", "maker"),
    [
        (_REFUSES, "not Huawei's", None),
        (_REFUSES.replace("0xc1", "0xc2"), "not Huawei's", None),
        ("echo", "not Huawei's", None),
        ('echo " a2 02 00 00 00 00 00"', "not Huawei's", None),
        (f"{_IS_DELL}\n{_REFUSES}", "not Huawei's", 674),
        (f"{_IS_OLD}\n{_REFUSES}", "Huawei's BMC without the list of alarms", 2011),
    ],
)
def test_a_bmc_of_another_maker_is_named(
    server: Server, tmp_path: Path, script: str, found: str, maker: int | None
) -> None:
    tools = tmp_path / "foreign"
    tools.mkdir()
    (tools / "ipmitool").write_text(f"#!/bin/sh\n{script}\n")
    (tools / "ipmitool").chmod(0o755)
    server.environment["PATH"] = f"{tools}:{server.environment['PATH']}"
    scanned = server.scan()
    bmc = scanned.check("bmc")
    assert bmc["state"] == "problem"
    assert found in bmc["found"]
    assert "bmc.enabled = false" in bmc["advice"]
    assert bmc["facts"]["manufacturer"] == maker
    assert not any("modprobe" in one["advice"] for one in scanned.report["checks"])


def test_a_bmc_without_a_device_needs_the_kernel_modules(server: Server, tmp_path: Path) -> None:
    tools = tmp_path / "foreign"
    tools.mkdir()
    failing = 'echo "Could not open device at /dev/ipmi0: No such file or directory" >&2; exit 1'
    (tools / "ipmitool").write_text(f"#!/bin/sh\n{failing}\n")
    (tools / "ipmitool").chmod(0o755)
    server.environment["PATH"] = f"{tools}:{server.environment['PATH']}"
    assert "modprobe" in server.scan().check("bmc")["advice"]


def test_a_log_that_is_not_the_kernels_is_a_problem_and_a_pipe_is_named(
    server: Server, tmp_path: Path
) -> None:
    server.environment.pop("VIGIL_KERNEL_LOG_ENABLED", None)
    server.environment["VIGIL_KERNEL_LOG_DEVICE"] = "/dev/null"
    check = server.scan().check("kernel-log")
    assert (check["state"], "character device 1:3" in check["found"]) == ("problem", True)
    os.mkfifo(tmp_path / "kmsg")
    server.environment["VIGIL_KERNEL_LOG_DEVICE"] = str(tmp_path / "kmsg")
    check = server.scan().check("kernel-log")
    assert check["state"] in ("ok", "warning")
    assert "is a pipe, read in place of the kernel's log" in check["found"]


def test_a_relative_driver_root_counts_from_the_working_directory(server: Server) -> None:
    root = os.path.relpath(server.driver_root)
    scanned = server.scan("--driver-root", root)
    assert scanned.check("driver")["state"] == "ok"
    assert scanned.check("hccn_tool")["state"] == "ok"


@pytest.mark.parametrize("kind", ["a socket", "a directory", "a pipe"])
def test_what_is_in_the_place_of_a_file_is_named(server: Server, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "tables"
    folder.mkdir()
    places = {name: tmp_path / name for name in ("dpc", "ipmi", "config")}
    places["table"] = folder / "faultCode.json"
    with ExitStack() as closing:
        for place in places.values():
            if kind == "a socket":
                listener = closing.enter_context(socket.socket(socket.AF_UNIX))
                listener.bind(str(place))
            elif kind == "a directory":
                place.mkdir()
            else:
                os.mkfifo(place)
        server.environment["VIGIL_STORAGE_DPC_FILE"] = str(places["dpc"])
        server.environment["VIGIL_BMC_DEVICE"] = str(places["ipmi"])
        scanned = server.scan("--fault-config-dir", str(folder))
        assert f"is not a regular file, but {kind}" in scanned.check("storage-dpc")["found"]
        assert f"it is {kind}, not a file" in scanned.check("fault-configuration")["found"]
        assert scanned.check("bmc")["state"] == "problem"
        if kind == "a socket":
            assert "it is a socket, not the kernel's IPMI device" in scanned.check("bmc")["found"]
            scanned = server.scan("--config", str(places["config"]))
            assert "it is a socket" in scanned.check("configuration")["found"]
