"""What ``vigil status`` does with answers that are odd, and on odd terminals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from tests.parts.deadlines import patience
from tests.vigil.stand import AGENT, AT_MS, Stand, vigil
from tests.vigil.verbs import aggregator
from vigil.reports.times import ago, since


def test_an_agent_of_another_release_is_read(stand: Stand) -> None:
    stand.body = json.dumps(AGENT).encode()
    status, output, _ = vigil(stand, "status")
    assert status == 1
    assert b"agent of node-1, version 9.9" in output


@pytest.mark.parametrize(
    ("status", "body", "length", "message"),
    [
        (200, b"<html>", None, "is not that of a daemon of this version"),
        (200, b'{"node": 5}', None, "is not that of a daemon of this version"),
        (200, b"[" * 100_000, None, "is not that of a daemon of this version"),
        (200, b'{"node"', 100, "gives no answer"),
        (500, b"\x1b[31mred", None, "answered 500: [31mred"),
        (404, b"none", None, "/api/v1/nodes answered 404"),
    ],
)
def test_an_answer_that_is_none_is_named(
    stand: Stand, status: int, body: bytes, length: int | None, message: str
) -> None:
    stand.status, stand.body, stand.length = status, body, length
    code, output, errors = vigil(stand, "status")
    assert (code, output) == (3, b"")
    assert message in errors


def test_no_escape_of_a_daemon_reaches_the_terminal(stand: Stand) -> None:
    bad = "\x1b]0;x\x07\u202enode"
    stand.answers["/api/v1/status"] = AGENT | {"driver": {"trouble": bad}, "node": bad}
    _, output, _ = vigil(stand, "status")
    assert not any(letter in output.decode() for letter in "\x1b\x07\u202e")


@pytest.mark.parametrize("columns", [1, 40])
def test_lines_are_no_wider_than_the_terminal(stand: Stand, columns: int) -> None:
    stand.body = json.dumps(AGENT).encode()
    _, output, _ = vigil(stand, "status", COLUMNS=str(columns), TERM="dumb")
    assert max(map(len, output.decode().splitlines())) <= max(columns, 20)


@pytest.mark.slow
def test_a_terminal_without_utf_8_gets_what_it_can_show(stand: Stand) -> None:
    stand.body = json.dumps(AGENT).encode()
    done = subprocess.run(
        [sys.executable, "-m", "vigil", "faults", "--lang", "zh", "--server", stand.url],
        capture_output=True,
        env=os.environ | {"PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"},
        timeout=patience(60),
        check=False,
    )
    assert done.returncode == 1
    assert b"HBM???" in done.stdout


@pytest.mark.parametrize(
    ("age_ms", "text"),
    [
        (0, "0 s ago"),
        (59_999, "59 s ago"),
        (60_000, "1 min ago"),
        (7_200_000, "2 h ago"),
        (200_000_000, "2 d ago"),
        (-3_600_000, "in 1 h"),
    ],
)
def test_ages_are_in_one_unit(age_ms: int, text: str) -> None:
    assert ago(AT_MS - age_ms, AT_MS) == text


def test_the_date_is_given_where_it_is_another() -> None:
    assert since(AT_MS - 60_000, AT_MS, utc=True) == "1 min ago (21:33:29 UTC)"
    day = datetime.fromtimestamp(AT_MS / 1000 - 86_400, UTC)
    assert since(AT_MS - 86_400_000, AT_MS, utc=True) == f"1 d ago ({day:%Y-%m-%d} 21:34:29 UTC)"
    assert since(10**18, AT_MS, utc=True) == "at an unknown time"


def test_one_node_of_an_aggregator_is_asked_for_by_name(stand: Stand) -> None:
    stand.answers = aggregator()
    status, output, _ = vigil(stand, "status", "node-1", COLUMNS="300")
    assert status == 1
    assert b"80E18402  train     SeparateNPU" in output
    assert sorted(stand.asked) == [
        "/api/v1/leader",
        "/api/v1/liveness",
        "/api/v1/nodes/node-1",
        "/api/v1/status",
        "/readyz",
    ]
