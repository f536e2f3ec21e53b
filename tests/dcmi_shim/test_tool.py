"""The runner of command line tools, with programs as bad as they come."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from contract.errors import ToolFailed, ToolInvalidOutput, ToolMissing, ToolSilent
from dcmi_shim.tool import MAX_OUTPUT_BYTES, Tool, check_tool, tool_environment
from tests.parts.deadlines import let_time_pass, patience, until, wait_until


def script(directory: Path, text: str, name: str = "tool") -> Path:
    path = directory / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


async def run(path: Path, *arguments: str, seconds: float = 10) -> str:
    return await Tool("tool").run(path, arguments, tool_environment(os.environ), seconds)


def alive(pid: int) -> bool:
    """Return whether the process runs; a zombie that init has not yet reaped does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


async def until_dead(pid: int) -> None:
    await until(lambda: not alive(pid), seconds=5)


async def test_a_tool_gets_a_minimal_environment(tmp_path: Path) -> None:
    path = script(tmp_path, 'echo "$0 $1 $2"; env | sort')
    environment = {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": "/a", "SECRET": "x", "LANG": "de"}
    minimal = tool_environment(environment, [tmp_path / "lib64"])
    first, *lines = (await Tool("tool").run(path, ["a b", "$HOME"], minimal, 10)).splitlines()
    assert first == f"{path} a b $HOME"
    assert [line for line in lines if line.split("=")[0] not in ("PWD", "_")] == [
        "LANG=C",
        f"LD_LIBRARY_PATH=/a:{tmp_path}/lib64",
        "PATH=/usr/bin:/bin",
    ]


async def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    assert await run(script(tmp_path, r"printf 'a\377b\000c'")) == "a\ufffdb\0c"


@pytest.mark.parametrize(
    ("text", "status", "message"),
    [
        ("echo bad >&2; echo out; exit 3", 3, "tool -g: exit status 3: bad out"),
        ("exit 11", 11, "tool -g: exit status 11: nothing printed"),
        ("kill -9 $$", -9, "tool -g: ended by signal 9: nothing printed"),
    ],
)
async def test_failures_keep_what_was_printed(
    tmp_path: Path, text: str, status: int, message: str
) -> None:
    with pytest.raises(ToolFailed) as caught:
        await run(script(tmp_path, text), "-g")
    assert (caught.value.status, str(caught.value)) == (status, message)


@pytest.mark.slow
async def test_a_tool_that_hangs_is_killed_with_all_it_started(tmp_path: Path) -> None:
    path = script(tmp_path, f"sleep 60 & echo $! $$ > {tmp_path}/pids; wait")
    seconds = patience(0.3)
    began = time.monotonic()
    with pytest.raises(ToolSilent, match=f"tool -x: no answer within {seconds:g} s; killed"):
        await run(path, "-x", seconds=seconds)
    assert time.monotonic() - began < patience(1)
    for pid in (tmp_path / "pids").read_text().split():
        await until_dead(int(pid))


async def test_process_that_a_tool_leaves_behind_delays_no_caller(tmp_path: Path) -> None:
    path = script(tmp_path, f"sleep 60 & echo $! > {tmp_path}/pid; echo done")
    began = time.monotonic()
    assert await run(path) == "done\n"
    assert time.monotonic() - began < patience(1)
    await until_dead(int((tmp_path / "pid").read_text()))


async def test_a_cancelled_run_is_killed(tmp_path: Path) -> None:
    task = asyncio.create_task(run(script(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 60")))
    await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until_dead(int((tmp_path / "pid").read_text()))


@pytest.mark.slow
async def test_endless_output_is_cut_short(tmp_path: Path) -> None:
    with pytest.raises(
        ToolInvalidOutput, match=f"more than {MAX_OUTPUT_BYTES} bytes; printed: y y"
    ):
        await run(script(tmp_path, "exec yes"))
    large = script(tmp_path, f"head -c {MAX_OUTPUT_BYTES} /dev/zero")
    assert len(await run(large)) == MAX_OUTPUT_BYTES


@pytest.mark.slow
async def test_one_run_at_a_time_and_the_deadline_begins_with_it(tmp_path: Path) -> None:
    seconds, busy = patience(0.1), tmp_path / "busy"
    path = script(tmp_path, f"mkdir {busy} || exit 1; sleep {seconds}; rmdir {busy}")
    tool = Tool("tool")
    environment = tool_environment(os.environ)
    await asyncio.gather(*(tool.run(path, [], environment, 3.5 * seconds) for _ in range(4)))


@pytest.mark.slow
async def test_a_killed_run_is_dead_before_the_next_begins(tmp_path: Path) -> None:
    tool, environment = Tool("tool"), tool_environment(os.environ)
    hanging = script(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 60")
    living = script(tmp_path, f"ps -o stat= -p $(cat {tmp_path}/pid) | grep -v Z; true", "living")
    for _ in range(5):
        with pytest.raises(ToolSilent):
            await tool.run(hanging, [], environment, patience(0.2))
        assert await tool.run(living, [], environment, 10) == ""
        # Without the number, a run was killed before it began.
        assert (tmp_path / "pid").read_text()
        (tmp_path / "pid").unlink()


@pytest.mark.slow
async def test_a_slow_loop_is_not_blamed_on_the_tool(tmp_path: Path) -> None:
    path = script(tmp_path, f"echo fine; touch {tmp_path}/ends")
    task = asyncio.create_task(run(path, seconds=0.2))
    await asyncio.sleep(0)
    # The loop stands still until the tool ends, and beyond the deadline.
    wait_until((tmp_path / "ends").exists)
    let_time_pass(patience(0.4))
    assert await task == "fine\n"


async def test_tools_that_cannot_be_run(tmp_path: Path) -> None:
    with pytest.raises(ToolMissing, match="absent"):
        await run(tmp_path / "absent")
    rubbish = tmp_path / "rubbish"
    rubbish.write_bytes(b"\x7fELF rubbish")
    rubbish.chmod(0o755)
    with pytest.raises(ToolMissing, match=r"cannot be run: .*Exec format error"):
        await run(rubbish)
    orphan = tmp_path / "orphan"
    orphan.write_text("#!/no/such/interpreter\n")
    orphan.chmod(0o755)
    with pytest.raises(ToolMissing, match=r"cannot be run: .*No such file or directory"):
        await run(orphan)


_HANGS = """
import asyncio, sys
from pathlib import Path
from dcmi_shim.tool import Tool

asyncio.run(Tool("tool").run(Path(sys.argv[1]), [], {"PATH": "/usr/bin:/bin"}, 60))
"""


@pytest.mark.slow
async def test_a_tool_that_hangs_ends_with_a_daemon_that_is_killed(tmp_path: Path) -> None:
    path = script(
        tmp_path, f"echo $$ > {tmp_path}/draft; mv {tmp_path}/draft {tmp_path}/pid\nexec sleep 60"
    )
    daemon = subprocess.Popen([sys.executable, "-c", _HANGS, str(path)])  # noqa: ASYNC220
    try:
        await until((tmp_path / "pid").exists, seconds=10)
    finally:
        daemon.kill()
        daemon.wait()
    await until_dead(int((tmp_path / "pid").read_text()))


def test_program_needs_owner_and_mode_to_be_run(tmp_path: Path) -> None:
    good = script(tmp_path, "exit 0")
    link = tmp_path / "link"
    link.symlink_to(good)
    for path in (good, link):
        check_tool(path, trust_driver=True)
    with pytest.raises(ToolMissing, match=r"is not run: .*; see --trust-driver"):
        check_tool(good, trust_driver=False)
    good.chmod(0o644)
    with pytest.raises(ToolMissing, match=r"not executable \(mode 0644\)"):
        check_tool(good, trust_driver=True)
    with pytest.raises(ToolMissing, match="not a regular file"):
        check_tool(tmp_path, trust_driver=True)
    with pytest.raises(ToolMissing, match="No such file"):
        check_tool(tmp_path / "none", trust_driver=True)
