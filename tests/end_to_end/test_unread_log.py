"""Standard error is not read: faults, heartbeats and the leader's Lease go on all the same."""

from __future__ import annotations

import re
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.aggregator.daemon import Daemon
from tests.aggregator.nodes import published, unhealthy
from tests.parts.controlplane import LEASES
from tests.parts.deadlines import let_time_pass, patience
from tests.parts.places import Cluster
from tests.parts.talkative import PRINTED
from tests.parts.unread import UnreadPipe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.end_to_end.node import Node

FAULT = "80E01801"
CHIPS = 8
LINES = 8_000
UNREAD_SECONDS = 10.5
NOTICE = re.compile(r"WARNING service\.log: (\d+) lines? of the log dropped")
DROPPED = re.compile(r"^npu_vigil_log_lines_dropped_total (\S+)$", re.MULTILINE)
PROGRAM = "tests.parts.talkative"


@pytest.fixture
def pipes() -> Iterator[list[UnreadPipe]]:
    """Yield one pipe for each daemon, full from the beginning."""
    both = [UnreadPipe(), UnreadPipe()]
    yield both
    for pipe in both:
        pipe.close()


@pytest.fixture
def both(node: Node, pipes: list[UnreadPipe], tmp_path: Path) -> Iterator[tuple[Node, Daemon]]:
    """Yield agent and aggregator on each kind of store, with logs in the pipes; not started."""
    node.options += ["--heartbeat-interval-seconds", "1"]
    node.environment["TALKATIVE_LINES"] = str(LINES)
    node.output = pipes[0].writer
    aggregator = Daemon(tmp_path / "aggregator", *node.place.options)
    aggregator.program = PROGRAM
    aggregator.environment["TALKATIVE_LINES"] = str(LINES)
    aggregator.output = pipes[1].writer
    yield node, aggregator
    aggregator.stop()
    node.close()


def in_the_cluster(node: Node) -> set[str]:
    """Return the unhealthy chips in cluster-info."""
    data = node.place.read("cluster-info-device-0")
    entries = {} if data is None else published(data["cluster-info-device-0"])
    return set(unhealthy(entries[node.name]).split(",")) if entries else set()


def dropped(exposition: str) -> int:
    found = DROPPED.search(exposition)
    assert found is not None
    return int(float(found[1]))


@pytest.mark.timeout(180)
def test_a_log_that_is_not_read_silences_no_node(
    both: tuple[Node, Daemon], pipes: list[UnreadPipe]
) -> None:
    node, aggregator = both
    node.start((sys.executable, "-m", PROGRAM))
    node.healthy()
    aggregator.start()
    begin = time.monotonic()
    beats = [_beats(node)]
    renewals = {_renewal(node)}
    for chip in range(CHIPS):
        node.emulator.occur(chip, FAULT)
        _is_shown(node, chip)
        renewals.add(_renewal(node))
        let_time_pass(begin + (chip + 1) * UNREAD_SECONDS / CHIPS - time.monotonic())
        beats.append(_beats(node))
    passed = time.monotonic() - begin
    assert beats[-1] - beats[0] >= 0.5 * passed, "heartbeats of one second"
    # On a busy machine three intervals of one second may pass without a beat.
    node.wait(lambda: aggregator.node(node.name)["heartbeat"] == "alive", "it is alive")
    if isinstance(node.place, Cluster):
        assert len(renewals) > 2, "the leader renews its Lease"
    expositions = (node.ask("/metrics")[1], aggregator.ask("/metrics")[1])
    for pipe, exposition in zip(pipes, expositions, strict=True):
        assert not pipe.lines()
        assert dropped(exposition) > LINES // 2
        pipe.read_on()
        _is_named(node, pipe)
    statuses = (node.stop()[0], aggregator.process.stop())
    assert statuses == (0, 0)
    for pipe in pipes:
        _is_whole(pipe.all_lines())


def _beats(node: Node) -> int:
    beats: int = node.status()["heartbeat"]["beats"]
    return beats


def _renewal(node: Node) -> Any:
    """Return when the leader renewed its Lease; ``None`` on a store without Leases."""
    if not isinstance(node.place, Cluster):
        return None
    lease = node.place.plane.request("GET", f"{LEASES}/npu-vigil-aggregator")
    return lease["spec"]["renewTime"]


def _is_shown(node: Node, chip: int) -> None:
    """Wait until node and cluster show the fault of ``chip``, whatever is logged meanwhile."""
    node.until(lambda now: now.codes(chip) == {FAULT}, f"the fault of chip {chip}", 15)
    name = f"Ascend910-{chip}"
    node.wait(lambda: name in in_the_cluster(node), f"{name} in cluster-info", 15)


def _is_named(node: Node, pipe: UnreadPipe) -> None:
    node.wait(lambda: any(map(NOTICE.search, pipe.lines())), "what was dropped is named")


def _is_whole(lines: list[str]) -> None:
    """Check that the lines are in order and that one line counts the missing ones."""
    assert lines.count(PRINTED) == 2
    numbers = [int(number) for number in re.findall(r"line (\d{6}) of", "\n".join(lines))]
    assert numbers == list(range(len(numbers)))
    (count,) = (int(found[1]) for found in map(NOTICE.search, lines) if found is not None)
    assert count >= LINES - len(numbers) > 0


def test_the_end_waits_for_no_reader(folder_node: Node, pipes: list[UnreadPipe]) -> None:
    folder_node.output = pipes[0].writer
    folder_node.start()
    folder_node.healthy()
    begin = time.monotonic()
    folder_node.process.signal(signal.SIGTERM)
    assert folder_node.process.wait(patience(40)) == 0
    assert time.monotonic() - begin < patience(15)


def test_wrong_use_ends_although_its_text_is_not_read(
    folder_node: Node, pipes: list[UnreadPipe]
) -> None:
    folder_node.output = pipes[0].writer
    folder_node.options += ["--listen", "nowhere"]
    folder_node.start()
    assert folder_node.process.wait(patience(50)) == 2
