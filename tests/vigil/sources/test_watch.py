"""``--watch``: a change is shown soon, and the end is clean."""

from __future__ import annotations

import json
import os
import pty
import queue
import signal
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING

import pytest

from tests.parts.deadlines import nothing_happens_for, patience, wait_until
from tests.vigil.stand import AGENT, AT_MS, LEADER, Stand
from tests.vigil.verbs import aggregator
from vigil.daemon_client import DaemonClient
from vigil.sources.daemon import DaemonSource
from vigil.sources.watch import Output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from vigil.reports.explanation import NodeExplanation
    from vigil.reports.job_report import JobReport
    from vigil.reports.status_report import StatusReport

_SECONDS = 30.0


class Watching:
    """A verb that watches a stand-in; its output is a file."""

    def __init__(
        self, stand: Stand, output: Path, *arguments: str, option: str = "--watch"
    ) -> None:
        self._output = output
        clean = {k: v for k, v in os.environ.items() if not k.startswith("VIGIL_")}
        with output.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "vigil", *arguments, option, "--server", stand.url],
                stdout=file,
                stderr=subprocess.STDOUT,
                env=clean | {"LC_ALL": "C.UTF-8"},
            )

    def lines(self) -> list[str]:
        return self._output.read_text().splitlines()

    def wait(self, happened: Callable[[], bool]) -> float:
        """Wait until ``happened``; return the seconds it took."""
        begin = time.monotonic()
        wait_until(happened, lambda: self.lines(), _SECONDS, 0.005)
        return time.monotonic() - begin

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(patience(_SECONDS))


@pytest.mark.parametrize(
    "report",
    [
        lambda source: source.report(None),
        lambda source: source.report("node-1"),
        lambda source: source.explanation("node-1", ""),
        lambda source: source.jobs(),
    ],
    ids=["cluster", "node", "explanation", "jobs"],
)
def test_a_state_is_a_new_one_where_more_than_its_time_is_another(
    stand: Stand, report: Callable[[DaemonSource], StatusReport | NodeExplanation | JobReport]
) -> None:
    source = DaemonSource(DaemonClient(stand.url, _SECONDS))
    later = LEADER | {"at_ms": AT_MS + 1000}
    follower = {"at_ms": AT_MS, "leader": {"role": "follower", "leads": False, "holder": "b"}}
    keys = []
    for leader in (LEADER, later, follower):
        stand.answers = aggregator() | {"/api/v1/leader": leader}
        keys.append(Output(report(source), lambda _: (), well=False).key)
    source.close()
    assert keys[0] == keys[1]
    assert keys[0] != keys[2]


@pytest.fixture
def watching(stand: Stand, tmp_path: Path) -> Iterator[Watching]:
    stand.answers = {"/api/v1/status": AGENT}
    watching = Watching(stand, tmp_path / "output", "faults", "--json")
    try:
        watching.wait(lambda: len(watching.lines()) == 1)
        yield watching
    finally:
        watching.process.kill()
        watching.process.wait()


@pytest.mark.slow
def test_each_change_is_one_document_and_ctrl_c_ends_it(stand: Stand, watching: Watching) -> None:
    stand.answers["/api/v1/status"] = AGENT | {"at_ms": AGENT["at_ms"] + 1000}
    nothing_happens_for(1, because="the daemon is asked several times")
    assert len(watching.lines()) == 1, "the time alone is no change"
    stand.answers["/api/v1/status"] = AGENT | {"faults": []}
    watching.wait(lambda: len(watching.lines()) == 2)
    assert [len(json.loads(line)["faults"]) for line in watching.lines()] == [1, 0]
    assert watching.interrupt() == 0
    assert len(watching.lines()) == 2


@pytest.mark.slow
def test_an_event_of_the_stream_is_followed_by_one_question(stand: Stand, tmp_path: Path) -> None:
    stand.answers = {"/api/v1/status": AGENT}
    stand.events = queue.SimpleQueue()
    watching = Watching(stand, tmp_path / "output", "faults", "--json")
    try:
        watching.wait(lambda: "/api/v1/stream" in stand.asked)
        begin, before = time.monotonic(), len(stand.asked)
        nothing_happens_for(1.5, because="the daemon would be asked every second")
        asked = stand.asked[before:]
        assert len(asked) <= 2 + (time.monotonic() - begin) / 1.0, "it is not asked all the time"
        stand.answers["/api/v1/status"] = AGENT | {"faults": []}
        stand.events.put(b"event: change\ndata: {}\n\n")
        watching.wait(lambda: len(watching.lines()) == 2)
        assert watching.interrupt() == 0
    finally:
        watching.process.kill()
        watching.process.wait()


@pytest.mark.slow
def test_a_daemon_that_goes_away_and_returns_is_shown(stand: Stand, watching: Watching) -> None:
    good = stand.answers
    stand.answers, stand.status = {}, 500
    watching.wait(lambda: len(watching.lines()) == 2)
    assert "answered 500" in json.loads(watching.lines()[1])["error"]
    stand.answers = good
    watching.wait(lambda: len(watching.lines()) == 3)
    assert json.loads(watching.lines()[2])["faults"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verb", "option", "begin"), [("status", "--watch", ""), ("timeline", "--follow", "vigil: ")]
)
def test_a_daemon_that_goes_away_is_shown_in_chinese(
    stand: Stand, tmp_path: Path, verb: str, option: str, begin: str
) -> None:
    stand.answers = aggregator()
    watching = Watching(stand, tmp_path / "text", verb, "--lang", "zh", option=option)
    try:
        watching.wait(lambda: len(watching.lines()) > 1)
        stand.answers, stand.status, stand.body = {}, 500, b"broken"
        watching.wait(lambda: any("broken" in line for line in watching.lines()))
        (text,) = (line for line in watching.lines() if "broken" in line)
        assert text.startswith(f"{begin}{stand.url}：")
        assert text.endswith(" 应答 500：broken")
        assert watching.interrupt() == 0
    finally:
        watching.process.kill()
        watching.process.wait()


@pytest.mark.slow
def test_without_a_terminal_a_state_comes_behind_its_time(stand: Stand, tmp_path: Path) -> None:
    stand.answers = {"/api/v1/status": AGENT}
    watching = Watching(stand, tmp_path / "text", "status", "--utc")
    watching.wait(lambda: len(watching.lines()) > 2)
    assert watching.interrupt() == 0
    first, second, *_ = watching.lines()
    assert first.endswith(" UTC")
    assert second.startswith("node-1 is not well")
    assert not any("\x1b" in line for line in watching.lines())


@pytest.mark.slow
def test_a_first_question_without_an_answer_ends_it(stand: Stand, tmp_path: Path) -> None:
    stand.status = 500
    watching = Watching(stand, tmp_path / "none", "status")
    assert watching.process.wait(patience(_SECONDS)) == 3


@pytest.mark.slow
def test_on_a_terminal_the_newest_state_is_drawn_on_the_whole_screen(stand: Stand) -> None:
    many = [AGENT["faults"][0] | {"subject": f"chip {n}", "device": f"D-{n}"} for n in range(30)]
    stand.answers = {"/api/v1/status": AGENT | {"faults": many}}
    own, other = pty.openpty()
    termios.tcsetwinsize(other, (10, 80))
    clean = {k: v for k, v in os.environ.items() if k not in {"LINES", "COLUMNS"}}
    environment = clean | {"TERM": "xterm", "LC_ALL": "C.UTF-8"}
    arguments = [sys.executable, "-m", "vigil", "faults", "--watch", "--server", stand.url]
    process = subprocess.Popen(
        arguments, stdin=other, stdout=other, stderr=other, env=environment, start_new_session=True
    )
    os.close(other)
    shown = b""
    try:
        while b"more lines" not in shown:
            shown += os.read(own, 4096)
        stand.answers = {"/api/v1/status": AGENT | {"faults": []}}
        while b"no fault holds" not in shown:
            shown += os.read(own, 4096)
        process.send_signal(signal.SIGINT)
        assert process.wait(patience(_SECONDS)) == 0
    finally:
        process.kill()
        process.wait()
        os.close(own)
    assert shown.startswith(b"\x1b[H\x1b[2J")
    first = shown.split(b"\x1b[H\x1b[2J")[1]
    assert first.count(b"\n") == 9, "the last row of the terminal stays free"
