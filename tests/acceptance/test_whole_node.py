"""Links, switches and the server, through tools and a library that are not the emulator's."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.daemons import wait
from tests.acceptance.hardware import GAPPED, SwitchFault, compile_library
from tests.acceptance.reading import Health, has
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.acceptance.conftest import MakeAgent
    from tests.acceptance.daemons import Agent, Daemon
    from tests.acceptance.places import Cluster, Folder, Place

LINK_DOWN = "81078603"
BROKEN_PORT = SwitchFault(0x08520003, 0xFFFFFFFF, 1, 3, 2, 7)
BROKEN_KEY = "[0x08520003,na,npu,na]_2_7"
FAN, SYSTEM = 0x04, 0x2C


def _shown(agent: Agent) -> bool:
    info = agent.place.device_info(agent.name)
    return info is not None and len(info.free) == len(GAPPED)


@pytest.fixture
def agent(make_agent: MakeAgent, folder: Folder) -> Agent:
    """Return an agent that polls its BMC often; not started."""
    made = make_agent(folder)
    made.environment["VIGIL_BMC_PERIOD_SECONDS"] = "0.3"
    return made


@pytest.fixture(scope="session")
def lingqu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the other switch library; return its path."""
    return compile_library(tmp_path_factory.mktemp("lingqu"), name="liblingqu-dcmi")


@pytest.mark.parametrize(
    "trouble",
    ["echo Get device health status failed! >&2; exit 3", "sleep 600"],
    ids=["fails", "hangs"],
)
def test_a_tool_that_fails_is_blind_and_not_link_down(agent: Agent, trouble: str) -> None:
    agent.environment["VIGIL_LINKS_DEADLINE_SECONDS"] = f"{patience(1):g}"
    agent.hardware.tool(5, trouble)
    agent.start()
    wait(lambda: _shown(agent), "every chip is free", 15)
    # On a busy machine the tool may miss its deadline for other chips, too.
    wait(lambda: agent.blind() == {5}, "chip 5 alone is blind", 20)
    info = agent.place.device_info("node-1")
    assert info is not None
    assert info.levels == {}
    assert len(info.free) == len(GAPPED)


BAD_ANSWERS = {
    "fails": "exit 1",
    "hangs": "sleep 600",
    "rubbish": "echo what; exit 0",
    "silent": "exit 0",
}


@pytest.mark.timeout(180)
def test_a_bad_answer_of_the_bmc_changes_nothing(agent: Agent) -> None:
    """One node gets all of them; between them the alarm ends and comes back."""
    agent.environment["VIGIL_BMC_DEADLINE_SECONDS"] = "1"
    expected = Health("UnHealthy", {"System 0": "SeparateFault"}, {"System 0": ["2C000031"]})
    agent.start()
    for name, trouble in BAD_ANSWERS.items():
        agent.hardware.alarm("2C000031", SYSTEM, 0)
        wait(lambda: agent.place.node_info("node-1") == expected, f"{name}: the alarm", 15)
        agent.hardware.bmc(trouble)
        wait(lambda: 'source="bmc"} 1.0' in agent.metrics(), f"{name}: blind", 15)
        assert agent.place.node_info("node-1") == expected, name
        agent.kill()
        agent.start()
        wait(lambda: _shown(agent), f"{name}: every chip is free", 15)
        assert agent.place.node_info("node-1") == expected, name
        agent.hardware.end_alarm("2C000031", SYSTEM, 0)
        agent.hardware.bmc(None)
        wait(lambda: agent.place.node_info("node-1") is None, f"{name}: node-info is gone", 15)


def test_a_switch_library_that_lies_is_blind_and_hides_no_chip(agent: Agent, lingqu: Path) -> None:
    agent.hardware.become_a3(lingqu)
    agent.hardware.write("promise", "4000")
    agent.start()
    wait(lambda: _shown(agent), "every chip is free", 15)
    wait(lambda: '"switch"' in agent.metrics(), "the switch is blind", 15)
    agent.hardware.occur(10, "80E3A201")

    def found() -> bool:
        info = agent.place.device_info("node-1")
        return info is not None and has(10, "80E3A201")(info)

    wait(found, "the chip's fault", 2)


@pytest.mark.apiserver
def test_all_of_it_reaches_the_cluster(
    make_agent: MakeAgent,
    make_aggregator: Callable[[Place], Daemon],
    cluster: Cluster,
    lingqu: Path,
) -> None:
    agent = make_agent(cluster)
    agent.environment["VIGIL_BMC_PERIOD_SECONDS"] = "0.3"
    agent.environment["VIGIL_HEARTBEAT_INTERVAL_SECONDS"] = "1"
    agent.hardware.become_a3(lingqu)
    agent.start()
    make_aggregator(cluster).start()
    wait(lambda: "node-1" in cluster.cluster_info(), "the node", 20)
    agent.hardware.switch_occur(BROKEN_PORT)
    agent.hardware.alarm("2C000031", SYSTEM, 0)
    broken = Health("UnHealthy", {BROKEN_KEY: "Separate"}, {})
    server = Health("UnHealthy", {"System 0": "SeparateFault"}, {"System 0": ["2C000031"]})
    wait(lambda: cluster.cluster_switches().get("node-1") == broken, "the switch fault")
    assert agent.place.switch_info("node-1") == broken
    wait(lambda: cluster.cluster_nodes().get("node-1") == server, "the alarm")
    agent.hardware.switch_recover(BROKEN_PORT)
    agent.hardware.end_alarm("2C000031", SYSTEM, 0)
    healthy = Health("Healthy", {}, {})
    wait(lambda: cluster.cluster_switches().get("node-1") == healthy, "the switch is well")
    wait(lambda: _is_well(cluster, "node-1"), "the server is well")
    beaten_at_ms = agent.status()["heartbeat"]["beaten_at_ms"]
    agent.kill()
    took = wait(lambda: not _is_well(cluster, "node-1"), "the silent node is lost", 10)
    assert took <= patience(6.0)
    assert time.time() - beaten_at_ms / 1000 > 2.9, "three intervals"
    agent.start()
    wait(lambda: _is_well(cluster, "node-1"), "the node is back", 10)


def _is_well(cluster: Cluster, node: str) -> bool:
    shown = cluster.cluster_nodes().get(node)
    return shown is None or shown.status == "Healthy"
