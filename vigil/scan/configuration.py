"""Check of the configuration, as the agent would read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.config import load_agent
from contract.errors import ConfigurationError
from vigil.exit_status import ExitStatus
from vigil.scan.findings import not_applicable, ok, problem

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from agent.config import AgentConfiguration
    from vigil.scan.findings import Check

CONFIGURATION, NODE = "configuration", "node-name"


def check_configuration(
    file: Path | None, environment: Mapping[str, str], command_line: Mapping[str, object]
) -> tuple[AgentConfiguration | None, tuple[Check, ...]]:
    """Return what is configured, ``None`` if it cannot be used, and every problem of it."""
    source = "options and environment" if file is None else str(file)
    try:
        configuration = load_agent(file, environment, command_line)
    except ConfigurationError as error:
        problems = [str(one) for one in error.problems]
        advice = "correct all of it; docs/configuration.md has every option"
        check = problem(
            CONFIGURATION,
            f"{error.source}: {'; '.join(problems)}",
            advice,
            ExitStatus.WRONG_USE,
            facts={"problems": problems},
        )
        return None, (check, not_applicable(NODE, "the configuration cannot be used"))
    node = configuration.node_name
    return configuration, (
        ok(CONFIGURATION, source, facts={"source": source}),
        ok(NODE, node, facts={"node": node}),
    )
