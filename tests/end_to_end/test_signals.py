"""Signals to both daemons, and descriptors that are closed when they start."""

from __future__ import annotations

import json
import signal
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.aggregator.daemon import Daemon
from tests.parts.controlplane import LEASES
from tests.parts.deadlines import let_time_pass, patience

if TYPE_CHECKING:
    from pathlib import Path

    from tests.end_to_end.node import Node
    from tests.parts.places import Cluster
    from tests.parts.processes import Running

pytestmark = pytest.mark.exec

FAULT = "80E01801"
WITHOUT_MEANING = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)
ABSENCE_SECONDS = 300


def announced_seconds(beats: Path, node: str) -> float:
    """Return how long the heartbeat in a directory allows its node to be silent."""
    seconds: float = 3 * json.loads((beats / f"{node}.json").read_text())["interval_seconds"]
    return seconds


@pytest.mark.parametrize("redirections", ["2>&-", "0<&- >&- 2>&-"])
def test_closed_descriptors_silence_no_log(folder_node: Node, redirections: str) -> None:
    shell = ("/bin/sh", "-c", f'exec "$@" {redirections}', "sh")
    folder_node.start((*shell, sys.executable, "-m", "vigil"))
    folder_node.healthy()
    folder_node.emulator.occur(3, FAULT)
    folder_node.until(lambda now: now.codes(3) == {FAULT}, "the fault is shown")


def test_signals_without_meaning_change_nothing(folder_node: Node, tmp_path: Path) -> None:
    node = folder_node
    aggregator = Daemon(tmp_path / "aggregator", *node.place.options)
    try:
        node.start()
        node.healthy()
        aggregator.start()
        agent = psutil.Process(node.process.pid)
        for number in WITHOUT_MEANING:
            # A service manager sends it to the driver's process, too.
            for process in (agent, *agent.children(recursive=True)):
                process.send_signal(number)
            aggregator.process.signal(number)
        node.emulator.occur(3, FAULT)
        node.until(lambda now: now.codes(3) == {FAULT}, "the fault is shown")
        assert aggregator.ask("/healthz")[0] == 200
        assert node.process.status is None
        assert "the driver process was ended" not in node.logged()
    finally:
        aggregator.stop()


def ended_by_many(process: Running) -> int:
    """Send SIGTERM every 5 ms until the process has ended; its status."""
    give_up = time.monotonic() + patience(20)
    while (now := process.status) is None:
        assert time.monotonic() < give_up
        process.signal(signal.SIGTERM)
        let_time_pass(0.005)
    return now


def test_an_agent_that_gets_many_signals_ends_in_order(folder_node: Node, tmp_path: Path) -> None:
    node = folder_node
    node.environment["VIGIL_HEARTBEAT_ABSENCE_SECONDS"] = str(ABSENCE_SECONDS)
    node.start()
    node.healthy()
    assert ended_by_many(node.process) == 0
    assert announced_seconds(tmp_path / "store" / "beats", node.name) == ABSENCE_SECONDS
    assert node.journal("stop") == [{"reason": "Stopped: a signal requested it"}]


def test_a_leader_that_gets_many_signals_lets_others_lead(cluster: Cluster, tmp_path: Path) -> None:
    aggregator = Daemon(tmp_path / "aggregator", *cluster.options)
    try:
        aggregator.start()
        assert ended_by_many(aggregator.process) == 0
        lease = cluster.plane.request("GET", f"{LEASES}/npu-vigil-aggregator")
        assert not lease["spec"].get("holderIdentity")
    finally:
        aggregator.stop()
