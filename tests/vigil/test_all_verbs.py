"""What holds for every verb that shows what a daemon knows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from itertools import product
from pathlib import Path
from urllib.parse import urlencode

import pytest
import typer.core
import typer.main

from tests.parts.deadlines import patience
from tests.parts.examples import mostly_slow
from tests.parts.verbs import columns_of, run_verb
from tests.vigil.stand import AT_MS, LEADER, Stand, vigil
from tests.vigil.verbs import LATER, VERBS, aggregator
from vigil.main import app
from vigil.sources import sources

_OPTIONS = {"--json", "--server", "--state-dir", "--kubeconfig", "--store", "--utc", "--lang"}
_FOR_PROGRAMS = ("advise", "lint", "replay", "scan")
_BAD = "\x1b]0;x\x07\u202e\x9b31mtext\r"
_NOT_WELL = {"timeline": 0}


def options_of(verb: str) -> set[str]:
    command = typer.main.get_command(app)
    assert isinstance(command, typer.core.TyperGroup)
    called = command.get_command(typer.Context(command), verb)
    assert called is not None
    return {name for parameter in called.params for name in parameter.opts}


@pytest.fixture(params=VERBS)
def verb(request: pytest.FixtureRequest) -> str:
    """Return each verb in turn."""
    found: str = request.param
    return found


@pytest.fixture
def known(stand: Stand) -> Stand:
    stand.answers = aggregator()
    return stand


def test_each_verb_has_the_same_options(verb: str) -> None:
    assert options_of(verb) >= _OPTIONS | {LATER.get(verb, "--watch")}


@pytest.mark.parametrize("name", _FOR_PROGRAMS)
def test_the_other_verbs_for_people_have_json(name: str) -> None:
    assert "--json" in options_of(name)


def test_json_is_one_document_that_names_its_source(verb: str, known: Stand) -> None:
    status, output, errors = vigil(known, *VERBS[verb], "--json")
    assert (status, errors) == (_NOT_WELL.get(verb, 1), "")
    found = json.loads(output)
    assert found["source"] == "aggregator, which leads"
    assert found["server"] == known.url


def test_times_are_in_utc_on_demand(verb: str, known: Stand) -> None:
    _, output, _ = vigil(known, *VERBS[verb], "--utc", TZ="Asia/Shanghai")
    assert b" UTC" in output
    _, output, _ = vigil(known, *VERBS[verb], TZ="Asia/Shanghai")
    assert b" UTC" not in output


_TERMINALS: list[dict[str, str]] = [
    {"TERM": "xterm-256color", "FORCE_COLOR": "1"},
    {"NO_COLOR": "1"},
    {"TERM": "dumb"},
]


def test_no_color_reaches_the_output(verb: str, known: Stand) -> None:
    for arguments, terminal in product((VERBS[verb], (*VERBS[verb], "--nonsense")), _TERMINALS):
        _, output, errors = vigil(known, *arguments, **terminal)
        assert "\x1b" not in output.decode() + errors


@pytest.mark.parametrize("language", mostly_slow(["zh", "en"], 2))
def test_lines_fit_any_width(verb: str, known: Stand, language: str) -> None:
    for columns in (20, 40, 80):
        _, output, _ = vigil(known, *VERBS[verb], "--lang", language, COLUMNS=str(columns))
        assert max(map(columns_of, output.decode().splitlines())) <= columns


def test_control_characters_of_an_answer_reach_no_terminal(verb: str, stand: Stand) -> None:
    stand.answers = aggregator(_BAD)
    status, output, errors = vigil(stand, *VERBS[verb], COLUMNS="1000")
    assert status == _NOT_WELL.get(verb, 1)
    assert b"text" in output
    assert not set("\x1b\x07\u202e\x9b\r") & set(output.decode() + errors)


@pytest.mark.slow
def test_control_characters_of_an_argument_reach_no_terminal(verb: str, known: Stand) -> None:
    nothing = {"events": [], "next": 0, "more": False}
    known.answers[f"/api/v1/history?{urlencode({'node': _BAD, 'limit': 1})}"] = nothing
    for option in ("--lang", "--server", "--store", "--kubeconfig", "--node", "--since"):
        _, output, errors = vigil(known, *VERBS[verb], option, _BAD)
        assert not set("\x1b\x07\x9b\r") & set(output.decode() + errors)
    status, output, errors = vigil(known, verb, _BAD)
    assert (status, output) == (2, b"")
    assert not set("\x1b\x07\x9b\r") & set(errors)


def test_a_clock_that_is_an_hour_ahead_is_shown_as_such(verb: str, stand: Stand) -> None:
    stand.answers = aggregator(since_ms=AT_MS + 3_600_000)
    status, output, errors = vigil(stand, *VERBS[verb], "--utc", COLUMNS="300")
    assert (status, errors) == (_NOT_WELL.get(verb, 1), "")
    assert (b"in 1 h (22:34:29 UTC)" if verb not in _WITHOUT_AGE else b"22:34:29 UTC") in output


_WITHOUT_AGE = {"timeline"}


def test_a_follower_answers_and_is_named(verb: str, known: Stand) -> None:
    leader = {"role": "follower", "leads": False, "holder": "other"}
    known.answers["/api/v1/leader"] = LEADER | {"leader": leader}
    _, output, _ = vigil(known, *VERBS[verb], COLUMNS="300")
    assert b"answered by: aggregator, a follower of other" in output


def test_an_aggregator_that_is_not_ready_is_not_well(known: Stand) -> None:
    known.answers["/readyz"]["reasons"] = ["nodes are not read yet"]
    status, output, _ = vigil(known, "status", COLUMNS="300")
    assert status == 1
    assert b"the aggregator is not ready: nodes are not read yet" in output


@pytest.mark.parametrize("called", [("status",), ("faults",), ("explain", "node-1")])
def test_a_node_without_an_agent_of_ours_is_only_partly_known(
    called: tuple[str, ...], known: Stand
) -> None:
    known.answers["/readyz"] = {"ready": True}
    known.answers["/api/v1/liveness"]["liveness"]["problems"] = {}
    node = known.answers["/api/v1/nodes"]["nodes"][0] | {"heartbeat": "unknown"}
    known.answers["/api/v1/nodes"]["nodes"] = [node]
    known.answers["/api/v1/nodes/node-1"] = {"node": node, "because": [], "chips": []}
    known.answers["/api/v1/faults"]["faults"] = []
    status, output, _ = vigil(known, *called, COLUMNS="300")
    assert status == 1
    assert b"not known:   whether there is a live agent on node-1" in output
    assert b"is well" not in output
    assert b"is not well" not in output


@pytest.mark.parametrize("name", ["status", "faults"])
def test_a_cluster_without_a_node_is_not_well(name: str, known: Stand) -> None:
    known.answers["/readyz"] = {"ready": True}
    known.answers["/api/v1/liveness"]["liveness"]["problems"] = {}
    known.answers["/api/v1/nodes"]["nodes"] = []
    known.answers["/api/v1/faults"]["faults"] = []
    status, output, _ = vigil(known, name, COLUMNS="300")
    assert status == 1
    assert b"not known:   any node: none has a document or a heartbeat here" in output
    assert b"is well" not in output


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "gives no answer"),
        (b"", "gives no answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "gives no answer"),
        (b"HTTP/1.1 200 OK\r\n\r\n\x1b[31m", "is not that of a daemon of this version"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n{}", "daemon"),
        (b"HTTP/1.1 999999 \x1b[31m\r\n\r\n", "gives no answer"),
    ],
)
def test_an_answer_of_no_daemon_is_named(stand: Stand, raw: bytes, why: str) -> None:
    stand.raw = raw
    status, output, errors = vigil(stand, "status")
    assert (status, output) == (3, b"")
    assert stand.url in errors
    assert why in errors
    assert "\x1b" not in errors


def test_a_daemon_that_hangs_is_left(
    verb: str, stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_ANSWER_SECONDS", 0.1)
    stand.pause.clear()
    status, output, errors = vigil(stand, *VERBS[verb])
    assert (status, output) == (3, b"")
    assert f"{stand.url} gives no answer: timed out" in errors


def test_without_any_source_each_verb_names_the_remedy(verb: str, tmp_path: Path) -> None:
    status, output, errors = run_verb(*VERBS[verb], "--state-dir", str(tmp_path))
    assert (status, output) == (3, b"")
    remedy = "no daemon listens there; start the agent, or name another daemon by "
    for text in (remedy, "--server", "--kubeconfig", "--store"):
        assert text in errors


def test_an_unknown_node_is_wrong_use(verb: str, known: Stand) -> None:
    known.answers["/api/v1/history?node=nobody&limit=1"] = {"events": [], "next": 0, "more": False}
    called = {"faults": ("faults", "--node", "nobody"), "jobs": ("jobs", "--nonsense")}
    status, output, errors = vigil(known, *called.get(verb, (verb, "nobody")))
    assert (status, output) == (2, b"")
    assert errors


@pytest.mark.parametrize(
    ("option", "value", "what"),
    [
        ("--level", "Separate\x1bNPU", "is none of ManuallySeparateNPU, SeparateNPU"),
        ("--code", "nonsense", "'nonsense' is not a valid fault code"),
        ("--code", "80E1840", "is not a valid fault code"),
    ],
)
def test_a_filter_that_nothing_can_have_is_wrong_use(
    option: str, value: str, what: str, known: Stand
) -> None:
    status, output, errors = vigil(known, "faults", option, value)
    assert (status, output) == (2, b"")
    assert what in errors
    assert "\x1b" not in errors


@pytest.mark.parametrize(
    "filtered",
    [
        ("--level", "SeparateFault"),
        ("--code", "0x80e01801"),
        ("--code", "80ABCDEF"),
        ("--code", "ManuallySeparateNPU"),
        ("--code", "[0x1,1,na,na]"),
    ],
)
def test_a_filter_without_a_match_hides_no_fault(filtered: tuple[str, str], known: Stand) -> None:
    status, output, _ = vigil(known, "faults", *filtered)
    assert status == 1
    assert output.decode().splitlines()[-1] == "no fault that holds is as asked for"


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["explain 80E18402", "timeline", "status"])
def test_a_full_output_ends_with_one_line_and_status_3(verb: str, known: Stand) -> None:
    where = [] if verb.startswith("explain") else ["--server", known.url]
    command = [sys.executable, "-m", "vigil", *verb.split(), *where]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 3
    assert done.stderr == b"vigil: standard output: No space left on device\n"


@pytest.mark.slow
def test_a_closed_output_changes_no_exit_status(known: Stand) -> None:
    for verb, status in (("timeline", 0), ("status", 1)):
        command = [sys.executable, "-m", "vigil", verb, "--server", known.url]
        closed = ["sh", "-c", '"$@" >&- <&-', "sh", *command]
        done = subprocess.run(closed, stderr=subprocess.PIPE, check=False)
        assert (done.returncode, done.stderr) == (status, b"")


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_trouble(known: Stand) -> None:
    one = known.answers["/api/v1/faults"]["faults"][0]
    known.answers["/api/v1/faults"]["faults"] = [one | {"node": f"n{n}"} for n in range(5000)]
    reader, writer = os.pipe()
    running = subprocess.Popen(
        [sys.executable, "-m", "vigil", "faults", "--server", known.url],
        stdout=writer,
        stderr=subprocess.PIPE,
    )
    os.close(writer)
    os.read(reader, 10)
    os.close(reader)
    with suppress(subprocess.TimeoutExpired):
        assert running.communicate(timeout=patience(30))[1] == b""
    assert running.poll() == 1
