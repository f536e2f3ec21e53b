"""The log, written by a real process to a real pipe or socket."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.parts.deadlines import patience
from tests.parts.unread import UnreadPipe

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = """
import logging
from service.log.setup import set_up_logging
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
ROOT = Path(__file__).parents[3]


def written(kind: str, *, names_it: bool, program: tuple[str, ...] = ("-c", PROGRAM)) -> list[str]:
    """Return the lines of a process with a ``kind`` as standard error, named as by systemd."""
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
        output = everything.read().decode()
    process.wait(patience(10))
    return output.splitlines()


@pytest.mark.slow
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


JSON_PROGRAM = r"""
import logging
from service.log.setup import LogFormat, set_up_logging
set_up_logging(LogFormat.JSON, "node-1")
log = logging.getLogger("agent.faults")
log.warning('a\x1b[31m\udcff "b"\nc %s', "\u4e2d", extra={"chip": 3, "code": "80E01801"})
try:
    raise ValueError("why")
except ValueError:
    log.exception("ends")
"""


@pytest.mark.daemon
@pytest.mark.parametrize("names_it", [False, True], ids=["terminal", "journal"])
def test_json_is_one_object_a_line_whatever_the_text_holds(names_it: bool) -> None:
    lines = written("pipe", names_it=names_it, program=("-c", JSON_PROGRAM))
    first, second = map(json.loads, lines)
    assert datetime.fromisoformat(first.pop("time")).tzinfo is not None
    assert first == {
        "level": "WARNING",
        "logger": "agent.faults",
        "message": 'a\x1b[31m\udcff "b"\nc \u4e2d',
        "node": "node-1",
        "chip": 3,
        "code": "80E01801",
    }
    assert "ValueError: why" in second["exception"]
    assert "chip" not in second
    assert "\x1b" not in "".join(lines)


@pytest.mark.daemon
@pytest.mark.parametrize("names_it", [False, True], ids=["terminal", "journal"])
def test_control_characters_of_other_programs_are_question_marks(names_it: bool) -> None:
    program = (
        "import logging; from service.log.setup import set_up_logging; set_up_logging(); "
        r"logging.getLogger('kernel-log').info('a\x1b[31m\x07\x9b\u202eb\rc %s', 'd\x1b]0;e\nf')"
    )
    lines = written("pipe", names_it=names_it, program=("-c", program))
    text = "\\n".join(line.removeprefix("<6>") for line in lines)
    assert text.endswith("kernel-log: a?[31m???b?c d?]0;e\\nf")


@pytest.mark.slow
def test_why_a_program_ends_is_an_error_in_the_journal() -> None:
    program = ("-m", "vigil", "agent", "--node-name", "A_B", "--listen", "nowhere")
    lines = written("socket", names_it=True, program=program)
    assert lines[0].startswith("<3>vigil: vigil agent: 2 problems")
    assert len(lines) == 3
    assert all(line.startswith("<3>  --") for line in lines[1:])


SET_UP = """
import logging, sys
from service.log.setup import protect_standard_streams, set_up_logging
protect_standard_streams()
set_up_logging()
log = logging.getLogger("agent.daemon")
for number in range(10_000):
    log.info("line %d", number)
"""


@pytest.fixture
def pipe() -> Iterator[UnreadPipe]:
    """Yield a full pipe without a reader."""
    pipe = UnreadPipe()
    yield pipe
    pipe.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("last", "status"),
    [
        ("raise ValueError('nobody reads this')", 1),
        ("import warnings; warnings.warn('nobody reads this')", 0),
        ("import faulthandler; faulthandler.enable(); faulthandler._sigsegv()", -signal.SIGSEGV),
    ],
    ids=["traceback", "warning", "faulthandler"],
)
def test_an_end_whose_output_is_not_read_waits_for_a_second(
    last: str, status: int, pipe: UnreadPipe
) -> None:
    begin = time.monotonic()
    program = [sys.executable, "-c", SET_UP + last]
    process = subprocess.run(
        program, stderr=pipe.writer, cwd=ROOT, timeout=patience(30), check=False
    )
    assert process.returncode == status
    assert time.monotonic() - begin < patience(10)


@pytest.mark.slow
def test_oldest_unread_lines_are_kept_and_the_rest_is_counted(
    pipe: UnreadPipe,
) -> None:
    waits = """
print("logged", file=sys.__stdout__, flush=True)
sys.stdin.readline()
log.info("line %d", number + 1)
"""
    with subprocess.Popen(
        [sys.executable, "-c", SET_UP + waits],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=pipe.writer,
        cwd=ROOT,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"logged\n"
        pipe.read_on()
        process.stdin.close()
        assert process.wait(patience(10)) == 0
    lines = pipe.all_lines()
    numbers = [int(line.rpartition(" ")[2]) for line in lines if STAMPED.match(line)]
    assert 1000 < len(numbers) < 10_000
    assert numbers[:-1] == list(range(len(numbers) - 1))
    (notice,) = (line for line in lines if " WARNING service.log: " in line)
    assert f" {10_001 - len(numbers)} lines of the log dropped" in notice


@pytest.mark.slow
def test_a_reader_that_is_gone_disturbs_no_other() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.run(
        [
            sys.executable,
            "-c",
            SET_UP + "from service.log.setup import dropped_lines, flush_log\n"
            "flush_log(); print(dropped_lines(), file=sys.__stdout__)",
        ],
        stdout=subprocess.PIPE,
        stderr=writer,
        cwd=ROOT,
        timeout=patience(30),
        check=True,
    )
    os.close(writer)
    assert 0 < int(process.stdout) <= 10_000


@pytest.mark.slow
def test_a_journal_that_stands_still_is_not_waited_for() -> None:
    reader, writer = socket.socketpair()
    begin = time.monotonic()
    with reader, writer:
        process = subprocess.run(
            [sys.executable, "-c", SET_UP],
            stderr=writer.fileno(),
            cwd=ROOT,
            timeout=patience(30),
            check=False,
        )
        assert process.returncode == 0
        assert time.monotonic() - begin < patience(10)
        assert reader.recv(100).startswith(b"2")


@pytest.mark.slow
def test_others_who_have_the_same_pipe_wait_for_its_reader_as_before(pipe: UnreadPipe) -> None:
    subprocess.run([sys.executable, "-c", SET_UP], stderr=pipe.writer, cwd=ROOT, check=True)
    assert os.get_blocking(pipe.writer)
