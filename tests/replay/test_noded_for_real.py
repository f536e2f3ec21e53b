"""Eight recordings of the real NodeD for real: agents as processes on the emulated BMC, a real API
server, real time, at three times its speed. They run side by side, each with a node of its own."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from contract.codes.levels import Severity
from dcmi_shim.emulator.bmc import BmcAlarm
from dcmi_shim.emulator.install import IPMI_PRELOAD
from stores.address import open_store
from tests.end_to_end.node import Node
from tests.parts.places import Cluster
from tests.replay.noded import recorded_node
from tests.replay.noded_real import NodedPlay, period_of
from tests.replay.on_cluster import do, serial_number_on
from tests.replay.real import CannotPlay

if TYPE_CHECKING:
    from pathlib import Path

    from tests.compatibility import Difference
    from tests.parts.controlplane import ControlPlane

FOR_REAL = (
    "bmc-appears-during-start",
    "healthy-start-removes-stale-configmap",
    "index-overflow",
    "serial-number",
    "serial-number-falls-back-to-manufacturer",
    "serial-number-node-without-annotations",
    "serial-number-padded",
    "update-time-with-time-zone",
)
SPEED = 3.0
_SERIAL, _MANUFACTURER = "2102314ORACLE0001", "Huawei"


class EmulatedServer:
    """A ``NodedMachine`` on the emulated BMC, through the device or the tool."""

    def __init__(self, node: Node, directory: Path, way: str) -> None:
        self._node = node
        self._runs = False
        self._bmc = node.emulator.bmc
        self._bmc.label(_SERIAL, _MANUFACTURER)
        node.give_bmc(directory, period_of(node.name) / SPEED)
        if way == "device":
            device = node.environment["VIGIL_BMC_DEVICE"]
            node.environment |= {
                "LD_PRELOAD": str(node.driver_root / IPMI_PRELOAD),
                "VIGIL_IPMI_DEVICE": device,
            }

    def bmc(self, step: dict[str, Any]) -> None:
        if step.keys() & {"delay_ms", "events_per_reply"} or step["do"] != "bmc":
            raise CannotPlay("none of these has such a BMC")
        if "present" in step:
            self._bmc.present(step["present"])
        if "serial" in step:
            self._bmc.label(step["serial"])
        if "alarms" in step:
            self._bmc.alarms(
                BmcAlarm(code, f"0x{kind:02X}", index, Severity(severity))
                for code, kind, index, severity in step["alarms"]
            )
        if "raw_replies" in step:
            replies = [(one["for"], bytes.fromhex(one["reply"])) for one in step["raw_replies"]]
            self._bmc.replies(replies)

    def file(self, step: dict[str, Any]) -> None:
        raise CannotPlay("none of these has files")

    def start(self, environment: dict[str, str]) -> None:
        if self._runs:
            return
        self._node.environment |= environment
        self._node.start()
        self._runs = True
        self._node.wait(self._asks, "the agent asks the BMC", 30)

    def _asks(self) -> bool:
        try:
            status = self._node.status()
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        return "bmc" in [*status["answered"], *(one["source"] for one in status["blind"])]

    def stop(self) -> None:
        if self._runs:
            self._runs = False
            status, _ = self._node.stop()
            assert status == 0

    def kill(self) -> None:
        raise CannotPlay("none of these is killed")


async def play(
    plane: ControlPlane, name: str, server: EmulatedServer, gate: asyncio.Lock
) -> list[Difference]:
    """Play one recording: what differs, and is not in the table."""
    store = open_store("kubernetes:", plane.kubeconfig)
    try:
        return await NodedPlay(
            recorded_node(name),
            server,
            store,
            partial(do, plane),
            partial(serial_number_on, plane),
            SPEED,
            gate,
        ).run()
    finally:
        await store.close()


@pytest.mark.apiserver
@pytest.mark.timeout(180)
async def test_recordings(control_plane: ControlPlane, built: Path, tmp_path: Path) -> None:
    nodes, servers = [], {}
    for number, name in enumerate(FOR_REAL):
        directory = tmp_path / str(number)  # short: a socket lies in it, whose path is limited
        steps = recorded_node(name)["steps"]
        node_name = next(step["node_name"] for step in steps if step["do"] == "start-agent")
        node = Node(directory, built, Cluster(control_plane), node_name)
        nodes.append(node)
        servers[name] = EmulatedServer(node, directory, ("device", "tool")[number % 2])
    try:
        gate = asyncio.Lock()
        plays = [play(control_plane, *one, gate) for one in servers.items()]
        found = await asyncio.gather(*plays)
    finally:
        for node in nodes:
            node.close()
    assert {name: differs for name, differs in zip(servers, found, strict=True) if differs} == {}
