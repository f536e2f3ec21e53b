"""Three emulated nodes with a real agent each, one aggregator, a real API server or broker."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dcmi_shim.emulator.control import Emulator
from dcmi_shim.emulator.install import IPMITOOL, install
from stores.address import open_store
from tests.parts.broker import Broker
from tests.parts.controlplane import ControlPlane
from tests.parts.processes import PartFailed, Running

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import Self

    from stores.base import Store

NODES = ("bench-1", "bench-2", "bench-3")
CHIPS = 16
PROFILE = "a3"
"""Every source of a node has something to report: chips, links, switches, and the BMC."""


@dataclass(frozen=True)
class Node:
    """An emulated A3 server."""

    name: str
    directory: Path
    emulator: Emulator


class Cluster:
    """The processes, all of them started by the command line that operators use.

    With ``broker``, lines of mosquitto's configuration, they meet on an MQTT broker.
    """

    def __init__(self, directory: Path, broker: Sequence[str] | None = None) -> None:
        self._place: ControlPlane | Broker
        if broker is None:
            self._place = ControlPlane(_made(directory / "control-plane"))
        else:
            self._place = Broker(_made(directory / "broker"), broker)
        self.nodes = tuple(_node(directory / name, name) for name in NODES)
        self._aggregator_directory = _made(directory / "aggregator")
        self._running: list[Running] = []

    def __enter__(self) -> Self:
        if isinstance(self._place, Broker):
            self._place.__enter__()
            return self
        self._place.start()
        for node in self.nodes:  # whose labels the agents keep
            self._place.request("POST", "/api/v1/nodes", {"metadata": {"name": node.name}})
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._running):
            process.stop()
        self._place.stop()
        for node in self.nodes:
            node.emulator.close()

    def open_store(self) -> Store:
        """Return a new connection to the store of this cluster."""
        if isinstance(self._place, Broker):
            return open_store(self._place.url)
        return open_store("kubernetes:", self._place.kubeconfig)

    def start_aggregator(
        self, module: str = "vigil", variables: Mapping[str, str] | None = None
    ) -> None:
        """Start ``vigil aggregator``, or ``module`` in its place, with more ``variables``."""
        here = self._aggregator_directory
        self._start(
            here / "log",
            "aggregator",
            "--state-dir",
            here / "state",
            module=module,
            variables=variables,
        )

    def start_agent(
        self, node: Node, module: str = "vigil", variables: Mapping[str, str] | None = None
    ) -> Running:
        """Start ``vigil agent`` on ``node``, or ``module`` in its place with more ``variables``."""
        here = node.directory
        options = ("--node-name", node.name, "--driver-root", here / "driver", "--trust-driver")
        tools = here / "driver" / IPMITOOL.parent
        variables = {
            "PATH": f"{tools}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            **(variables or {}),
        }
        return self._start(
            here / "log",
            "agent",
            *options,
            "--state-dir",
            here / "state",
            module=module,
            variables=variables,
        )

    def check(self) -> None:
        """Raise ``PartFailed`` if a daemon has ended."""
        for process in self._running:
            if process.status is not None:
                log = process.log.read_text(errors="replace")[-2000:]
                raise PartFailed(f"{process.log} ended with {process.status}:\n{log}")

    def _start(
        self,
        log: Path,
        verb: str,
        *options: str | Path,
        module: str = "vigil",
        variables: Mapping[str, str] | None = None,
    ) -> Running:
        where: tuple[str | Path, ...]
        if isinstance(self._place, Broker):
            where = ("--store", self._place.url)
        else:
            where = ("--store", "kubernetes:", "--kubeconfig", self._place.kubeconfig)
        command = (sys.executable, "-m", module, verb, *where, "--listen", "127.0.0.1:0", *options)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("VIGIL_")}
        self._running.append(Running(command, log, {**environment, **(variables or {})}))
        return self._running[-1]


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def _node(directory: Path, name: str) -> Node:
    _made(directory)
    install(directory / "driver", directory / "emulator", PROFILE)
    return Node(name, directory, Emulator(directory / "emulator"))
