"""Runs ``vigil advise`` in this process and reads what it prints."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from typer.testing import CliRunner

from vigil.main import app

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result


def vigil(*options: str | Path) -> Result:
    """Run the verb in this process."""
    return CliRunner().invoke(app, ["advise", *map(str, options)])


def sessions_of(result: Result) -> list[dict[str, Any]]:
    """Return the lines of ``--json``."""
    return [json.loads(line) for line in result.stdout.splitlines()]
