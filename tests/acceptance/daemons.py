"""The daemons as processes, started by the installed command alone."""

from __future__ import annotations

import http.client
import json
import os
import signal
import sqlite3
import subprocess
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from tests.acceptance.places import NODES
from tests.acceptance.reading import DEVICE_PREFIX
from tests.parts.deadlines import patience, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.acceptance.hardware import Hardware
    from tests.acceptance.places import Place

_STEP_SECONDS = 0.01
_LOG_TAIL = 4000


def clean_environment() -> dict[str, str]:
    """Return the environment without variables that refer to this tree or to a cluster."""
    ours = ("VIGIL_", "KUBE", "PYTHON", "LD_LIBRARY_PATH", "NODE_NAME")
    return {key: value for key, value in os.environ.items() if not key.startswith(ours)}


def wait(happened: Callable[[], bool], what: str, seconds: float = 10.0) -> float:
    """Wait until ``happened``; the seconds it took."""
    begin = time.monotonic()
    wait_until(happened, what, seconds, _STEP_SECONDS)
    return time.monotonic() - begin


class Daemon:
    """A ``vigil`` verb that runs until it is terminated."""

    def __init__(self, vigil: Path, verb: str, directory: Path, place: Place) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.state_dir = directory / "state"
        self.log = directory / f"{verb}.log"
        self.place = place
        self.options: list[str] = []
        self.environment = clean_environment()
        self.before_exec: Callable[[], None] | None = None
        self._vigil = vigil
        self._verb = verb
        self._process: subprocess.Popen[bytes] | None = None
        self._url: tuple[str, int] | None = None
        self._log_start = 0

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """Return the process that was started last."""
        assert self._process is not None
        return self._process

    @property
    def runs(self) -> bool:
        """Return whether the process was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def arguments(self) -> list[str]:
        """Return the arguments that follow the verb."""
        return [
            *self.place.options,
            *("--state-dir", str(self.state_dir), "--listen", "127.0.0.1:0"),
            *self.options,
        ]

    def start(self) -> None:
        """Start it; waits for nothing."""
        self._url = None
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [self._vigil, self._verb, *self.arguments()],
                env=self.environment,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=self.before_exec,
            )

    def kill(self) -> None:
        """Kill the process with SIGKILL and wait for its end."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> tuple[int, float]:
        """Stop the process with SIGTERM; return its exit status and the duration (s)."""
        begin = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(patience(10))
        return status, time.monotonic() - begin

    def ended(self, seconds: float = 15.0) -> int:
        """Wait for its end; the exit status."""
        return self.process.wait(seconds)

    def close(self) -> None:
        """End it if it still runs."""
        if self.runs:
            self.kill()

    def logged(self) -> str:
        """Return the log of the process that was started last."""
        return self.log.read_bytes()[self._log_start :].decode(errors="replace")

    def ask(self, path: str) -> tuple[int, Any]:
        """Ask at ``--listen``; JSON decoded."""
        wait(self._listens, f"{self._verb} listens")
        assert self._url is not None
        with closing(http.client.HTTPConnection(*self._url, timeout=patience(5))) as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read().decode()
        is_json = "json" in (response.getheader("Content-Type") or "")
        return response.status, json.loads(body) if is_json else body

    def _listens(self) -> bool:
        for line in self.logged().splitlines():
            _, output, url = line.partition("listening on http://")
            if output:
                host, _, port = url.partition(":")
                self._url = host, int(port)
                return True
        assert self.runs, f"{self._verb} ended:\n{self.logged()[-_LOG_TAIL:]}"
        return False


class Agent(Daemon):
    """``vigil agent`` on a node's hardware."""

    def __init__(
        self, vigil: Path, directory: Path, place: Place, hardware: Hardware, name: str
    ) -> None:
        super().__init__(vigil, "agent", directory, place)
        self.hardware = hardware
        self.name = name
        self.environment["PATH"] = f"{hardware.tools}:{self.environment['PATH']}"

    def arguments(self) -> list[str]:
        root = str(self.hardware.root)
        node = ["--node-name", self.name, "--driver-root", root, "--trust-driver"]
        return [*node, *super().arguments()]

    def status(self) -> Any:
        """Return the answer of ``/api/v1/status``."""
        return self.ask("/api/v1/status")[1]

    def metrics(self) -> str:
        """Return the text of ``/metrics``."""
        text = self.ask("/metrics")[1]
        assert isinstance(text, str)
        return text

    def blind(self) -> set[int]:
        """Return the physical ids of the chips that are reported blind."""
        return {chip["chip"] for chip in self.status()["chips"] if chip["blind"]}

    def upgrades(self) -> Any:
        """Return ``UpgradeFaultReason`` of the node's document."""
        data = self.place.read(NODES, DEVICE_PREFIX + self.name)
        assert data is not None
        return json.loads(data["UpgradeFaultReason"])

    def journaled(self, code: str) -> list[str]:
        """Return the assertions of all reports about ``code`` in the journal's file, in order."""
        journal = self.state_dir / "journal.sqlite"
        with closing(sqlite3.connect(journal)) as connection:
            rows = connection.execute(
                "SELECT body FROM rows WHERE kind = 'reports' ORDER BY sequence"
            ).fetchall()
        reports = (report for row in rows for report in json.loads(row[0]))
        return [report["assertion"] for report in reports if report.get("code") == code]

    def is_journaled(self, code: str, assertion: str) -> bool:
        """Return whether the journal has an assertion of ``code``."""
        with suppress(sqlite3.OperationalError):
            return assertion in self.journaled(code)
        return False

    def shows(self, happened: Callable[[Any], bool], what: str, seconds: float = 10.0) -> float:
        """Wait until the node's document is as it should; the seconds it took."""

        def is_so() -> bool:
            shown = self.place.device_info(self.name)
            return shown is not None and happened(shown)

        try:
            return wait(is_so, what, seconds)
        except AssertionError as error:
            shown = self.place.device_info(self.name)
            raise AssertionError(f"{error}\n{shown}\n{self.logged()[-_LOG_TAIL:]}") from None

    def up(self, seconds: float = 10.0) -> float:
        """Wait until the document lists every chip."""
        everything = {f"Ascend910-{chip}" for chip in self.hardware.chips}
        return self.shows(
            lambda shown: shown.free | shown.unhealthy >= everything, "every chip shown", seconds
        )
