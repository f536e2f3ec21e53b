"""The log, written by a real process to a real pipe or socket."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import logging
from service.log import set_up_logging
set_up_logging()
log = logging.getLogger("agent.daemon")
log.debug("nobody reads this")
log.info("begins")
log.warning("two\\nlines")
try:
    raise ValueError("<0>a strange code")
except ValueError as error:
    log.critical("ends: %r", error, exc_info=error)
"""
STAMPED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z [A-Z]+ agent\.daemon: ")
ROOT = Path(__file__).parents[2]


def written(kind: str, *, names_it: bool, program: tuple[str, ...] = ("-c", PROGRAM)) -> list[str]:
    """What a process writes whose standard error is a ``kind``; ``names_it``: as systemd does."""
    if kind == "socket":
        reader, writer = (one.detach() for one in socket.socketpair())
    else:
        reader, writer = os.pipe()
    status = os.fstat(writer)
    inode = status.st_ino if names_it else status.st_ino + 1
    environment = os.environ | {"JOURNAL_STREAM": f"{status.st_dev}:{inode}"}
    process = subprocess.Popen(
        [sys.executable, *program],
        stderr=writer,
        env=environment,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
    )
    os.close(writer)
    with os.fdopen(reader, "rb") as everything:
        said = everything.read().decode()
    process.wait(10)
    return said.splitlines()


@pytest.mark.parametrize("kind", ["socket", "pipe"])
def test_in_the_journal_each_line_has_its_priority_and_no_time(kind: str) -> None:
    lines = written(kind, names_it=True)
    assert lines[:4] == [
        "<6>agent.daemon: begins",
        "<4>agent.daemon: two",
        "<4>lines",
        "<2>agent.daemon: ends: ValueError('<0>a strange code')",
    ]
    assert lines[4] == "<2>Traceback (most recent call last):"
    assert lines[-1] == "<2>ValueError: <0>a strange code"
    assert all(line.startswith("<2>") for line in lines[4:])


def test_elsewhere_each_message_is_one_line_with_its_time() -> None:
    lines = written("pipe", names_it=False)
    assert [STAMPED.sub("", line) for line in lines[:2]] == ["begins", "two\\nlines"]
    assert len(lines) == 3
    assert all(STAMPED.match(line) for line in lines)
    assert "Traceback" in lines[2]


def test_why_a_program_ends_is_an_error_in_the_journal() -> None:
    program = ("-m", "vigil", "agent", "--node-name", "A_B", "--listen", "nowhere")
    lines = written("socket", names_it=True, program=program)
    assert lines[0].startswith("<3>vigil: vigil agent: 2 problem(s)")
    assert len(lines) == 3
    assert all(line.startswith("<3>  --") for line in lines[1:])
