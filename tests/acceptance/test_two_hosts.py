"""Two agents with one node name, on hosts of their own: one writes, and one of them always does."""

from __future__ import annotations

import json
import os
import signal
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.daemons import wait
from tests.acceptance.reading import has
from tests.parts.deadlines import nothing_happens_for

if TYPE_CHECKING:
    from tests.acceptance.conftest import MakeAgent
    from tests.acceptance.daemons import Agent
    from tests.acceptance.places import Folder

FAULT = "80E01801"
NODE = "node-1"
INTERVAL_SECONDS = 1.0
CHIPS = {"host-1": 4, "host-2": 5}
"""The faulty chip of each host, which shows in the document who wrote it."""


class RivalHosts:
    """Two hosts with one node name and a directory to write to."""

    def __init__(self, make_agent: MakeAgent, folder: Folder) -> None:
        self.folder = folder
        self.agents: dict[str, Agent] = {}
        for host, chip in CHIPS.items():
            agent = make_agent(folder, host)
            agent.name = NODE
            agent.environment["VIGIL_HEARTBEAT_INTERVAL_SECONDS"] = str(INTERVAL_SECONDS)
            agent.hardware.list_code(chip, FAULT)
            self.agents[host] = agent

    def shows(self, host: str) -> bool:
        """Return whether ``host`` wrote the document."""
        shown = self.folder.device_info(NODE)
        return shown is not None and has(CHIPS[host], FAULT)(shown)

    def signal(self, host: str, number: signal.Signals) -> None:
        os.kill(self.agents[host].process.pid, number)

    def owners(self) -> list[str]:
        """Return the hosts whose agents claim the name."""
        named = "npu_vigil_heartbeat_conflict 0.0"
        return [host for host, agent in self.agents.items() if named in agent.metrics()]


@pytest.fixture
def rivals(make_agent: MakeAgent, folder: Folder) -> RivalHosts:
    return RivalHosts(make_agent, folder)


def test_agent_that_stood_still_and_wakes_up_leaves_no_node_silent(rivals: RivalHosts) -> None:
    """Both claim the name then, in the second round whichever host it is."""
    owner, other = CHIPS
    rivals.agents[owner].start()
    wait(partial(rivals.shows, owner), "the first one writes")
    rivals.agents[other].start()
    wait(lambda: rivals.owners() == [owner], "it has the name")
    for _ in range(2):
        rivals.signal(owner, signal.SIGSTOP)
        wait(partial(rivals.shows, other), "the other one takes over")
        rivals.signal(owner, signal.SIGCONT)
        nothing_happens_for(
            4 * INTERVAL_SECONDS, because="four heartbeats, by which one of them notices the other"
        )
        wait(lambda: len(rivals.owners()) == 1, "one gives way")
        owner, other = sorted(CHIPS, key=lambda host: host not in rivals.owners())
        wait(partial(rivals.shows, owner), f"{owner} has the name and writes", 5)


@pytest.mark.parametrize("content", ["{garbage", '{"node": "other"}'])
def test_garbage_instead_of_a_heartbeat_is_replaced(rivals: RivalHosts, content: str) -> None:
    beats = rivals.folder.root / "beats"
    beats.mkdir(parents=True)
    beat = beats / f"{NODE}.json"
    beat.write_text(content)
    rivals.agents["host-1"].start()
    wait(lambda: rivals.shows("host-1"), "it writes", 5)
    wait(lambda: beat.read_text() != content, "it beats")
    assert json.loads(beat.read_text())["node"] == NODE
