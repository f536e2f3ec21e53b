"""Links when the tool, the driver and the agent come and go, each when it likes."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.daemons import wait
from tests.acceptance.reading import has
from tests.parts.deadlines import let_time_pass, patience
from tests.parts.fault_config import link_rule

if TYPE_CHECKING:
    from pathlib import Path

    from tests.acceptance.conftest import MakeAgent
    from tests.acceptance.daemons import Agent
    from tests.acceptance.places import Folder

LINK_DOWN = "81078603"
MINOR = 1
BLIND = 'npu_vigil_blind{chip="",source="links"} 1.0'


@pytest.fixture
def agent(make_agent: MakeAgent, folder: Folder, tmp_path: Path) -> Agent:
    """Return an agent that runs the link tool often and isolates soon; it is not started."""
    made = make_agent(folder)
    made.environment |= {"VIGIL_LINKS_PERIOD_SECONDS": "1"}
    made.environment |= link_rule(tmp_path / "fault-config", 4, 4)
    return made


def _up(agent: Agent) -> int:
    return agent.metrics().count("npu_vigil_link_up{")


def test_a_tool_that_goes_and_comes(agent: Agent) -> None:
    tool = agent.hardware.hccn_tool
    hidden = tool.with_name("not-yet")
    tool.rename(hidden)
    agent.hardware.link(10, "DOWN")
    agent.start()
    agent.up()
    wait(lambda: BLIND in agent.metrics(), "blind about the node")
    assert _up(agent) == 0
    hidden.rename(tool)
    agent.shows(has(10, LINK_DOWN), "the tool is there, and says that a link is down")
    wait(lambda: _up(agent) == len(agent.hardware.chips), "every link was asked about")
    # Of this source alone: a user who is not root may not read the kernel's log.
    assert re.search(r'^npu_vigil_blind\{.*source="links"', agent.metrics(), re.MULTILINE) is None
    tool.rename(hidden)
    wait(lambda: BLIND in agent.metrics(), "blind again")
    assert _up(agent) == 0, "blind is no sample"
    agent.hardware.occur(4, LINK_DOWN, MINOR)
    agent.shows(has(4, LINK_DOWN), "the driver still tells of links", 2)
    agent.hardware.recover(4, LINK_DOWN, MINOR)
    agent.shows(has(4), "also of their end", 2)
    agent.shows(has(10, LINK_DOWN), "what the tool reported last stays", 1)


@pytest.mark.parametrize("kill_after_seconds", [0.2, 3.9])
def test_a_restart_moves_no_time_of_the_duration_rule(
    agent: Agent, kill_after_seconds: float
) -> None:
    agent.start()
    agent.up()
    agent.hardware.link(10, "DOWN")
    agent.hardware.occur(10, LINK_DOWN, MINOR)
    begin_ms = time.time_ns() // 1_000_000
    # An agent that is killed before it has the event finds the link down only later.
    wait(lambda: agent.is_journaled(LINK_DOWN, "occur"), "it is journaled")
    let_time_pass(begin_ms / 1000 + kill_after_seconds - time.time())
    agent.kill()
    agent.start()
    isolated = "PreSeparateNPU"
    agent.shows(lambda now: now.levels.get(("Ascend910-10", LINK_DOWN)) == isolated, "isolated", 12)
    shown = agent.place.device_info("node-1")
    assert shown is not None
    assert "Ascend910-10" in shown.free, "only its network is unhealthy"
    assert "Ascend910-10" not in shown.unhealthy
    (reason,) = agent.upgrades()["Ascend910-10"]
    late_ms = reason.pop("upgrade_time") - (begin_ms + 4000)
    assert reason == {
        "fault_code": LINK_DOWN,
        "fault_level": isolated,
        "upgrade_type": "FaultDuration",
    }
    assert -500 < late_ms < patience(500)
    agent.kill()
    agent.hardware.link(10, "UP")
    agent.hardware.unlist_code(10, LINK_DOWN)
    began = time.monotonic()
    agent.start()
    agent.shows(lambda now: not now.levels, "released", 15)
    assert time.monotonic() - began > 3
    assert agent.upgrades() == {}
