"""One node: emulated hardware and a real ``vigil agent`` process."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dcmi_shim.emulator.control import CONTROL_LIBRARY, Emulator
from tests.parts.deadlines import patience, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.end_to_end.places import Place

HOST_CHECKS = ("FILE_SYSTEMS", "MEMORY", "KERNEL_LOG", "CLOCK")
_UP_SECONDS = 30.0
_PATIENCE_SECONDS = 30.0
"""For what is to happen, however busy the machine is; a test that judges how soon has a
limit of its own.
"""
_FOLLOWS_SECONDS = 5.0
"""For what follows at once what is seen already, in no order that anybody can rely on."""
_STEP_SECONDS = 0.05
"""Between two looks: each asks the store, which takes the API server and the test 2 ms and more."""
WITHIN_A_SECOND = 1.3
"""What must be repaired within a second, with 0.3 s for the looks of a test and their requests."""


@dataclass(frozen=True)
class Shown:
    """A device-info document, read by its readers' rules."""

    free: frozenset[str]
    unhealthy: frozenset[str]
    faults: dict[str, dict[str, str]]
    update_time: int

    def codes(self, chip: int) -> set[str]:
        """Return the codes of the chip with this physical id."""
        return set(self.faults.get(f"Ascend910-{chip}", {}))


def shown(data: dict[str, str]) -> Shown:
    """Read the data keys; the check code must be right."""
    outer = json.loads(data["DeviceInfoCfg"])
    inner = json.dumps(outer["DeviceInfo"], separators=(",", ":"), ensure_ascii=False)
    assert outer["CheckCode"] == hashlib.sha256(inner.encode()).hexdigest()
    devices = outer["DeviceInfo"]["DeviceList"]

    def names(key: str) -> frozenset[str]:
        return frozenset(filter(None, devices[key].split(",")))

    faults: dict[str, dict[str, str]] = {}
    for entry in json.loads(devices["huawei.com/Ascend910-Fault"]):
        levels = {
            code: item["fault_level"] for code, item in entry["fault_time_and_level_map"].items()
        }
        faults.setdefault(entry["npu_name"], {}).update(levels)
    return Shown(
        names("huawei.com/Ascend910"),
        names("huawei.com/Ascend910-Unhealthy"),
        faults,
        outer["DeviceInfo"]["UpdateTime"],
    )


class _SocketConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=5)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(patience(5))
        self.sock.connect(str(self._path))


class Node:
    """An agent with its own hardware, directory and document."""

    def __init__(
        self,
        directory: Path,
        built: Path,
        place: Place,
        name: str = "node-1",
        profile: str = "a2",
    ) -> None:
        self.name = name
        self.place = place
        self.document = f"mindx-dl-deviceinfo-{name}"
        self.state_dir = directory / "state"
        self.log = directory / "agent.log"
        self.driver_root = built / "driver"
        emulator_dir = directory / "emulator"
        emulator_dir.mkdir(parents=True)
        shutil.copy(built / "emulator" / CONTROL_LIBRARY, emulator_dir)
        self.emulator = Emulator(emulator_dir)
        self.emulator.start(profile)
        self.options: list[str] = []
        self.environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("VIGIL_", "KUBE")) and key != "NODE_NAME"
        } | {"VIGIL_EMULATOR_DIR": str(emulator_dir)}
        # What the machine that runs the tests suffers from is not to be seen in every test.
        self.environment |= {f"VIGIL_{check}_ENABLED": "false" for check in HOST_CHECKS}
        self.output: int | None = None
        """A descriptor that takes what the agent prints, in place of ``log``."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """Return the process of the running agent."""
        assert self._process is not None
        return self._process

    def give_bmc(self, directory: Path, period_seconds: float = 0.2) -> None:
        """Put the node's own ``ipmitool`` on its path."""
        tool = directory / "bin" / "ipmitool"
        tool.parent.mkdir()
        state = self.environment["VIGIL_EMULATOR_DIR"]
        real = self.driver_root / "bin" / "ipmitool"
        tool.write_text(f'#!/bin/sh\nVIGIL_EMULATOR_DIR="{state}" exec "{real}" "$@"\n')
        tool.chmod(0o755)
        self.environment["PATH"] = f"{tool.parent}:{self.environment['PATH']}"
        self.environment["VIGIL_BMC_PERIOD_SECONDS"] = str(period_seconds)
        self.environment["VIGIL_BMC_DEVICE"] = str(directory / "no-ipmi0")

    def node_info(self) -> dict[str, str] | None:
        """Return the data keys of the node-info document; ``None`` if there is no document."""
        return self.place.read(f"mindx-dl-nodeinfo-{self.name}")

    def parts(self) -> list[tuple[str, int, list[str]]]:
        """Return the faulty parts in node-info, whose check code must be right.

        The list is empty without a document of the agent: one that another program wrote has no
        time of update.
        """
        data = self.node_info()
        if data is None or "updateTime" not in data:
            return []
        outer = json.loads(data["NodeInfo"])
        inner = json.dumps(outer["NodeInfo"], separators=(",", ":"), ensure_ascii=False)
        assert outer["CheckCode"] == hashlib.sha256(inner.encode()).hexdigest()
        return [
            (part["DeviceType"], part["DeviceId"], part["FaultCode"])
            for part in outer["NodeInfo"]["FaultDevList"]
        ]

    def start(self, program: tuple[str, ...] = (sys.executable, "-m", "vigil")) -> None:
        """Start the agent; does not wait for anything."""
        with self.log.open("ab") as file:
            output = file if self.output is None else self.output
            self._process = subprocess.Popen(
                [
                    *(*program, "agent", "--node-name", self.name),
                    *self.place.options,
                    *("--driver-root", str(self.driver_root), "--trust-driver"),
                    *("--state-dir", str(self.state_dir)),
                    *self.options,
                ],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def kill(self) -> None:
        """Kill the agent with SIGKILL and wait for its end."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> tuple[int, float]:
        """Stop the agent with SIGTERM; return its exit status and the duration (s)."""
        begin = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(patience(10))
        return status, time.monotonic() - begin

    def close(self) -> None:
        """End everything."""
        if self._process is not None and self._process.poll() is None:
            self.kill()
        self.emulator.close()

    def logged(self) -> str:
        """Return the whole log of the agents of this node."""
        return self.log.read_text()

    def waits_for_text(self, what: str) -> None:
        """Wait until the log has ``what``: a thread of its own writes each line a little later."""
        self.wait(lambda: what in self.logged(), f"the log says {what!r}", _FOLLOWS_SECONDS)

    def ready(self, seconds: float = _FOLLOWS_SECONDS) -> None:
        """Wait until the agent is ready: the answer to a write comes after what it shows."""
        self.wait(lambda: self.ask("/readyz")[0] == 200, "it is ready", seconds)

    def shown(self) -> Shown | None:
        """Return what the store shows of this node; ``None`` for nothing, also where a test left
        it.
        """
        data = self.place.read(self.document)
        return None if data is None or data["DeviceInfoCfg"] == "{}" else shown(data)

    def until(
        self, happened: Callable[[Shown], bool], what: str, seconds: float = _PATIENCE_SECONDS
    ) -> float:
        """Wait until the document is as wanted; return the seconds it took."""

        def waits_for_text() -> bool:
            document = self.shown()
            return document is not None and happened(document)

        return self.wait(waits_for_text, what, seconds)

    def wait(
        self, happened: Callable[[], bool], what: str, seconds: float = _PATIENCE_SECONDS
    ) -> float:
        """Wait until ``happened``; the seconds it took."""
        begin = time.monotonic()
        wait_until(happened, lambda: f"{what}\n{self.logged()[-4000:]}", seconds, _STEP_SECONDS)
        return time.monotonic() - begin

    def healthy(self, seconds: float = _UP_SECONDS) -> float:
        """Wait until all eight chips are shown free; the seconds it took."""
        return self.until(lambda now: len(now.free) == 8, "all chips are free", seconds)

    def up(self) -> None:
        """Wait until the agent answers on its socket."""

        def answers() -> bool:
            try:
                return self.ask("/healthz")[0] == 200
            except (FileNotFoundError, ConnectionRefusedError):
                return False

        self.wait(answers, "the agent is up")

    def ask(self, path: str) -> tuple[int, Any]:
        """Ask the agent over the socket in its state directory."""
        with closing(_SocketConnection(self.state_dir / "agent.sock")) as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read()
        if "json" not in (response.getheader("Content-Type") or ""):
            return response.status, body.decode()
        return response.status, json.loads(body)

    def status(self) -> Any:
        """Return the answer of ``/api/v1/status``."""
        return self.ask("/api/v1/status")[1]

    def journal(self, kind: str) -> list[Any]:
        """Return the bodies of all journal rows of a kind, in order."""
        with closing(sqlite3.connect(self.state_dir / "journal.sqlite")) as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'rows'").fetchall():
                return []
            rows = connection.execute(
                "SELECT body FROM rows WHERE kind = ? ORDER BY sequence", (kind,)
            ).fetchall()
        return [json.loads(row[0]) for row in rows]

    def assertions(self, code: str) -> list[str]:
        """Return the assertions of all reports about a code, in the order of the journal."""
        return [
            report["assertion"]
            for reports in self.journal("reports")
            for report in reports
            if report.get("code") == code
        ]
