"""Faults come and go on a driver that is not the project's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.acceptance.daemons import wait
from tests.acceptance.hardware import Chip
from tests.acceptance.places import CLUSTER, NODES, History

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.acceptance.conftest import MakeAgent
    from tests.acceptance.daemons import Daemon
    from tests.acceptance.places import Cluster, Folder, Place

FAULT, OTHER, ONCE = "80E01801", "80E18402", "80E3A201"
A3 = tuple(Chip(die // 2, die % 2, die, die) for die in range(16))


def test_from_event_to_cluster_info(
    cluster: Cluster, make_agent: MakeAgent, make_aggregator: Callable[[Place], Daemon]
) -> None:
    plane = cluster.plane
    with History(plane, NODES), History(plane, CLUSTER):
        agent, aggregator = make_agent(cluster), make_aggregator(cluster)
        hardware = agent.hardware
        aggregator.start()
        agent.start()
        agent.up()
        wait(lambda: "node-1" in cluster.cluster_info(), "the node is in cluster-info")
        # The sixth write within a second waits until its UpdateTime is not too far ahead.
        for raised in (None, 0, 1_700_000_000):
            hardware.occur(10, OTHER, raised=raised)
            agent.shows(lambda shown: shown.codes(10) == {OTHER}, "occurred")
            wait(lambda: cluster.cluster_info()["node-1"].codes(10) == {OTHER}, "merged")
            hardware.recover(10, OTHER)
            agent.shows(lambda shown: not shown.levels, "recovered")
            wait(lambda: not cluster.cluster_info()["node-1"].levels, "merged")
        hardware.once(4, ONCE)
        wait(lambda: cluster.cluster_info()["node-1"].codes(4) == {ONCE}, "once")
        wait(lambda: not cluster.cluster_info()["node-1"].levels, "released", 15)
        assert agent.stop()[0] == 0
        assert aggregator.stop()[0] == 0


def test_duplicates_disorder_and_a_burst(folder: Folder, make_agent: MakeAgent) -> None:
    agent = make_agent(folder)
    hardware = agent.hardware
    agent.start()
    agent.up()
    logic = hardware.chips[4].logic
    hardware.occur(4, FAULT)
    for _ in range(3):
        hardware.event(logic, FAULT, 1, serial=101, raised=hardware.raised(4, FAULT))
    # A recovery that overtakes its occurrence: the lists have the last word.
    hardware.event(hardware.chips[5].logic, OTHER, 0)
    hardware.event(hardware.chips[5].logic, OTHER, 1)
    agent.shows(lambda shown: shown.codes(4) == {FAULT}, "occurred")
    agent.shows(lambda shown: not shown.codes(5), "never was", 5)
    # The journal commits beside the publication.
    wait(lambda: agent.is_journaled(FAULT, "occur"), "it is journaled")
    assert agent.assertions(FAULT) == ["occur"]
    for _ in range(500):
        hardware.event(logic, OTHER, 1)
        hardware.event(logic, OTHER, 0)
    hardware.occur(18, OTHER)
    agent.shows(lambda shown: shown.codes(18) == {OTHER}, "after the burst", 5)
    agent.shows(lambda shown: shown.codes(4) == {FAULT}, "the lists have the last word", 5)


def test_event_of_no_chip_and_unknown_words(folder: Folder, make_agent: MakeAgent) -> None:
    agent = make_agent(folder)
    agent.start()
    agent.up()
    agent.hardware.event(99, FAULT, 1)
    agent.hardware.event(0, FAULT, 77)
    agent.hardware.event(0, "0", 1)
    agent.hardware.event_name = b"n" * 500
    agent.hardware.occur(4, FAULT, severity=9)
    agent.shows(lambda shown: shown.codes(4) == {FAULT}, "occurred")
    agent.hardware.recover(4, FAULT)
    agent.shows(lambda shown: not shown.levels, "recovered")


def test_a3(folder: Folder, make_agent: MakeAgent) -> None:
    agent = make_agent(folder, chips=A3)
    agent.hardware.write("board", str(0xB1))
    agent.hardware.write("name", "Ascend910")
    agent.hardware.write("pod", "7")
    agent.start()
    agent.up()
    text = (folder.root / "kube-system" / "mindx-dl-deviceinfo-node-1.json").read_text()
    assert r"\"SuperPodID\":7,\"ServerIndex\":5" in text
    agent.hardware.occur(15, FAULT)
    agent.shows(lambda shown: shown.codes(15) == {FAULT}, "occurred")


def test_no_subscription(
    folder: Folder, make_agent: MakeAgent, compiled: Callable[..., Path]
) -> None:
    silent = make_agent(folder, "silent", compiled("NO_SUBSCRIBE"))
    refused = make_agent(folder, "refused", compiled("NO_CHIP_INFO_V2", "NO_MAINBOARD"))
    refused.hardware.command("answer", "dcmi_subscribe_fault_event", value=-8255)
    for agent in (silent, refused):
        agent.start()
    for agent in (silent, refused):
        agent.up()
        agent.hardware.occur(11, FAULT)
    for agent in (silent, refused):
        agent.shows(lambda shown: shown.codes(11) == {FAULT}, "found by polls", 7)
        assert agent.status()["driver"]["polling_reason"]
