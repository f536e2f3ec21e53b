"""``node-info-only``: an agent that may not touch device-info does its part."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dcmi_shim.emulator.bmc import BmcAlarm
from tests.end_to_end.node import Node
from tests.packaging.accounts import AGENT, NAMESPACE, Granted, applied, asked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.parts.controlplane import ControlPlane


@pytest.fixture
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    with applied(control_plane, "overlays/node-info-only"):
        yield control_plane


@pytest.mark.apiserver
@pytest.mark.timeout(120)
def test_it_needs_no_right_on_device_info(plane: ControlPlane, tmp_path: Path, built: Path) -> None:
    node = Node(tmp_path / "node", built, Granted(plane))
    node.give_bmc(tmp_path / "node")
    node.environment["VIGIL_DOCUMENTS"] = "node-info"
    node.emulator.bmc.occur(BmcAlarm("06000025", "Fan", 3))
    node.emulator.occur(3, "80E01801")
    node.emulator.bmc.label(serial="2102313LNR10P5000012")

    def annotations() -> dict[str, str]:
        metadata = plane.request("GET", "/api/v1/nodes/node-1")["metadata"]
        found: dict[str, str] = metadata.get("annotations", {})
        return found

    try:
        node.start()
        node.wait(lambda: node.parts() == [("Fan", 3, ["06000025"])], "the alarm", 20)
        node.wait(lambda: node.ask("/readyz")[0] == 200, "it is ready")
        node.wait(lambda: node.status()["heartbeat"]["beats"] > 0, "it beats")
        node.wait(lambda: len(node.status()["faults"]) == 2, "chips are watched for metrics")
        number = "2102313LNR10P5000012"
        node.wait(lambda: annotations().get("product-serial-number") == number, "it has the number")
        elsewhere = {right for right in asked(plane, AGENT) if right[0] != NAMESPACE}
        reads = {("kube-system", "", "configmaps", verb) for verb in ("list", "watch")}
        of_the_node = {("", "", "nodes", verb) for verb in ("list", "watch")}
        of_the_node.add(("", "", "nodes/status", "patch"))
        assert elsewhere == reads | of_the_node, "by which chips are judged, and the serial number"
        assert node.status()["fault_configuration"]["trouble"] is None
    finally:
        node.close()
