"""hccn_tool as a process: arguments, places, and runs while another program uses it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from contract.errors import ToolFailed, ToolInvalidOutput, ToolMissing
from dcmi_shim.hccn import tool as hccn
from dcmi_shim.hccn.tool import HccnTool
from dcmi_shim.library.discovery import VendorPaths
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from pathlib import Path

BUSY = "hccn_tool is busy, please try again."


def _tool(root: Path, text: str) -> HccnTool:
    path = root / "tools" / "hccn_tool"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return HccnTool(VendorPaths(root, True, {"PATH": "/usr/bin:/bin"}))


async def test_orders_of_arguments(tmp_path: Path) -> None:
    log = tmp_path / "log"
    tool = _tool(tmp_path, f'echo "$@" >> {log}; echo "link status: UP"')
    assert await tool.query(hccn.LINK, 3, 10) is True
    with pytest.raises(ToolInvalidOutput):
        await tool.query_a5(hccn.A5_PORT_ENABLED, 3, 10, port=(0, 4))
    assert log.read_text() == "-i 3 -link -g\n-g -port_info -i 3 -u 0 -p 4\n"


async def test_the_drivers_libraries_are_found(tmp_path: Path) -> None:
    tool = _tool(tmp_path, 'echo "link status: UP$LD_LIBRARY_PATH"; exit 3')
    (tmp_path / "lib64" / "driver").mkdir(parents=True)
    with pytest.raises(ToolFailed) as caught:
        await tool.query(hccn.LINK, 0, 10)
    assert caught.value.stdout == f"link status: UP{tmp_path}/lib64/driver:{tmp_path}/lib64\n"


@pytest.mark.slow
async def test_it_is_asked_again_while_another_program_runs_it(tmp_path: Path) -> None:
    count = tmp_path / "count"
    script = (
        f'echo x >> {count}; [ $(wc -l < {count}) -ge 3 ] && echo "link status: DOWN" && exit 0'
    )
    tool = _tool(tmp_path, f'{script}; echo "{BUSY}"; exit 11')
    assert await tool.query(hccn.LINK, 0, 10) is False
    assert len(count.read_text().splitlines()) == 3


@pytest.mark.parametrize(("text", "runs"), [(f'echo "{BUSY}"; exit 11', 4), ("exit 11", 1)])
async def test_it_gives_up_on_one_that_stays_busy(tmp_path: Path, text: str, runs: int) -> None:
    count = tmp_path / "count"
    tool = _tool(tmp_path, f"echo x >> {count}; {text}")
    began = time.monotonic()
    with pytest.raises(ToolFailed, match="exit status 11"):
        await tool.query(hccn.LINK, 0, 10)
    assert len(count.read_text().splitlines()) == runs
    assert time.monotonic() - began < patience(3)


async def test_without_a_driver_root_it_is_the_vendors(tmp_path: Path) -> None:
    tool = HccnTool(VendorPaths(None, False, {}))
    assert str(tool.path) == "/usr/local/Ascend/driver/tools/hccn_tool"
    with pytest.raises(ToolMissing, match="/absent/tools/hccn_tool: No such file"):
        await HccnTool(VendorPaths(tmp_path / "absent", False, {})).query(hccn.LINK, 0, 1)
