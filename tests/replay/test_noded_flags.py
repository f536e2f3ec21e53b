"""The one recording of NodeD in which no agent runs: what its program refuses, given to ours."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from agent.config import load_agent
from contract.errors import ConfigurationError
from tests.compatibility import check, different
from tests.replay.noded import recorded_node
from vigil.exit_status import ExitStatus
from vigil.main import app

NAME = "flags-and-node-name-refused"
STEPS = [step for step in recorded_node(NAME)["steps"] if step["do"] == "start-agent"]


def environment(step: dict[str, Any]) -> dict[str, str]:
    """Return upstream's flags as our settings: the periods of BMC requests and of heartbeats."""
    found = {"VIGIL_NODE_NAME": step["node_name"]}
    if "monitor_period_s" in step:
        found["VIGIL_BMC_PERIOD_SECONDS"] = str(step["monitor_period_s"])
    if "report_interval_s" in step:
        found["VIGIL_HEARTBEAT_INTERVAL_SECONDS"] = str(step["report_interval_s"])
    return found


def status_of(step: dict[str, Any]) -> int | str:
    """Return the exit status of our agent with these options; ``accepted`` if it would run."""
    if "flags" in step:  # ours has none of them
        return CliRunner().invoke(app, ["agent", *step["flags"]]).exit_code
    try:
        load_agent(None, environment(step), {})
    except ConfigurationError:
        return ExitStatus.WRONG_USE
    return "accepted"


@pytest.mark.parametrize("step", STEPS, ids=lambda step: str(step["at_ms"]))
def test_unusable_flags_are_refused(step: dict[str, Any]) -> None:
    """D-20: wrong use has an exit status of its own."""
    found = different(step["exit_status"], status_of(step), "$.exit_status")
    check(f"noded/{NAME}@{step['at_ms']}", found)
