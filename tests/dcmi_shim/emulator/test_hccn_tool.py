"""The look-alike of hccn_tool: formats, streams and exit statuses (docs/spec/dcmi.md#7)."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from dcmi_shim.emulator.install import HCCN_TOOL, LIBRARY
from tests.dcmi_shim.emulator.driver import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.dcmi_shim.emulator.conftest import Server, Watchers

LINK_DOWN = "81078603"


def _tool(server: Server) -> Path:
    root = server.library.parents[len(LIBRARY.parts) - 1]
    return root / HCCN_TOOL


def _run(server: Server, line: str, given: str = "") -> tuple[int, str, str]:
    result = subprocess.run(
        [_tool(server), *line.split()],
        input=given,
        capture_output=True,
        text=True,
        check=False,
        env={},
    )
    return result.returncode, result.stdout, result.stderr


def _ask(server: Server, line: str) -> str:
    status, stdout, stderr = _run(server, line)
    assert (status, stderr) == (0, "")
    return stdout


def test_it_is_laid_out_as_the_vendors(a2: Server) -> None:
    tool = _tool(a2)
    assert tool.is_file()
    assert not tool.is_symlink()
    assert tool.stat().st_mode & 0o7777 == 0o755
    assert tool.with_name("emulator-dir").read_text() == f"{a2.emulator_dir}\n"


EXACT = [
    ("-i 3 -link -g", "link status: UP\n"),
    ("-i 3 -g -link", "link status: UP\n"),
    ("-g -link -i 3 -u 0 -p 4", "link status: UP\n"),
    ("-i 3 -speed -g", "Speed: 200000 Mb/s\n"),
    ("-i 3 -duplex -g", "Duplex: Full\n"),
    ("-i 3 -net_health -g", "net health status: Success\n"),
    ("-i 3 -fec -g", "fec mode: rs FEC mode\n"),
    ("-i 3 -ip -g", "ipaddr:192.168.100.13\nnetmask:255.255.255.0\n"),
    ("-i 3 -ip -inet6 -g", "ipv6_address:fd00::13\nprefix_length:64\n"),
    ("-i 3 -gateway -g", "default gateway:192.168.100.1, Iface:eth3\n"),
    ("-i 3 -netdetect -g", "netdetect addr: 192.168.100.1\n"),
    ("-i 3 -mtu -g", "mtu:1500\n"),
    (
        "-i 3 -tls -g",
        "dev_id:3, tls switch[0](0:disable, 1:enable), tls preconfigured[1](0:non-preset, "
        "1:preset), tls alarm time threshold[60]days\n",
    ),
    (
        "-i 3 -optical -g dfx_cfg",
        "optical dfx info:\nloopback status    : no loopback mode\ntx disable status  : 0x0\n",
    ),
    (
        "-i 3 -ping -g address 192.168.1.2 pkt 1",
        "device 3 PING 192.168.1.2\nrecv seq=0,time=0.154000ms\n"
        "1 packets transmitted, 1 received, 0.00% packet loss\n",
    ),
    ("-g -port_info -i 3 -u 0 -p 4", "port_enable: on\nport_type: ETH\n"),
]


@pytest.mark.parametrize(("line", "answer"), EXACT, ids=[line for line, _ in EXACT])
def test_answers_of_one_form(a2: Server, line: str, answer: str) -> None:
    assert _ask(a2, line) == answer


def test_answers_that_vary(a2: Server) -> None:
    stat = _ask(a2, "-i 0 -stat -g").split("\n")
    assert stat[0] == "packet statistics:"
    assert len(stat) == 50
    assert all(re.fullmatch(r"[a-z0-9_]+:\d+", line) for line in stat[1:-1])
    optical = _ask(a2, "-i 0 -optical -g").split("\n")
    assert optical[0] == "optical info:"
    assert {line.index(":") for line in optical[1:-1]} == {21}
    assert "Tx Power0            : 1.4035 mW" in optical
    scdr = _ask(a2, "-i 0 -scdr -t 5").split("\n")
    assert scdr[0] == "Cdr Host SNR Lane0         : 23.1211 dB"
    assert scdr[4] == "Cdr Media SNR Lane0        : 23.1211 dB"
    assert re.fullmatch(
        r"Bandwidth TX: \d+\.\d\d MB/sec\nBandwidth RX: \d+\.\d\d MB/sec\n",
        _ask(a2, "-i 0 -bandwidth -g"),
    )
    assert "Port ID TLV\n\tIfname: 400GE1/1/1:1\n" in _ask(a2, "-i 0 -lldp -g")
    table = _ask(a2, "-g -speed -i 2 -u 0 -p 4").split("\n")
    rows = [line for line in table if "|" in line and "+" not in line]
    assert rows[1].split("|")[4].strip() == "400 G"
    devices = _ask(a2, "-g -dev_info -i 2").split("\n")
    assert [line[:2] for line in devices].count("+-") == 3
    assert [cell.strip() for cell in devices[3].split("|")[1:6]] == ["0", "4", "200", "ETH", "UP"]


WRONG = [
    ("", 3, "", "Get invalid major cmd.\nEnter [ hccn_tool -h ] for more details.\n"),
    (
        "-i 1 -weather -g",
        3,
        "",
        "Get invalid major cmd.\nEnter [ hccn_tool -h ] for more details.\n",
    ),
    ("-link -g", 4, "", "Get invalid device id.\n"),
    ("-i 16 -link -g", 4, "", "Get invalid device id.\n"),
    ("-i x -link -g", 4, "", "Get invalid device id.\n"),
    ("-i 8 -link -g", 4, "", "The device is not exist!\n"),
    ("-i 1 -link -g -q", 3, "", "Get unknown option!\n"),
    ("-i 1 -link", 4, "", "The total count of input parameters is wrong!\n"),
    ("-i 1 -ping -g", 4, "", "The total count of input parameters is wrong!\n"),
    ("-i 1 -dev_info -g", 13, "The command is not supported on this product.\n", ""),
]


@pytest.mark.parametrize(("line", "status", "stdout", "stderr"), WRONG, ids=[w[0] for w in WRONG])
def test_errors(a2: Server, line: str, status: int, stdout: str, stderr: str) -> None:
    assert _run(a2, line) == (status, stdout, stderr)


@pytest.mark.slow
def test_a_link_that_is_down_is_down_everywhere(a2: Server, watchers: Watchers) -> None:
    watcher = watchers.start(a2)
    a2.emulator.link(3, up=False)
    event = watcher.event()
    assert (event["deviceid"], event["code"], event["assertion"], event["severity"]) == (
        *(3, LINK_DOWN),
        *(1, 1),
    )
    wait_until(lambda: a2.driver.codes(3) == [LINK_DOWN])
    assert a2.driver.network_health(3) == (0, 5)
    assert a2.driver.network_health(2) == (0, 0)
    assert _ask(a2, "-i 3 -link -g") == "link status: DOWN\n"
    assert _ask(a2, "-i 2 -link -g") == "link status: UP\n"
    assert _ask(a2, "-i 3 -net_health -g") == "net health status: Fault\n"
    assert _ask(a2, "-i 3 -speed -g") == "Speed: Unknown!\n"
    assert "Rx Power2            : 0.0000 mW\n" in _ask(a2, "-i 3 -optical -g")
    assert "| DOWN " in _ask(a2, "-g -dev_info -i 3")
    frozen = _ask(a2, "-i 3 -stat -g")
    assert _run(a2, "-i 3 -lldp -g") == (22, "", "Execute failed: Link status is down.\n")
    assert [chip["link"] for chip in a2.emulator.status()["chips"]].count("down") == 1  # type: ignore[attr-defined]
    a2.emulator.link(3, up=False)
    assert (watcher.event()["assertion"], _records(a2)) == (1, ["DOWN", "UP"])
    assert _ask(a2, "-i 3 -stat -g") == frozen
    a2.emulator.link(3, up=True)
    assert watcher.event()["assertion"] == 0
    wait_until(lambda: a2.driver.codes(3) == [])
    assert a2.driver.network_health(3) == (0, 0)
    assert _ask(a2, "-i 3 -link -g") == "link status: UP\n"
    assert _records(a2) == ["UP", "DOWN", "UP"]
    assert "mac_rx_fcs_err_pkt_num:3\n" in _ask(a2, "-i 3 -stat -g")


def _records(server: Server) -> list[str]:
    lines = _ask(server, "-i 3 -link_stat -g").splitlines()
    when = r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}"
    assert re.fullmatch(rf"\[devid 3\]current time        : {when}", lines[0])
    records = [
        re.fullmatch(rf"\[devid 3\]    {when}    LINK (UP|DOWN)", line) for line in lines[4:]
    ]
    words = [record[1] for record in records if record is not None]
    assert len(words) == len(records) <= 10
    ups = int(lines[1].removeprefix("[devid 3]link up count       : "))
    downs = int(lines[2].removeprefix("[devid 3]link down count     : "))
    assert lines[3] == "[devid 3]link change records :"
    assert len(words) == min(ups + downs, 10)
    return words


def test_only_ten_records_are_kept(a2: Server) -> None:
    for _ in range(8):
        a2.emulator.link(3, up=False)
        a2.emulator.link(3, up=True)
    assert _records(a2) == ["UP", "DOWN"] * 5


def test_a_code_takes_the_link_along(a2: Server) -> None:
    a2.emulator.occur(3, LINK_DOWN)
    assert _ask(a2, "-i 3 -link -g") == "link status: DOWN\n"
    a2.emulator.recover(3, LINK_DOWN)
    assert _ask(a2, "-i 3 -link -g") == "link status: UP\n"


@pytest.mark.slow
def test_a_change_without_an_event(a2: Server, watchers: Watchers) -> None:
    watcher = watchers.start(a2)
    a2.emulator.link(3, up=False, quietly=True)
    wait_until(lambda: a2.driver.codes(3) == [LINK_DOWN])
    a2.emulator.link(3, up=True, quietly=True)
    wait_until(lambda: a2.driver.codes(3) == [])
    a2.emulator.lose_everything_next()
    a2.emulator.link(4, up=False)
    assert _ask(a2, "-i 4 -link -g") == "link status: DOWN\n"
    a2.emulator.link(4, up=True)
    assert _ask(a2, "-i 4 -link -g") == "link status: UP\n"
    assert a2.driver.codes(4) == []
    a2.emulator.occur(5, LINK_DOWN)
    assert watcher.event()["deviceid"] == 5


def test_the_tool_itself_takes_a_link_down(a2: Server, watchers: Watchers) -> None:
    watcher = watchers.start(a2)
    status, stdout, _ = _run(a2, "-i 3 -link -s down", "n\n")
    assert (status, "(y/n)" in stdout) == (22, True)
    assert _ask(a2, "-i 3 -link -g") == "link status: UP\n"
    for given in ("y\n", ""):
        status, stdout, _ = _run(a2, "-i 3 -link -s down", given)
        assert (status, stdout.endswith("\nCmd executed successfully!\n")) == (0, True)
        assert watcher.event()["code"] == LINK_DOWN
        assert _ask(a2, "-i 3 -net_health -g") == "net health status: Fault\n"
        assert _ask(a2, "-i 3 -cfg recovery") == "Cmd executed successfully!\n"
        assert watcher.event()["assertion"] == 0
        assert _ask(a2, "-i 3 -net_health -g") == "net health status: Success\n"


def test_a_dropped_card(a2: Server) -> None:
    a2.emulator.drop(3)
    assert _run(a2, "-i 3 -link -g") == (3, "", "Get device health status failed!\n")


def test_all_chips_of_an_a3(a3: Server) -> None:
    a3.emulator.link(15, up=False)
    assert _ask(a3, "-i 15 -link -g") == "link status: DOWN\n"
    assert a3.driver.network_health(7, 1) == (0, 5)


def test_reset_brings_links_up_silently(a2: Server) -> None:
    a2.emulator.link(3, up=False)
    a2.emulator.reset()
    assert _ask(a2, "-i 3 -link -g") == "link status: UP\n"
    assert _records(a2) == ["UP"]
