"""The serial number of the server on its Node, by a real agent (``noded#4.2``, D-16)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from pathlib import Path

    from tests.end_to_end.node import Node
    from tests.parts.controlplane import ControlPlane
    from tests.parts.places import Cluster

KEY = "product-serial-number"
NUMBER = "2102313LNR10P5000012"


class Watched:
    """The Node object of one node."""

    def __init__(self, plane: ControlPlane, name: str) -> None:
        self._plane = plane
        self._name = name

    def create(self, annotations: dict[str, str] | None = None) -> None:
        metadata: dict[str, Any] = {"name": self._name}
        if annotations is not None:
            metadata["annotations"] = annotations
        self._plane.request("POST", "/api/v1/nodes", {"metadata": metadata})

    def annotations(self) -> dict[str, str]:
        metadata = self._plane.request("GET", f"/api/v1/nodes/{self._name}")["metadata"]
        found: dict[str, str] = metadata.get("annotations", {})
        return found

    def annotate(self, value: str | None) -> None:
        body = {"metadata": {"annotations": {KEY: value}}}
        self._plane.request("PATCH", f"/api/v1/nodes/{self._name}", body)


@pytest.fixture
def node(cluster_node: Node, tmp_path: Path) -> Node:
    """Return a node that owns node-info only, so that nothing else is written; not started."""
    cluster_node.give_bmc(tmp_path)
    cluster_node.environment["VIGIL_DOCUMENTS"] = "node-info"
    cluster_node.emulator.bmc.label(serial=NUMBER)
    return cluster_node


@pytest.fixture
def watched(cluster: Cluster, node: Node) -> Watched:
    return Watched(cluster.plane, node.name)


def shows(node: Node, watched: Watched, number: str, seconds: float = 20) -> float:
    return node.wait(lambda: watched.annotations().get(KEY) == number, f"it is {number}", seconds)


@pytest.mark.apiserver
@pytest.mark.timeout(60)
def test_on_a_node_without_annotations(node: Node, watched: Watched) -> None:
    watched.create()
    node.start()
    shows(node, watched, NUMBER)
    assert watched.annotations() == {KEY: NUMBER}
    assert node.status()["serial_number"] == {"number": NUMBER, "trouble": None}


@pytest.mark.apiserver
@pytest.mark.timeout(90)
def test_it_is_repaired_and_followed_over_a_restart(node: Node, watched: Watched) -> None:
    watched.create({KEY: "OLD", "a": "b"})
    node.start()
    shows(node, watched, NUMBER)
    watched.annotate(None)
    assert shows(node, watched, NUMBER) < patience(1)
    node.kill()
    node.emulator.bmc.label(serial="CHANGED0001")
    node.start()
    shows(node, watched, "CHANGED0001")
    assert watched.annotations()["a"] == "b"


@pytest.mark.apiserver
@pytest.mark.timeout(60)
def test_bmc_and_node_come_later(node: Node, watched: Watched) -> None:
    node.emulator.bmc.replies([("90@4", bytes.fromhex("c1"))])
    node.start()
    node.up()
    node.wait(lambda: "0xc1" in (node.status()["serial_number"]["trouble"] or ""), "refused", 20)
    node.emulator.bmc.ok()
    node.wait(lambda: node.status()["serial_number"]["number"] == NUMBER, "it is known")
    watched.create()
    shows(node, watched, NUMBER)


@pytest.mark.apiserver
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("reply", "number"),
    [("00 00 20 20 32 31 30 32 33 41 42 43 20 20 00 00 00", "21023ABC"), ("00 00", "Huawei")],
    ids=["padded", "manufacturer"],
)
def test_serial_number_is_trimmed_or_replaced_by_the_manufacturer(
    node: Node, watched: Watched, reply: str, number: str
) -> None:
    watched.create({"a": "b"})
    node.emulator.bmc.replies([("90@4", bytes.fromhex(reply))])
    node.start()
    shows(node, watched, number)


@pytest.mark.apiserver
@pytest.mark.timeout(60)
def test_nothing_printable_leaves_the_node_as_it_is(node: Node, watched: Watched) -> None:
    watched.create({KEY: "OLD"})
    node.emulator.bmc.replies([("90@4", bytes(6))])
    node.start()
    node.up()
    node.wait(lambda: node.status()["serial_number"]["trouble"] is not None, "it says so", 20)
    assert watched.annotations() == {KEY: "OLD"}


@pytest.mark.apiserver
@pytest.mark.timeout(60)
def test_an_agent_that_is_to_leave_the_node_alone_shows_it(node: Node, watched: Watched) -> None:
    node.environment["VIGIL_NODE_LABELS_ENABLED"] = "false"
    watched.create({"a": "b"})
    node.start()
    node.up()
    node.wait(lambda: node.status()["serial_number"]["number"] == NUMBER, "it is known", 20)
    node.wait(lambda: node.status()["heartbeat"]["beats"] > 0, "it may write")
    assert watched.annotations() == {"a": "b"}


@pytest.mark.timeout(60)
def test_without_a_node_object_it_is_shown(folder_node: Node, tmp_path: Path) -> None:
    node = folder_node
    node.give_bmc(tmp_path)
    node.emulator.bmc.label(serial=NUMBER)
    node.start()
    node.up()
    node.wait(lambda: node.status()["serial_number"]["number"] == NUMBER, "it is known", 20)
