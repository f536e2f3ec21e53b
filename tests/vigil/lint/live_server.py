"""A cluster whose configuration ``vigil lint --live`` reads."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def lint_live(kubeconfig: Path, *options: str) -> tuple[int, list[dict[str, Any]], str]:
    """Exit status, findings and standard error of ``vigil lint --live``."""
    command = [sys.executable, "-m", "vigil", "lint", "--live", "--json"]
    command += ["--kubeconfig", str(kubeconfig), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr
