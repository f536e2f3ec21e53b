"""``vigil release NODE --taint`` on a real API server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from vigil.main import app

if TYPE_CHECKING:
    from typer.testing import Result

    from tests.parts.controlplane import ControlPlane

pytestmark = pytest.mark.apiserver

NODE = "/api/v1/nodes/n1"
OTHER = {"key": "other", "effect": "NoSchedule"}
OURS = {"key": "npu-vigil/fault", "value": "SeparateNPU", "effect": "NoSchedule"}


def release(plane: ControlPlane, *options: str, node: str = "n1") -> Result:
    arguments = ["release", node, "--taint", "--kubeconfig", str(plane.kubeconfig), *options]
    return CliRunner().invoke(app, arguments)


def keys(plane: ControlPlane) -> list[str]:
    return [taint["key"] for taint in plane.request("GET", NODE)["spec"].get("taints", ())]


def test_an_operator_removes_the_taint_and_nothing_else(control_plane: ControlPlane) -> None:
    plane = control_plane
    plane.ask("DELETE", NODE)
    metadata = {"name": "n1", "labels": {"kubernetes.io/hostname": "n1"}}
    plane.request("POST", "/api/v1/nodes", {"metadata": metadata})
    plane.request("PATCH", NODE, {"spec": {"taints": [OTHER, OURS]}})
    shown = release(plane, "--dry-run")
    assert (shown.exit_code, keys(plane)) == (0, ["other", "npu-vigil/fault"])
    assert "would remove the taint npu-vigil/fault=SeparateNPU:NoSchedule" in shown.output
    assert release(plane).exit_code == 2, "without a terminal nobody agrees"
    done = release(plane, "--yes", "--json")
    assert (done.exit_code, keys(plane)) == (0, ["other"])
    answer = json.loads(done.output)
    assert (answer["changed"], answer["taint"]) == (True, "npu-vigil/fault")
    managers = plane.request("GET", NODE)["metadata"]["managedFields"]
    assert "npu-vigil-operator" in {entry["manager"] for entry in managers}
    again = release(plane, "--yes")
    assert (again.exit_code, again.output) == (1, "node n1 has no taint npu-vigil/fault\n")
    assert release(plane, "--yes", node="nobody").exit_code == 2
    plane.request("DELETE", NODE)


def test_a_chip_and_the_taint_exclude_each_other(control_plane: ControlPlane) -> None:
    both = release(control_plane, "3")
    assert both.exit_code == 2
    neither = CliRunner().invoke(app, ["release", "n1"])
    assert neither.exit_code == 2
    assert "give either CHIP or --taint" in neither.output
