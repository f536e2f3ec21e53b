"""Runs ``vigil lint`` in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typer.testing import CliRunner

from vigil.main import app

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result


def run(*arguments: str | Path, text: str | None = None) -> Result:
    """Run the verb in this process."""
    return CliRunner().invoke(app, ["lint", *map(str, arguments)], input=text)
