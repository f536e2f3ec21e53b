"""The daemons as processes, started by the installed command alone."""

from __future__ import annotations

import http.client
import json
import time
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from tests.acceptance.reading import DEVICE_PREFIX
from tests.parts import daemons
from tests.parts.daemons import environment_without
from tests.parts.deadlines import patience, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.acceptance.hardware import Hardware
    from tests.acceptance.places import Place

_LOG_TAIL = 4000
OF_THIS_TREE = ("PYTHON", "LD_LIBRARY_PATH")
"""Beginnings of variables by which the installed command would find this tree."""


def wait(happened: Callable[[], bool], what: str, seconds: float = 10.0) -> float:
    """Wait until ``happened``; the seconds it took."""
    begin = time.monotonic()
    wait_until(happened, what, seconds)
    return time.monotonic() - begin


class Daemon(daemons.Daemon):
    """A verb of the installed command, which knows nothing of this tree."""

    place: Place

    def __init__(self, vigil: Path, verb: str, directory: Path, place: Place) -> None:
        super().__init__((vigil,), verb, directory, place)
        self.environment = environment_without(*OF_THIS_TREE)
        self.working_directory = directory
        self._url: tuple[str, int] | None = None
        self._log_start = 0

    @override
    def arguments(self) -> list[str]:
        return [*super().arguments(), "--listen", "127.0.0.1:0"]

    @override
    def start(self, command: Sequence[str | Path] | None = None) -> None:
        self._url = None
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        super().start(command)

    def ended(self, seconds: float = 15.0) -> int:
        """Wait for its end; the exit status."""
        return self.process.wait(patience(seconds))

    @override
    def logged(self) -> str:
        """Return the log of the process that was started last."""
        return self.log.read_bytes()[self._log_start :].decode(errors="replace")

    @override
    def connection(self) -> http.client.HTTPConnection:
        """Return a connection to the address that it logged."""
        wait(self._listens, f"{self.verb} listens")
        assert self._url is not None
        return http.client.HTTPConnection(*self._url, timeout=patience(5))

    def _listens(self) -> bool:
        for line in self.logged().splitlines():
            _, output, url = line.partition("listening on http://")
            if output:
                host, _, port = url.partition(":")
                self._url = host, int(port)
                return True
        assert self.runs, f"{self.verb} ended:\n{self.logged()[-_LOG_TAIL:]}"
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
        # What this machine's kernel does not report is none of the emulated node's.
        self.environment["VIGIL_KERNEL_LOG_ENABLED"] = "false"

    @override
    def arguments(self) -> list[str]:
        root = str(self.hardware.root)
        node = ["--node-name", self.name, "--driver-root", root, "--trust-driver"]
        return [*node, *super().arguments()]

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
        data = self.place.read(DEVICE_PREFIX + self.name)
        assert data is not None
        return json.loads(data["UpgradeFaultReason"])

    def is_journaled(self, code: str, assertion: str) -> bool:
        """Return whether the journal has an assertion of ``code``."""
        return assertion in self.assertions(code)

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
