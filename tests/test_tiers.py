"""The marker of a tier follows from fixtures; a unit test that uses more than it may fails."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.parts.tree import ROOT, files
from tests.tiers import mark_tiers
from tests.unit import UNIT

if TYPE_CHECKING:
    from pathlib import Path

REFUSED = pytest.fail.Exception
# For documentation: no machine has this address.
ELSEWHERE = ("192.0.2.1", 80)


def parts_of(request: pytest.FixtureRequest, marks: tuple[str, ...]) -> set[str]:
    """Return the parts of ``make test`` that a test is in if it has these marks alone."""
    request.node.own_markers.clear()
    for mark in marks:
        request.node.add_marker(mark)
    mark_tiers([request.node])
    return {marker.name for marker in request.node.iter_markers()} & {"computing", "waiting"}


@pytest.mark.slow
def test_the_document_lists_each_file_that_skips_tests_of_other_users() -> None:
    skips = re.compile(r"@only_root\(|= only_root\(|fuse import .*\bmounts\b|skip\(.only root")
    paths = {path for path in files("*.py") if skips.search((ROOT / path).read_text("utf-8"))}
    document = (ROOT / "docs/tests.md").read_text("utf-8")
    section = document.partition("## Any user")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `(\S+)` \|", section, re.MULTILINE)
    assert sorted(f"tests/{path}" for path in listed) == sorted(paths - {"tests/parts/fuse.py"})


def test_a_program_that_no_machine_has_by_itself_is_refused() -> None:
    with pytest.raises(REFUSED, match=r"test_a_program.* starts .*env, which a unit test may not"):
        subprocess.run(["env"], check=True)


async def test_a_program_is_refused_by_asyncio_too() -> None:
    with pytest.raises(REFUSED, match="starts"):
        await asyncio.create_subprocess_exec("env")


def test_python_may_be_started() -> None:
    assert subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True).stdout == b"1\n"


def test_a_connection_to_another_machine_is_refused() -> None:
    with socket.socket() as one, pytest.raises(REFUSED, match=r"connects to 192\.0\.2\.1"):
        one.connect(ELSEWHERE)


def test_a_connection_to_this_machine_is_allowed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()


def test_a_test_that_the_makefile_would_not_run_alone_is_an_error(
    request: pytest.FixtureRequest,
) -> None:
    request.node.add_marker("alone")
    source = request.node.path.read_text(encoding="utf-8")
    assert f"mark.{'alone'}" not in source
    with pytest.raises(pytest.UsageError, match="alone"):
        mark_tiers([request.node])


def test_a_unit_test_that_make_unit_would_leave_out_is_an_error(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    assert "tests/test_tiers.py" in UNIT.files()
    mark_tiers([request.node])
    request.node.path = tmp_path / "test_of_another_tier.py"
    request.node.path.write_text("pytestmark = pytest.mark.server\n")
    with pytest.raises(pytest.UsageError, match=r"tests/unit\.py leaves out"):
        mark_tiers([request.node])


@pytest.mark.parametrize(
    ("marks", "part"),
    [
        ((), "computing"),
        (("slow",), "computing"),
        (("slow", "server"), "waiting"),
        (("apiserver",), "waiting"),
        (("daemon",), "waiting"),
    ],
)
def test_a_test_with_a_server_or_a_daemon_is_of_the_part_that_waits(
    request: pytest.FixtureRequest, marks: tuple[str, ...], part: str
) -> None:
    assert parts_of(request, marks) == {part}


@pytest.mark.parametrize(
    ("marks", "part"),
    [((), "computing"), (("slow",), "waiting"), (("slow", "looptime"), "computing")],
)
async def test_a_slow_coroutine_in_real_time_is_of_the_part_that_waits(
    request: pytest.FixtureRequest, marks: tuple[str, ...], part: str
) -> None:
    assert parts_of(request, marks) == {part}


@pytest.mark.parametrize("fixture", ["broker", "built", "running_control_plane", "vigil"])
def test_a_unit_test_with_a_fixture_that_starts_a_program_is_an_error(
    request: pytest.FixtureRequest, fixture: str
) -> None:
    mark_tiers([request.node])
    request.node.fixturenames = [*request.node.fixturenames, fixture]
    with pytest.raises(pytest.UsageError, match=f"its fixture {fixture} needs a tier"):
        mark_tiers([request.node])
