"""Real agents and aggregators that a real Prometheus watches with the shipped rules."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from contract.codes.catalogue import shipped
from contract.codes.chip_codes import LINK_DOWN, NETWORK_FAULT_CODES
from contract.codes.levels import ChipLevel
from stores.address import open_store
from tests.aggregator.daemon import Daemon
from tests.alerts.watcher import SCRAPE_SECONDS, Targets, Watcher
from tests.end_to_end.node import Node
from tests.parts.places import Folder
from tests.parts.processes import free_ports

if TYPE_CHECKING:
    from pathlib import Path

    from stores.base import Document
    from tests.parts.places import Place


_READY_SECONDS = 30.0
"""Agents that start together are ready later than a single one."""


def code_of(level: ChipLevel) -> str:
    """Return a code that a driver reports, that has ``level``, and that no rule raises."""
    tables = shipped()
    raised = {*NETWORK_FAULT_CODES, *tables.frequencies, *tables.durations}
    return next(
        code
        for code in sorted(tables.chip_levels)
        if tables.chip_levels[code] == level and len(code) == 8 and code not in raised
    )


CHIP_ALERTS = {
    "NpuVigilChipSeparated": (0, code_of(ChipLevel.SEPARATE_NPU)),
    "NpuVigilChipToRestart": (1, code_of(ChipLevel.RESTART_BUSINESS)),
    "NpuVigilChipPreSeparated": (2, code_of(ChipLevel.PRE_SEPARATE_NPU)),
    "NpuVigilChipSubHealthy": (3, code_of(ChipLevel.SUB_HEALTH_FAULT)),
    "NpuVigilLinkDown": (4, LINK_DOWN),
}
"""Alert to a chip and a code that raise it."""


class Cluster:
    """Nodes with an agent each, aggregators, and a Prometheus with the rules.

    Agents and aggregators have fixed ports, so Prometheus finds them again after a restart.
    ``start`` starts all of them; what a test wants otherwise it changes before.
    """

    def __init__(
        self,
        directory: Path,
        built: Path,
        place: Place | None = None,
        *,
        nodes: int = 1,
        aggregators: int = 1,
        profile: str = "a2",
    ) -> None:
        self.directory = directory
        self.place = place or Folder(directory / "store")
        self.nodes: list[Node] = []
        self.agent_addresses: dict[str, str] = {}
        for number, port in enumerate(free_ports(nodes), start=1):
            name = f"node-{number}"
            node = Node(directory / name, built, self.place, name, profile)
            self.agent_addresses[name] = f"127.0.0.1:{port}"
            node.options = ["--listen", f"127.0.0.1:{port}", "--heartbeat-interval-seconds", "1"]
            # What this machine lacks would be an alert of its own.
            for source in ("BMC", "KERNEL_LOG"):
                node.environment[f"VIGIL_{source}_ENABLED"] = "false"
            self.nodes.append(node)
        self.aggregator_addresses = tuple(f"127.0.0.1:{port}" for port in free_ports(aggregators))
        self.aggregators = [
            Daemon(directory / f"aggregator-{number}", *self.place.options, listen=address)
            for number, address in enumerate(self.aggregator_addresses, start=1)
        ]
        self._watcher: Watcher | None = None

    @property
    def node(self) -> Node:
        """Return the first node."""
        return self.nodes[0]

    @property
    def aggregator(self) -> Daemon:
        """Return the first aggregator."""
        return self.aggregators[0]

    @property
    def watcher(self) -> Watcher:
        """Return the running watcher."""
        assert self._watcher is not None
        return self._watcher

    def start(self, factor: float, scrape_seconds: float = SCRAPE_SECONDS) -> None:
        """Start all, and Prometheus last."""
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            node.up()
            node.ready(_READY_SECONDS)
        self.aggregator.start()
        for aggregator in self.aggregators[1:]:
            aggregator.spawn()
        targets = Targets(self.agent_addresses, self.aggregator_addresses)
        self._watcher = Watcher(self.directory / "watcher", targets, factor, scrape_seconds)

    def put(self, *documents: Document) -> None:
        """Write documents into the store of the cluster, as other programs do."""

        async def write() -> None:
            store = open_store(*self.place.options[1::2])
            try:
                for document in documents:
                    await store.put(document)
            finally:
                await store.close()

        asyncio.run(write())

    def close(self) -> None:
        """End all."""
        if self._watcher is not None:
            self._watcher.close()
        for aggregator in self.aggregators:
            aggregator.stop()
        for node in self.nodes:
            node.close()
