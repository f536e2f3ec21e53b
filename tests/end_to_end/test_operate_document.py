"""``docs/operate.md`` shows what its commands print, in the scene that it describes."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.aggregator.daemon import Daemon
from tests.end_to_end.node import SEPARATES
from tests.parts import pods
from tests.parts.tree import ROOT
from tests.parts.verbs import run_vigil

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.end_to_end.node import Node
    from tests.parts.controlplane import ControlPlane

_BLOCK = re.compile(r"(?<=```console\n)(node-1)?\$ vigil (.*)\n[^`]*(?=```)")
_READY = {"type": "Ready", "status": "True", "reason": "made", "message": "by a test"}
_QUESTIONS = 10
_OF_AN_ISOLATED_CHIP = "explain node-1/5"


@pytest.fixture
def scene(cluster_node: Node, control_plane: ControlPlane, tmp_path: Path) -> Iterator[Daemon]:
    """Start a node with a job on chip 3, which has a fault; yield the started aggregator."""
    node = {"metadata": {"name": "node-1"}, "status": {"conditions": [_READY]}}
    control_plane.request("POST", "/api/v1/nodes", node)
    owner = pods.owned_by("u", "train")
    pods.make(control_plane, "train-0", "node-1", "Ascend910-3", owner=owner)
    cluster_node.give_bmc(tmp_path)
    cluster_node.start()
    cluster_node.up()
    cluster_node.wait(lambda: cluster_node.ask("/readyz")[0] == 200, "it is ready")
    cluster_node.wait(lambda: not cluster_node.status()["blind"], "every source answers")
    daemon = Daemon(tmp_path / "aggregator", *cluster_node.place.options)
    daemon.start()
    cluster_node.emulator.occur(3, SEPARATES)

    def is_seen() -> bool:
        jobs = daemon.ask("/api/v1/jobs")[1]["jobs"]
        history = daemon.ask("/api/v1/history")[1]["events"]
        about = daemon.ask("/api/v1/nodes/node-1")[1]
        is_alive = about["node"]["heartbeat"] == "alive"
        return bool(jobs and history) and is_alive and all(about["documents"].values())

    cluster_node.wait(is_seen, "the fault is published, and in the history")
    yield daemon
    daemon.stop()


@pytest.mark.apiserver
@pytest.mark.usefixtures("scene")
def test_the_document_shows_what_its_commands_print(cluster_node: Node, tmp_path: Path) -> None:
    document = ROOT / "docs" / "operate.md"
    text = document.read_text(encoding="utf-8")
    # Short names: a path that is wider than the terminal is broken.
    short = Path(tempfile.mkdtemp())
    agent, aggregator = str(short / "n"), str(short / "c")
    Path(agent).symlink_to(cluster_node.state_dir)
    Path(aggregator).symlink_to(tmp_path / "aggregator")
    places = {agent: "/var/lib/npu-vigil", aggregator: "/var/lib/npu-vigil-aggregator"}

    def change(verb: str, *more: str) -> None:
        options = (*more, "--yes", *cluster_node.place.options)
        assert run_vigil(verb, "node-1", "5", *options)[0] == 0

    def run(block: re.Match[str]) -> str:
        place = agent if block[1] else aggregator
        is_isolated = block[2] == _OF_AN_ISOLATED_CHIP
        if is_isolated:
            change("isolate", "--reason", "HBM is replaced")
        _, lines, errors = run_vigil(*block[2].split(), VIGIL_STATE_DIR=place, COLUMNS="100")
        assert errors == ""
        if is_isolated:
            change("release")
        first = f"{block[1] or ''}$ vigil {block[2]}"
        return "\n".join([first, *lines, ""])

    shown, count = _BLOCK.subn(run, text)
    assert count == _QUESTIONS
    for name, usual in places.items():
        shown = shown.replace(name, usual)
    shown = re.sub(r"(leader: +)\S+", r"\1aggregator-1", shown)
    shown = re.sub(r"\S+@\S+(?=\s+\(as\s+stated)", "alice@laptop", shown)
    shutil.rmtree(short)
    made = tmp_path / "operate.md"
    made.write_text(shown, encoding="utf-8")
    assert _without_times(shown) == _without_times(text), f"{made} is what it has to be"


def _without_times(text: str) -> list[str]:
    """Return the words; what differs from run to run is left out."""
    text = re.sub(r"\b(\d{4}-\d\d-\d\d\s)?\d\d:\d\d:\d\d\b", "TIME", text)
    text = re.sub(r"\b\d+\s(s|min|h|d)\sago", "AGO", text)
    text = re.sub(r"\bversion \S+", "VERSION", text)
    return text.split()
