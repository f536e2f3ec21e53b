"""One node: emulated hardware and a real ``vigil agent`` process."""

from __future__ import annotations

import hashlib
import http.client
import json
import shutil
import socket
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from dcmi_shim.emulator.control import CONTROL_LIBRARY, Emulator
from tests.parts.daemons import Daemon
from tests.parts.deadlines import patience, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.parts.places import Place

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
SEPARATES = "80E18402"


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


class Node(Daemon):
    """An agent with its own emulated hardware, directory and document."""

    def __init__(
        self,
        directory: Path,
        built: Path,
        place: Place,
        name: str = "node-1",
        profile: str = "a2",
    ) -> None:
        super().__init__((sys.executable, "-m", "vigil"), "agent", directory, place)
        self.name = name
        self.document = f"mindx-dl-deviceinfo-{name}"
        self.driver_root = built / "driver"
        emulator_dir = directory / "emulator"
        emulator_dir.mkdir()
        shutil.copy(built / "emulator" / CONTROL_LIBRARY, emulator_dir)
        self.emulator = Emulator(emulator_dir)
        self.emulator.start(profile)
        self.environment["VIGIL_EMULATOR_DIR"] = str(emulator_dir)
        # What the machine that runs the tests suffers from is not to be seen in every test.
        self.environment |= {f"VIGIL_{check}_ENABLED": "false" for check in HOST_CHECKS}

    @override
    def arguments(self) -> list[str]:
        root = str(self.driver_root)
        node = ["--node-name", self.name, "--driver-root", root, "--trust-driver"]
        return [*node, *super().arguments()]

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

    @override
    def close(self) -> None:
        super().close()
        self.emulator.close()

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

    @override
    def connection(self) -> _SocketConnection:
        return _SocketConnection(self.state_dir / "agent.sock")
