"""``vigil validate``: check a file before it is used."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path  # noqa: TC003  (typer reads it)
from typing import Annotated

import typer


class FileKind(StrEnum):
    """What a file may be."""

    AGENT = "agent"
    SCENARIO = "scenario"


def validate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What to check.")],
    kind: Annotated[
        FileKind | None, typer.Option(help="What it is; default: told by its content.")
    ] = None,
) -> None:
    """Check a configuration or a scenario: all problems at once, exit status 2 if there are any."""
    from agent.config import check_agent_file, read_file
    from dcmi_shim.emulator.scenario import read_scenario

    content = read_file(file)
    if kind is None:
        kind = FileKind.SCENARIO if "steps" in content else FileKind.AGENT
    match kind:
        case FileKind.AGENT:
            check_agent_file(file)
        case FileKind.SCENARIO:
            read_scenario(file)
    print(f"{file}: ok ({kind})")
