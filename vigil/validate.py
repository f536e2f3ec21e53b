"""``vigil validate``: check a file before it is used."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path  # noqa: TC003  (typer reads it)
from typing import Annotated

import typer


class FileKind(StrEnum):
    """What a file may be."""

    AGENT = "agent"
    AGGREGATOR = "aggregator"
    SCENARIO = "scenario"


def validate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What to check.")],
    kind: Annotated[
        FileKind | None, typer.Option(help="What it is; default: told by its content.")
    ] = None,
) -> None:
    """Check a configuration or a scenario: all problems at once, exit status 2 if there are any."""
    from agent.config import AgentConfiguration, check_agent_file
    from aggregator.config import AggregatorConfiguration, load_aggregator
    from dcmi_shim.emulator.scenario import read_scenario
    from service.files import read_toml

    content = read_toml(file)
    if kind is None and "steps" in content:
        kind = FileKind.SCENARIO
    elif kind is None:
        knows = {
            FileKind.AGENT: AgentConfiguration.model_fields.keys(),
            FileKind.AGGREGATOR: AggregatorConfiguration.model_fields.keys(),
        }
        kind = max(knows, key=lambda one: len(content.keys() & knows[one]))
        if isinstance(content.get("store"), list):
            kind = FileKind.AGGREGATOR
    match kind:
        case FileKind.AGENT:
            check_agent_file(file)
        case FileKind.AGGREGATOR:
            load_aggregator(file, {}, {})
        case FileKind.SCENARIO:
            read_scenario(file)
    print(f"{file}: ok ({kind})")
