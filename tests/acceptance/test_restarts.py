"""kill -9, an API server that is away, disks that are full: nothing is lost."""

from __future__ import annotations

import random
import resource
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.daemons import wait
from tests.acceptance.hardware import CODES, HEALTH
from tests.acceptance.places import CLUSTER, NODES, History
from tests.acceptance.reading import has
from tests.parts.deadlines import let_time_pass, patience

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.acceptance.conftest import MakeAgent
    from tests.acceptance.daemons import Daemon
    from tests.acceptance.places import Cluster, Folder, Place

FAULT, OTHER = "80E01801", "80E18402"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_kill_9_at_a_random_time(folder: Folder, make_agent: MakeAgent, seed: int) -> None:
    chance = random.Random(seed)
    agent = make_agent(folder)
    hardware = agent.hardware
    agent.start()
    agent.up()
    hardware.occur(1, FAULT)
    agent.shows(lambda shown: shown.codes(1) == {FAULT}, "known before")
    since = agent.status()["faults"][0]["since_ms"]
    chips = list(hardware.chips)
    faulty = {1}
    for _ in range(3):
        chip = chance.choice(chips[:-1])
        if chip in faulty:
            hardware.recover(chip, FAULT)
            faulty.remove(chip)
        else:
            hardware.occur(chip, FAULT)
            faulty.add(chip)
        let_time_pass(chance.uniform(0, 0.03))
        agent.kill()
        agent.start()
        let_time_pass(chance.uniform(0, 0.6))
        agent.kill()
        agent.start()
    agent.shows(
        lambda shown: {name for name, _ in shown.levels} == {f"Ascend910-{c}" for c in faulty},
        "the truth",
    )
    known = {fault["chip"]: fault for fault in agent.status()["faults"]}
    assert known[1]["since_ms"] == since


@pytest.mark.parametrize("how", ["stopped", "frozen"])
def test_sigterm_without_an_api_server(
    cluster: Cluster,
    make_agent: MakeAgent,
    make_aggregator: Callable[[Place], Daemon],
    how: str,
) -> None:
    agent, aggregator = make_agent(cluster), make_aggregator(cluster)
    agent.start()
    aggregator.start()
    agent.up()
    wait(lambda: "node-1" in cluster.cluster_info(), "published", 15)
    if how == "stopped":
        cluster.plane.kill_apiserver()
    else:
        cluster.plane.pause_apiserver()
    agent.hardware.occur(4, FAULT)
    agent.hardware.command("hang", HEALTH)
    agent.hardware.command("hang", CODES)
    wait(lambda: agent.is_journaled(FAULT, "occur"), "journaled")
    for daemon in (agent, aggregator):
        status, seconds = daemon.stop()
        assert (status, seconds < patience(5)) == (0, True), daemon.logged()[-3000:]


def test_update_time_across_restarts(
    cluster: Cluster, make_agent: MakeAgent, make_aggregator: Callable[[Place], Daemon]
) -> None:
    plane = cluster.plane
    with History(plane, NODES), History(plane, CLUSTER):
        agent, aggregator = make_agent(cluster), make_aggregator(cluster)
        agent.start()
        aggregator.start()
        agent.up()
        wait(lambda: "node-1" in cluster.cluster_info(), "the node is in cluster-info", 20)
        for _ in range(2):
            for chip in (4, 5):
                agent.hardware.occur(chip, OTHER)
                agent.shows(has(chip, OTHER), "occurred")
                agent.hardware.recover(chip, OTHER)
                agent.shows(lambda shown: not shown.levels, "recovered")
            agent.kill()
            aggregator.kill()
            agent.hardware.occur(10, OTHER)
            agent.start()
            aggregator.start()
            agent.shows(lambda shown: shown.codes(10) == {OTHER}, "after the restart")
            wait(lambda: cluster.cluster_info()["node-1"].codes(10) == {OTHER}, "merged")
            agent.hardware.recover(10, OTHER)
            agent.shows(lambda shown: not shown.levels, "recovered")
        wait(lambda: not cluster.cluster_info()["node-1"].levels, "merged")


def test_a_full_disk(folder: Folder, make_agent: MakeAgent) -> None:
    agent = make_agent(folder)
    agent.start()
    agent.up()
    agent.hardware.occur(4, FAULT)
    agent.shows(lambda shown: shown.codes(4) == {FAULT}, "occurred")
    since_ms = agent.status()["faults"][0]["since_ms"]
    agent.kill()
    agent.before_exec = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
    agent.start()
    wait(lambda: bool(agent.status()["faults"]), "the fault is remembered")
    assert agent.status()["faults"][0]["since_ms"] == since_ms
    agent.hardware.occur(5, OTHER)
    agent.shows(lambda shown: shown.codes(5) == {OTHER}, "the next one")
    agent.shows(lambda shown: shown.codes(4) == {FAULT}, "and what was known")
    # The journal commits beside the publication.
    wait(lambda: agent.status()["journal"]["trouble"] is not None, "the journal fails")
    agent.kill()
    agent.before_exec = None
    agent.start()
    agent.shows(lambda shown: (shown.codes(4), shown.codes(5)) == ({FAULT}, {OTHER}), "kept")
    wait(lambda: agent.status()["journal"]["trouble"] is None, "the journal works")


def test_a_state_directory_that_cannot_be_used(folder: Folder, make_agent: MakeAgent) -> None:
    agent = make_agent(folder)
    # Read-only for root too: a place in which no process can make anything.
    agent.state_dir = agent.directory / "file" / "state"
    (agent.directory / "file").write_text("")
    agent.start()
    agent.up()
    agent.hardware.occur(4, FAULT)
    agent.shows(lambda shown: shown.codes(4) == {FAULT}, "occurred")
    assert str(agent.state_dir) in agent.logged()
    status, seconds = agent.stop()
    assert (status, seconds < patience(5)) == (0, True)


@pytest.mark.exec
@pytest.mark.parametrize("verb", ["agent", "aggregator"])
def test_a_daemon_that_is_stopped_while_it_is_loaded(
    folder: Folder,
    make_agent: MakeAgent,
    make_aggregator: Callable[[Place], Daemon],
    verb: str,
) -> None:
    daemon = make_agent(folder) if verb == "agent" else make_aggregator(folder)
    daemon.start()
    maps = Path(f"/proc/{daemon.process.pid}/maps")
    wait(lambda: "multidict" in maps.read_text(), "it has begun to load")
    status, seconds = daemon.stop()
    assert status == 0
    assert seconds < patience(5)
