"""Daemons of the product as processes: started by their command, asked, killed and stopped.

The hardware of an agent comes from a driver: that of the emulator (``tests/end_to_end/node.py``) or
that of the acceptance tests (``tests/acceptance/daemons.py``).
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from abc import ABC, abstractmethod
from contextlib import closing
from typing import TYPE_CHECKING, Any

from tests.parts.deadlines import patience
from tests.parts.processes import Running

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from http.client import HTTPConnection
    from pathlib import Path

    from tests.parts.places import Place

_STOP_SECONDS = 10.0


def environment_without(*prefixes: str) -> dict[str, str]:
    """Return the environment without variables of the product, of a cluster, and of a node.

    Variables that begin with one of ``prefixes`` are left out, too.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("VIGIL_", "KUBE", "NODE_NAME", *prefixes))
    }


class Daemon(ABC):
    """A verb that runs until it is stopped. What a test sets counts from the next start on."""

    def __init__(
        self, command: Sequence[str | Path], verb: str, directory: Path, place: Place
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.verb = verb
        self.place = place
        self.state_dir = directory / "state"
        self.log = directory / f"{verb}.log"
        self.options: list[str] = []
        self.environment = environment_without()
        self.output: int | None = None
        """A descriptor that takes what it prints, in place of ``log``."""
        self.working_directory: Path | None = None
        """That of this process where it is not set."""
        self.before_exec: Callable[[], None] | None = None
        self._command = command
        self._process: Running | None = None

    @property
    def process(self) -> Running:
        """Return the process that was started last."""
        assert self._process is not None
        return self._process

    @property
    def runs(self) -> bool:
        """Return whether the process was started and has not ended."""
        return self._process is not None and self._process.status is None

    def arguments(self) -> list[str]:
        """Return the arguments that follow the verb."""
        return [*self.place.options, "--state-dir", str(self.state_dir), *self.options]

    def start(self, command: Sequence[str | Path] | None = None) -> None:
        """Start it, by another command where a test has its own; does not wait for anything."""
        self._process = Running(
            [*(command or self._command), self.verb, *self.arguments()],
            self.log,
            self.environment,
            self.output,
            self.before_exec,
            self.working_directory,
        )

    def kill(self) -> None:
        """Kill the process with SIGKILL and wait for its end."""
        self.process.kill()

    def stop(self) -> tuple[int, float]:
        """Stop the process with SIGTERM; return its exit status and the duration (s)."""
        begin = time.monotonic()
        self.process.signal(signal.SIGTERM)
        status = self.process.wait(patience(_STOP_SECONDS))
        return status, time.monotonic() - begin

    def close(self) -> None:
        """End it if it still runs."""
        if self.runs:
            self.kill()

    def logged(self) -> str:
        """Return the whole log."""
        return self.log.read_text()

    @abstractmethod
    def connection(self) -> HTTPConnection:
        """Return a connection to its pages."""

    def ask(self, path: str) -> tuple[int, Any]:
        """Read a page; return its status and content, decoded if it is JSON."""
        with closing(self.connection()) as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read().decode()
        is_json = "json" in (response.getheader("Content-Type") or "")
        return response.status, json.loads(body) if is_json else body

    def status(self) -> Any:
        """Return the answer of ``/api/v1/status``."""
        return self.ask("/api/v1/status")[1]

    def journal(self, kind: str) -> list[Any]:
        """Return the bodies of all rows of a kind in the journal of an agent, in order."""
        with closing(sqlite3.connect(self.state_dir / "journal.sqlite")) as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'rows'").fetchall():
                return []
            rows = connection.execute(
                "SELECT body FROM rows WHERE kind = ? ORDER BY sequence", (kind,)
            ).fetchall()
        return [json.loads(row[0]) for row in rows]

    def changes(self) -> list[Any]:
        """Return all changes in the journal of an agent, in order."""
        return [change for row in self.journal("changes") for change in row]

    def assertions(self, code: str) -> list[str]:
        """Return the assertions of all reports about a code, in the order of the journal."""
        return [
            report["assertion"]
            for reports in self.journal("reports")
            for report in reports
            if report.get("code") == code
        ]
