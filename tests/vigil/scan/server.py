"""A machine to look at: an emulated server, and ``vigil scan`` as a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

from tests.end_to_end.node import Node
from tests.parts.deadlines import patience

# What a container may lack, whatever the server is like.
OF_THE_MACHINE = {"kernel-log"}


class Scanned:
    """The output of one run of ``vigil scan --json``."""

    def __init__(self, status: int, printed: str, seconds: float) -> None:
        self.status = status
        self.seconds = seconds
        self.report: dict[str, Any] = json.loads(printed)
        assert self.report["exit_status"] == status

    def check(self, name: str) -> dict[str, Any]:
        """Return the check of this name, which must exist once."""
        (check,) = [one for one in self.report["checks"] if one["name"] == name]
        return dict(check)

    def warnings(self) -> set[str]:
        """Return the names of checks that warn; each must have a finding and advice."""
        looks = [one for one in self.report["checks"] if one["state"] == "warning"]
        assert all(one["advice"] and one["found"] for one in looks)
        return {one["name"] for one in looks}

    def problems(self) -> set[str]:
        """Return the names of checks that found a problem; each must have a finding and advice."""
        wrong = [one for one in self.report["checks"] if one["state"] == "problem"]
        assert all(one["advice"] and one["found"] for one in wrong)
        return {one["name"] for one in wrong}


class Server(Node):
    """A node that is scanned, with the arguments of its agent."""

    def scan(self, *more: str) -> Scanned:
        """Run ``vigil scan`` on this server; return its result."""
        begin = time.monotonic()
        result = self.run_scan(*more, "--json")
        assert not result.stderr, result.stderr
        return Scanned(result.returncode, result.stdout, time.monotonic() - begin)

    def run_scan(self, *more: str) -> subprocess.CompletedProcess[str]:
        """Run ``vigil scan`` on this server, as people do."""
        return subprocess.run(
            [sys.executable, "-m", "vigil", "scan", *self.arguments(), *more],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=patience(60),
        )
