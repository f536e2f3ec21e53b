"""A real aggregator that writes conditions of Nodes of a real API server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.aggregator.nodes import T0, faulty, healthy, report
from tests.parts.deadlines import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stores.base import Store
    from tests.aggregator.conftest import Make
    from tests.aggregator.daemon import Daemon
    from tests.parts.controlplane import ControlPlane

pytestmark = pytest.mark.apiserver

NODE = "/api/v1/nodes/n1"
TYPES = ("NPUHealthy", "NPULinksHealthy", "NodeHardwareHealthy", "NPUWatched")


@pytest.fixture
def kind() -> str:
    return "kubernetes"


@pytest.fixture
def node(control_plane: ControlPlane) -> Iterator[str]:
    control_plane.ask("DELETE", NODE)
    control_plane.request("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})
    yield "n1"
    control_plane.ask("DELETE", NODE)


def conditions(plane: ControlPlane) -> dict[str, dict[str, Any]]:
    status = plane.request("GET", NODE).get("status", {})
    return {condition["type"]: condition for condition in status.get("conditions", ())}


def aggregator(make: Make, plane: ControlPlane, **environment: str) -> Daemon:
    daemon = make("kubernetes:", plane.kubeconfig)
    daemon.environment = {f"VIGIL_{name}": value for name, value in environment.items()}
    daemon.start()
    return daemon


async def test_conditions_follow_the_faults_of_a_node(
    control_plane: ControlPlane, store: Store, make: Make, node: str
) -> None:
    await store.put(report(node, healthy()))
    aggregator(make, control_plane, NODE_CONDITIONS_ENABLED="true")
    await until(lambda: conditions(control_plane).get("NPUHealthy", {}).get("status") == "True")
    await store.put(report(node, faulty(update_time=T0 + 1)))
    await until(lambda: conditions(control_plane)["NPUHealthy"]["status"] == "False")
    shown = conditions(control_plane)["NPUHealthy"]
    assert "Ascend910-3" in shown["message"]
    await store.put(report(node, healthy(update_time=T0 + 2)))
    await until(lambda: conditions(control_plane)["NPUHealthy"]["status"] == "True")
    # The watch of no heartbeat is held for 15 s after the begin.
    assert "NPUWatched" not in conditions(control_plane)
