"""kill -9, an API server that is away, disks that are full: nothing is lost."""

from __future__ import annotations

import random
import resource
from functools import partial
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

FAULT, OTHER, ONCE, BRIEF = "80E01801", "80E18402", "80E3A201", "80CD8008"


def test_kill_9_while_the_api_server_is_away(cluster: Cluster, make_agent: MakeAgent) -> None:
    plane = cluster.plane
    with History(plane, NODES) as history:
        agent = make_agent(cluster)
        hardware = agent.hardware
        agent.start()
        agent.up()
        hardware.occur(10, OTHER)
        agent.shows(lambda shown: shown.codes(10) == {OTHER}, "the fault that will recover")
        plane.kill_apiserver()
        hardware.occur(4, FAULT)
        hardware.once(5, ONCE)
        hardware.recover(10, OTHER)
        hardware.occur(11, BRIEF)
        hardware.recover(11, BRIEF)
        for code, last in (
            (FAULT, "occur"),
            (ONCE, "once"),
            (OTHER, "recover"),
            (BRIEF, "recover"),
        ):
            wait(partial(agent.is_journaled, code, last), f"{code} {last}")
        # Until then an agent that starts finds in the lists what has recovered.
        let_time_pass(hardware.recovery_lag_ms / 1000)
        agent.kill()
        # What happens while no agent runs, and is over, cannot be known; what stays is found.
        hardware.occur(18, FAULT)
        agent.start()
        wait(lambda: len(agent.status()["faults"]) >= 3, "remembered without the API server")
        agent.kill()
        agent.start()
        plane.start_apiserver()
        agent.shows(lambda shown: shown.codes(4) == {FAULT}, "the fault", 15)
        agent.shows(lambda shown: shown.codes(18) == {FAULT}, "the fault meanwhile", 15)
        agent.shows(lambda shown: not shown.codes(10), "the recovery", 15)
        agent.shows(lambda shown: not shown.codes(11), "the brief fault is over")
        assert agent.assertions(BRIEF) == ["occur", "recover"]
        agent.shows(lambda shown: not shown.codes(5), "the once event is released", 15)
    assert any(ONCE in shown.codes(5) for shown in history.versions["node-1"])


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


def test_the_api_server_is_away_at_start(
    cluster: Cluster, make_agent: MakeAgent, make_aggregator: Callable[[Place], Daemon]
) -> None:
    plane = cluster.plane
    agent, aggregator = make_agent(cluster), make_aggregator(cluster)
    plane.stop_apiserver()
    agent.hardware.list_code(19, FAULT)
    agent.start()
    aggregator.start()
    wait(lambda: len(agent.status()["faults"]) == 1, "it works meanwhile")
    assert agent.ask("/readyz")[0] == aggregator.ask("/readyz")[0] == 503
    assert agent.ask("/healthz")[0] == aggregator.ask("/healthz")[0] == 200
    plane.start_apiserver()
    wait(lambda: "node-1" in cluster.cluster_info(), "published", 15)
    wait(lambda: cluster.cluster_info()["node-1"].codes(19) == {FAULT}, "with its fault", 5)
    wait(lambda: agent.ask("/readyz")[0] == aggregator.ask("/readyz")[0] == 200, "ready")


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
        assert (status, seconds < 5) == (0, True), daemon.logged()[-3000:]


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
    agent.kill()
    agent.before_exec = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
    agent.start()
    agent.hardware.occur(5, OTHER)
    agent.shows(lambda shown: shown.codes(5) == {OTHER}, "the next one")
    agent.shows(lambda shown: shown.codes(4) == {FAULT}, "and what was known")
    assert agent.status()["journal"]["trouble"]
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
    assert (status, seconds < 5) == (0, True)


def test_the_driver_comes_later(folder: Folder, make_agent: MakeAgent) -> None:
    agent = make_agent(folder)
    agent.hardware.command("answer", "dcmi_init", value=-8005)
    agent.start()
    wait(lambda: agent.ask("/readyz")[0] == 503, "not ready")
    assert folder.device_info("node-1") is None
    assert agent.runs
    agent.hardware.forget("answer", "dcmi_init")
    agent.up(15)


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
