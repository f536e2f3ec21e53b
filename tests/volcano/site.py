"""The whole chain: emulated hardware and a real agent on each node, a real aggregator."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

from contract.names import CLUSTER_NAMESPACE
from tests.elastic.bed import Bed
from tests.end_to_end.node import Node
from tests.parts.places import Cluster
from tests.parts.volcano import GROUPS, JOBS, PODS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.volcano.surroundings import Surroundings

_CONFIG_MAPS = f"/api/v1/namespaces/{CLUSTER_NAMESPACE}/configmaps"
_ALL = "huawei.com/Ascend910"
_HEALTHY_SECONDS = 120.0


class Site(Bed):
    """``nodes`` nodes, ``n0``, ``n1``, …, each with an agent that reads an emulated driver."""

    def __init__(
        self, directory: Path, around: Surroundings, nodes: int, emulated_driver: Path
    ) -> None:
        self.agents: dict[str, Node] = {}
        self._emulated_driver = emulated_driver
        self._repairs: list[Callable[[], None]] = []
        self.around = around
        super().__init__(directory, around, nodes)
        around.decisions, around.accepts = self._decisions, self._accepts
        around.free = lambda node: self.cards(node, _ALL)

    def join(self, node: str) -> None:
        """Start the agent of a node."""
        agent = Node(self.directory / node, self._emulated_driver, Cluster(self.plane), node)
        agent.options += ["--heartbeat-interval-seconds", "1"]
        self.agents[node] = agent
        agent.start()
        agent.healthy()

    def stop(self) -> None:
        """Stop the aggregator and the agents."""
        super().stop()
        for agent in self.agents.values():
            agent.close()

    def _decisions(self) -> list[dict[str, Any]]:
        status, page = self.aggregator.ask("/api/v1/advice")
        assert status == 200, page
        reports = page["advice"]["reports"]
        found: list[dict[str, Any]] = reports[0]["decisions"] if reports else []
        return found

    def _accepts(self, group: str) -> dict[str, set[str]]:
        """Return by uid the nodes that take a waiting pod of a PodGroup."""
        status, page = self.aggregator.ask(f"/api/v1/advice/default/{group}")
        if status == 404:
            return {}  # It is too new.
        assert status == 200, page
        reports = page["reports"]
        found = reports[0]["placement"] if reports else []
        return {pod["uid"]: set(one["accepts"]) for one in found for pod in one["pods"]}

    def _cluster_info(self, name: str) -> dict[str, Any]:
        status, found = self.plane.ask("GET", f"{_CONFIG_MAPS}/{name}")
        text = found.get("data", {}).get(name, "") if status == 200 else ""
        entries: dict[str, Any] = json.loads(text) if text else {}
        return entries

    def cards(self, node: str, list_: str) -> list[str]:
        """Return one list of chips of a node in cluster-info."""
        entry = self._cluster_info("cluster-info-device-0")[f"mindx-dl-deviceinfo-{node}"]
        return [card for card in entry["DeviceList"].get(list_, "").split(",") if card]

    def is_lost(self, node: str) -> bool:
        """Return whether cluster-info has the node as unhealthy."""
        entry = self._cluster_info("cluster-info-node-cm").get(f"mindx-dl-nodeinfo-{node}", {})
        return bool(entry.get("NodeStatus") == "UnHealthy")

    def shows(self, node: str, list_: str, chip: int, seconds: float = 20) -> None:
        """Wait until cluster-info has a chip in the list with this end."""
        card = f"Ascend910-{chip}"
        what = f"cluster-info has {card} of {node} in {list_}"
        self.sees(lambda: card in self.cards(node, f"{_ALL}-{list_}"), what, seconds)

    def breaks(self, node: str, chip: int, code: str) -> None:
        """Begin a fault in the driver; wait until device-info and cluster-info show it."""
        agent = self.agents[node]
        agent.emulator.occur(chip, code)
        self._repairs.append(lambda: agent.emulator.recover(chip, code))
        agent.until(lambda now: f"Ascend910-{chip}" in now.unhealthy, "device-info has it")
        self.shows(node, "Unhealthy", chip)

    def cuts(self, node: str, chip: int) -> None:
        """Take a link down, which cluster-info shows when it has been down for 20 s."""
        emulator = self.agents[node].emulator
        emulator.link(chip, up=False)
        self._repairs.append(lambda: emulator.link(chip, up=True))
        self.shows(node, "NetworkUnhealthy", chip, 60)

    def node_of(self, pod: str) -> str:
        """Return where a pod is bound."""
        found: str = self.plane.request("GET", f"{PODS}/{pod}")["spec"]["nodeName"]
        return found

    def repair(self) -> None:
        """End all faults that were begun here."""
        for repair in self._repairs:
            repair()
        self._repairs.clear()

    def clean(self) -> None:
        """Delete all jobs, and wait until all nodes are healthy again.

        That takes a minute after a link was down.
        """
        self.around.holds, self.around.graces = set(), {}
        for one in self.plane.request("GET", JOBS)["items"]:
            name = one["metadata"]["name"]
            self.plane.request("DELETE", f"{JOBS}/{name}")
            for pod in self.volcano.pods(name):
                self.plane.ask("DELETE", f"{PODS}/{pod['metadata']['name']}")
            self.sees(lambda name=name: not self.volcano.pods(name), "its pods stay")  # type: ignore[misc]
            self.plane.ask("DELETE", f"{GROUPS}/{name}-{one['metadata']['uid']}")
        self.repair()
        for agent in self.agents.values():
            if agent.process.status is not None:
                agent.start()
        for node in self.nodes:
            is_healthy = functools.partial(self._is_healthy, node)
            self.sees(is_healthy, f"{node} is healthy", _HEALTHY_SECONDS)

    def _is_healthy(self, node: str) -> bool:
        network = self.cards(node, f"{_ALL}-NetworkUnhealthy")
        return len(self.cards(node, _ALL)) == 8 and not network and not self.is_lost(node)
