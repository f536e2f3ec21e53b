"""An agent in shadow beside a writer that writes what the real Device Plugin wrote.

The API server writes down what the agent asks of it: nothing but to read, whatever it may.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.end_to_end.node import Node
from tests.packaging.accounts import AGENT, Granted, applied, asked, granted
from tests.replay.player import recorded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.parts.controlplane import ControlPlane

RECORDING, ANOTHER = "level-restart-npu", "level-separate-npu"
DOCUMENT = "mindx-dl-deviceinfo-node-1"


@pytest.fixture
def plane(control_plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """Yield the API server with the objects of one folder applied."""
    with applied(control_plane, request.param):
        yield control_plane


def played(name: str) -> tuple[dict[str, Any], dict[str, str], dict[str, str]]:
    """Return the step of a recording that makes a fault, and its documents without and with it."""
    recording = recorded(name)
    occur = next(step for step in recording["steps"] if step["do"] == "occur")
    healthy, faulty, _ = [row["data"] for row in recording["observed"] if "data" in row]
    return occur, healthy, faulty


def results(node: Node) -> dict[str, int]:
    counts: dict[str, int] = node.status()["shadow"]["writes"]
    return {result: count for result, count in counts.items() if count}


@pytest.mark.apiserver
@pytest.mark.timeout(120)
@pytest.mark.parametrize("plane", ["base", "overlays/shadow"], indirect=True)
def test_it_only_reads(
    plane: ControlPlane, tmp_path: Path, built: Path, request: pytest.FixtureRequest
) -> None:
    occur, healthy, faulty = played(RECORDING)
    other, _, wrong = played(ANOTHER)
    node = Node(tmp_path / "node", built, Granted(plane))
    node.give_bmc(tmp_path / "node")
    node.options = ["--shadow"]
    try:
        node.place.write(DOCUMENT, healthy)
        node.start()
        node.up()
        node.wait(lambda: node.ask("/readyz")[0] == 200, "it is ready")
        node.wait(lambda: results(node) == {"same": 1}, "what was there is right")
        node.emulator.occur(occur["chip"], occur["code"])
        node.wait(lambda: bool(node.status()["faults"]), "the fault is seen")
        node.place.write(DOCUMENT, faulty)
        node.wait(lambda: results(node) == {"same": 2}, "the fault is written")
        node.place.write(DOCUMENT, wrong)
        node.wait(lambda: results(node) == {"same": 2, "different": 1}, "that is a mistake", 15)
        (shown,) = differences_of(node)
        chip = f"Ascend910-{occur['chip']}"
        assert other["chip"] == occur["chip"]
        assert shown["reported"] == f"{chip}: fault_code {occur['code']} missing"
        assert f"{chip}: fault_code {other['code']}" in shown["also"]
        assert shown["over_at_ms"] is None
        node.place.write(DOCUMENT, {"DeviceInfoCfg": "{"})
        node.wait(lambda: "unreadable" in results(node), "it cannot be read")
        node.place.write(DOCUMENT, faulty)
        node.wait(lambda: results(node)["same"] == 3, "the fault is written again")
        assert all(one["over_at_ms"] is not None for one in differences_of(node))
        metrics = node.ask("/metrics")[1]
        assert 'npu_vigil_shadow_writes_total{result="different"} 1.0' in metrics
        assert 'npu_vigil_shadow_differences_total{field="fault_code"} 1.0' in metrics
        assert node.stop()[0] == 0
        rows = node.journal("shadow")
        assert [row["field"] for row in rows] == ["fault_code", "document"]
        assert node.logged().count(shown["reported"]) == 1
        read = asked(plane, AGENT)
        assert {right[3] for right in read} <= {"get", "list", "watch"}
        if "shadow" in request.node.callspec.id:
            assert read == granted(AGENT, "overlays/shadow")
        leases = "/apis/coordination.k8s.io/v1/leases"
        assert "node-1" not in json.dumps(plane.request("GET", leases))
    finally:
        node.close()


def differences_of(node: Node) -> list[Any]:
    shown: list[Any] = node.status()["shadow"]["reported"]
    return shown
