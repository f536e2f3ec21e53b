"""Runs all situations on one emulated node with an agent and an aggregator, and records them."""

from __future__ import annotations

import getpass
import http.client
import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agent.config import AgentConfiguration
from agent.pages.routes import OPERATIONS as AGENT_OPERATIONS
from aggregator.api.operations import OPERATIONS as AGGREGATOR_OPERATIONS
from aggregator.config import AggregatorConfiguration
from elastic.config import ElasticConfiguration
from tests.end_to_end.node import Node
from tests.outside.normal import normal, normal_json, normal_metrics
from tests.outside.situations import AFTER, BEFORE, FAULTS, RUNNING
from tests.parts.configuration_keys import leaves
from tests.parts.deadlines import patience, wait_until
from tests.parts.places import Folder
from tests.parts.tree import ROOT
from tests.parts.verbs import run_verb

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from service.pages.operations import Operation
    from tests.outside.situations import Call

_UP_SECONDS = 60.0
_COLUMNS = "1000"
"""So wide that no line is wrapped: where it breaks depends on the length of times."""


class Recorder:
    """The recordings of one run. ``built`` has the emulated driver, ``directory`` is empty."""

    def __init__(self, directory: Path, built: Path) -> None:
        self._directory, self._built = directory, built
        self._places = {
            name: str(directory / name) for name in ("store", "empty", "nothing", "aggregator")
        } | {
            "agent": str(directory / "node" / "state"),
            "emulator": str(directory / "node" / "emulator"),
            "repository": str(ROOT),
        }
        self._shown = {path: f"<{name}>" for name, path in self._places.items()} | {
            str(directory): "<directory>",
            str(built): "<built>",
            socket.gethostname(): "<host>",
            f"{getpass.getuser()}@": "<user>@",
        }
        self._texts: dict[str, list[str]] = {}

    def record(self) -> dict[str, str]:
        """Run everything; return the text of each recording by its name."""
        for name in ("store", "empty", "nothing"):
            (self._directory / name).mkdir()
        self._run(BEFORE)
        with ExitStack() as ends:
            node = Node(self._directory / "node", self._built, Folder(self._directory / "store"))
            ends.callback(node.close)
            node.start()
            aggregator = self._start_aggregator()
            ends.callback(aggregator.wait)
            ends.callback(aggregator.kill)
            node.healthy()
            node.ready()
            self._wait_for_publication()
            for call, text in FAULTS.items():
                self._run((call,))
                self._wait_for(text)
            self._run(RUNNING)
            self._pages("agent", AGENT_OPERATIONS)
            self._pages("aggregator", AGGREGATOR_OPERATIONS)
            node.stop()
            aggregator.terminate()
            aggregator.wait()
            self._run(AFTER)
        for name, model in (
            ("agent", AgentConfiguration),
            ("aggregator", AggregatorConfiguration),
            ("elastic", ElasticConfiguration),
        ):
            lines = [f"{key} = {_default(default)}" for key, default in leaves(model)]
            self._texts[f"configuration-{name}"] = ["\n".join(lines)]
        return {name: "\n".join(texts) + "\n" for name, texts in self._texts.items()}

    def _start_aggregator(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "vigil", "aggregator", "--listen", "127.0.0.1:0"),
                *("--store", f"directory:{self._places['store']}"),
                *("--state-dir", self._places["aggregator"]),
            ],
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _run(self, calls: Iterable[Call]) -> None:
        for call in calls:
            words = [word.replace("{_}", " ") for word in call.arguments.split()]
            given = [word.format(**self._places) if "{" in word else word for word in words]
            options = ["--utc"] if call.verb in _WITH_UTC else []
            if call.verb in _DAEMONS:
                status, shown, errors = _run_process(given)
            else:
                status, output, errors = run_verb(
                    *given, *options, text=call.text, COLUMNS=_COLUMNS, TZ="UTC"
                )
                shown = output.decode()
            is_json = "--json" in given and status in (0, 1) and shown.startswith(("{", "["))
            self._texts.setdefault(call.verb, []).append(
                f"$ vigil {call.arguments}\n"
                f"exit status {status}\n"
                f"{(normal_json if is_json else normal)(shown, self._shown)}\n"
                f"{normal(errors, self._shown)}".rstrip()
                + "\n"
            )

    def _wait_for(self, text: str) -> None:
        """Wait until the status of each daemon, and that of their documents, has ``text``."""
        nothing, store = self._places["nothing"], f"directory:{self._places['store']}"
        for options in (
            ("--state-dir", self._places["agent"]),
            ("--state-dir", self._places["aggregator"]),
            ("--state-dir", nothing, "--store", store),
        ):
            wait_until(partial(_shows, text, options), partial(_status, options), _UP_SECONDS)
        self._wait_for_publication()

    def _wait_for_publication(self) -> None:
        """Wait until the journal has the last publication, which it gets after the document."""
        socket_path = Path(self._places["agent"]) / "agent.sock"

        def is_last() -> bool:
            entries = json.loads(_get(socket_path, "/api/v1/journal"))["entries"]
            # A busy disk adds gaps, each with a snapshot.
            kinds = [entry["kind"] for entry in entries]
            rows = [kind for kind in kinds if kind not in ("gap", "snapshot")]
            return rows[-1:] == ["publication"]

        wait_until(is_last, "the journal ends with a publication", _UP_SECONDS)

    def _pages(self, daemon: str, operations: Iterable[Operation]) -> None:
        """Record what a daemon serves, except for streams and for pages of one thing."""
        path = Path(self._places[daemon]) / f"{daemon}.sock"
        self._texts[f"metrics-{daemon}"] = [normal_metrics(_get(path, "/metrics"), self._shown)]
        schema = _get(path, "/api/v1/openapi.json")
        self._texts[f"openapi-{daemon}"] = [normal_json(schema, self._shown)]
        pages = [
            operation.path
            for operation in operations
            if operation.content == "application/json" and "{" not in operation.path
        ]
        self._texts[f"pages-{daemon}"] = [
            f"GET {page}\n{normal_json(_get(path, page), self._shown)}\n" for page in pages
        ]


_DAEMONS = ("agent", "aggregator", "elastic")
"""They write errors to the descriptor, as they do while they run, so not in this process."""
_WITH_UTC = ("explain", "faults", "jobs", "status", "timeline")


def _default(default: object) -> str:
    return "<required>" if default is ... else repr(default)


def _environment() -> dict[str, str]:
    """Return the environment without what means something to ``vigil``."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("VIGIL_", "KUBE")) and name != "NODE_NAME"
    }


def _status(options: Sequence[str]) -> str:
    return run_verb("status", *options)[1].decode()


def _shows(text: str, options: Sequence[str]) -> bool:
    return text in _status(options)


def _run_process(arguments: Sequence[str]) -> tuple[int, str, str]:
    ended = subprocess.run(
        [sys.executable, "-m", "vigil", *arguments],
        env=_environment() | {"COLUMNS": _COLUMNS},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=patience(_UP_SECONDS),
        check=False,
    )
    return ended.returncode, ended.stdout, ended.stderr


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=30)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))


def _get(path: Path, page: str) -> str:
    with closing(_Connection(path)) as connection:
        connection.request("GET", page)
        return connection.getresponse().read().decode()
