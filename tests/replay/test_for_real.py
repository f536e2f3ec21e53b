"""Eight recordings of the real device plugin for real: agents as processes on the emulated library,
a real API server, real time. They run side by side, each with a node of its own."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from contract.codes.levels import Severity
from dcmi_shim.emulator.install import install
from dcmi_shim.emulator.switch_faults import EmulatedSwitchFault, code_of
from stores.address import open_store
from tests.compatibility import Difference, unlisted
from tests.end_to_end.node import Node
from tests.parts.places import Cluster
from tests.replay.beside import missing_events
from tests.replay.comparison import compared
from tests.replay.on_cluster import do, events_of
from tests.replay.player import recorded
from tests.replay.real import CannotPlay, RealPlay

if TYPE_CHECKING:
    from pathlib import Path

    from tests.parts.controlplane import ControlPlane

FOR_REAL = (
    "configmap-deleted-while-running",
    "frequency-manual-operator-release",
    "level-separate-npu",
    "network-and-chip-fault-on-one-chip",
    "one-off-events",
    "pre-separate-on-used-and-idle-chips",
    "restart-with-active-faults",
    "switch-fault-occur-recover",
)
_PEERS = {0: "cpu", 1: "npu", 2: "L2"}
_OCCUR = 1


class EmulatedNode:
    """A ``Machine`` on the emulated library."""

    def __init__(self, node: Node) -> None:
        self.name = node.name
        self._node = node
        node.environment["VIGIL_BMC_ENABLED"] = "false"

    def file(self, name: str, text: str) -> Path:
        raise CannotPlay("none of these has files")

    def start(self) -> None:
        self._node.start()

    def stop(self) -> None:
        if self._node.process.status is None:
            status, _ = self._node.stop()
            assert status == 0

    def kill(self) -> None:
        raise CannotPlay("none of these is killed")

    def do(self, step: dict[str, Any]) -> None:
        emulator = self._node.emulator
        match step["do"]:
            case "occur":
                emulator.occur(step["chip"], step["code"], Severity(step["severity"]))
            case "recover":
                emulator.recover(step["chip"], step["code"])
            case "once":
                emulator.once(step["chip"], step["code"], Severity(step["severity"]))
            case "link":
                emulator.link(step["chip"], up=step["state"] == "UP")
            case "switch":
                code = code_of(
                    step["event_type"], str(step["sub_type"]), _PEERS[step["peer_device"]]
                )
                fault = EmulatedSwitchFault(
                    code, step["switch_chip"], step["switch_port"], step["peer_port"]
                )
                if step["assertion"] == _OCCUR:
                    emulator.switch_occur(fault, Severity(step["severity"]))
                else:
                    emulator.switch_recover(fault)
            case other:
                raise CannotPlay(f"this hardware cannot {other}")


async def play(plane: ControlPlane, name: str, node: Node, gate: asyncio.Lock) -> list[Difference]:
    """Play one recording on ``node``: what differs, and is not in the table."""
    recording = recorded(name)

    store = open_store("kubernetes:", plane.kubeconfig)
    try:
        shown = await RealPlay(
            recording, EmulatedNode(node), store, partial(do, plane), gate=gate
        ).run()
    finally:
        await store.close()
    events = [row["event"] for row in recording["observed"] if "event" in row]
    posted = await asyncio.to_thread(events_of, plane, node.name)
    found = [*compared(recording, shown, for_real=True), *missing_events(events, posted)]
    return unlisted(f"device-plugin/{name}", found)


@pytest.mark.apiserver
@pytest.mark.timeout(120)
async def test_recordings(control_plane: ControlPlane, built: Path, tmp_path: Path) -> None:
    a3 = tmp_path / "a3"
    install(a3 / "driver", a3 / "emulator", "a3")
    nodes = {}
    for number, name in enumerate(FOR_REAL):
        profile = recorded(name)["profile"]
        driver = a3 if profile == "a3" else built
        place = Cluster(control_plane)
        nodes[name] = Node(tmp_path / name, driver, place, f"node-{number}", profile)
    try:
        gate = asyncio.Lock()
        plays = [play(control_plane, *one, gate) for one in nodes.items()]
        found = await asyncio.gather(*plays)
    finally:
        for node in nodes.values():
            node.close()
    differing = {name: differs for name, differs in zip(nodes, found, strict=True) if differs}
    assert differing == {}, differing
