"""How long the verbs for people take, from the start of the process to its end.

::

    python -m benchmarks.verbs [--nodes 10000] [--times 5] [--json]

A real API server with the documents and Leases of so many nodes, one in a hundred with a fault, and
a real ``vigil aggregator`` whose Service the API server forwards to. The verbs run first without
the aggregator, straight from documents, then through the API server and on the aggregator's socket;
at last on a node with a real agent on an emulated driver. Figures are medians of ``--times`` runs
in seconds. With ``--watch`` it is how long after a write of a document, or an event of the driver,
began the change is shown. Ends with 1 when a budget is missed: judge that where nothing else runs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.cluster import Cluster
from benchmarks.scale import Load
from benchmarks.scale_documents import node_names
from contract.names import HEARTBEAT_NAMESPACE
from tests.aggregator.daemon import Daemon
from tests.parts.controlplane import ControlPlane
from tests.parts.processes import Running
from tests.parts.service_proxy import endpoint, host_address, make_service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from benchmarks.cluster import Node

_CHIPS = 8
_FAULTY_SHARE = 100
_LEASE_SECONDS = 15.0
_UP_SECONDS = 60.0
_CLUSTER = (("status",), ("faults",), ("jobs",))
_CODE_BUDGET, _NODE_BUDGET = 0.4, 0.5
_DAEMON_BUDGET, _DOCUMENTS_BUDGET, _WATCH_BUDGET = 1.5, 5.0, 0.3
_CODE = "80E18402"
_QUIET_SECONDS = 1.0
"""After a change, so that the next one is not shown with it."""

Measured = dict[str, tuple[float, float]]
"""Seconds, and their budget, by what was run."""


def _seconds(arguments: tuple[str, ...], where: Mapping[str, str], times: int) -> float:
    """Return the median of ``times`` runs of a verb that must find something to show."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("VIGIL_", "KUBE"))}
    options = [text for name, value in where.items() for text in (f"--{name}", value)]
    taken = []
    for _ in range(times):
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "vigil", *arguments, *options],
            capture_output=True,
            env=environment,
            check=False,
        )
        taken.append(time.monotonic() - began)
        if done.returncode not in (0, 1) or b"Traceback" in done.stderr:
            raise RuntimeError(f"{arguments}: {done.returncode}: {done.stderr.decode()}")
    return statistics.median(taken)


def _measure_cluster(directory: Path, nodes: int, times: int) -> Measured:
    measured: Measured = {}

    def measure(source: str, where: Mapping[str, str], budget: float) -> None:
        one = ("status", names[0]), ("explain", names[0])
        budgets = dict.fromkeys(_CLUSTER, budget) | dict.fromkeys(one, _NODE_BUDGET)
        for verb, allowed in budgets.items():
            named = f"{' '.join(verb)}, {source}"
            measured[named] = (_seconds(verb, where, times), allowed)

    def watch(source: str, where: Mapping[str, str]) -> None:
        for verb in (("faults",), ("status", names[0])):
            seconds = asyncio.run(_watch_documents(plane, names, verb, where, times))
            measured[f"{' '.join(verb)} --watch, {source}"] = (seconds, _WATCH_BUDGET)

    names = node_names(nodes)
    (directory / "plane").mkdir()
    with ControlPlane(directory / "plane") as plane:
        asyncio.run(_fill(plane, names))
        kubeconfig = {"kubeconfig": str(plane.kubeconfig), "state-dir": str(directory / "none")}
        measure("documents", kubeconfig, _DOCUMENTS_BUDGET)
        options = ("--store", "kubernetes:", "--kubeconfig", str(plane.kubeconfig))
        daemon = Daemon(directory / "aggregator", *options, listen=f"{host_address()}:0")
        daemon.start()
        try:
            daemon.process.wait_until(
                lambda: len(daemon.ask("/api/v1/nodes")[1]["nodes"]) == nodes, _UP_SECONDS
            )
            make_service(plane, *endpoint(daemon.url))
            socket = {"state-dir": str(directory / "aggregator")}
            for source, where in (
                ("through the API server", kubeconfig),
                ("on its socket", socket),
            ):
                measure(source, where, _DAEMON_BUDGET)
                watch(source, where)
        finally:
            daemon.stop()
    return measured


class _Watching:
    """A verb that goes on, with one line of JSON for each state."""

    def __init__(self, arguments: tuple[str, ...], where: Mapping[str, str], log: Path) -> None:
        options = [text for name, value in where.items() for text in (f"--{name}", value)]
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("VIGIL_", "KUBE"))}
        command = (sys.executable, "-m", "vigil", *arguments, "--watch", "--json", *options)
        self._running = Running(command, log, environment)
        self._log = log
        self._running.wait_until(lambda: self.states() > 0, _UP_SECONDS)

    def states(self) -> int:
        """Return how many were shown."""
        return self._log.read_bytes().count(b"\n")

    async def shown_after(self, states: int, began: float) -> float:
        """Return the seconds from ``began`` until more states than ``states`` were shown."""
        while self.states() <= states:
            if time.monotonic() - began > _UP_SECONDS:
                raise RuntimeError(f"{self._log}: a change is not shown")
            await asyncio.sleep(0.002)
        return time.monotonic() - began

    def stop(self) -> None:
        self._running.stop()


async def _watch_documents(
    plane: ControlPlane,
    names: list[str],
    verb: tuple[str, ...],
    where: Mapping[str, str],
    times: int,
) -> float:
    """Return the median of how long a change of one document takes to be shown."""
    load = Load(plane, len(names), _CHIPS)
    watching = _Watching(verb, where, plane.directory / "watched")
    taken = []
    try:
        for number in range(times):
            await asyncio.sleep(_QUIET_SECONDS)
            states, began = watching.states(), time.monotonic()
            await load.do("storm", nodes=names[:1], faulty=1 + number % 2)
            taken.append(await watching.shown_after(states, began))
    finally:
        watching.stop()
        await load.stop()
        (plane.directory / "watched").unlink()
    return statistics.median(taken)


async def _watch_agent(node: Node, where: Mapping[str, str], times: int) -> float:
    """Return the median of how long an event of the driver takes to be shown."""
    watching = _Watching(("faults",), where, node.directory / "watched")
    taken = []
    try:
        for chip in range(times):
            await asyncio.sleep(_QUIET_SECONDS)
            states, began = watching.states(), time.monotonic()
            node.emulator.occur(chip, _CODE)
            taken.append(await watching.shown_after(states, began))
    finally:
        watching.stop()
    return statistics.median(taken)


async def _fill(plane: ControlPlane, names: list[str]) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HEARTBEAT_NAMESPACE}}
    plane.apply(namespace)
    load = Load(plane, len(names), _CHIPS)
    try:
        await load.do("fill")
        await load.do("storm", nodes=names[::_FAULTY_SHARE], faulty=3)
        await load.do("leases", seconds=_LEASE_SECONDS)
    finally:
        await load.stop()


def _measure_node(directory: Path, times: int) -> Measured:
    with Cluster(directory) as cluster:
        node = cluster.nodes[0]
        cluster.start_agent(node)
        state = node.directory / "state"
        give_up = time.monotonic() + _UP_SECONDS
        while not (state / "agent.sock").exists() and time.monotonic() < give_up:
            time.sleep(0.1)
        where = {"state-dir": str(state)}
        verbs: tuple[tuple[str, ...], ...] = (
            ("status",),
            ("faults",),
            ("explain", node.name),
            ("timeline",),
        )
        measured = {
            f"{' '.join(verb)}, of an agent": (_seconds(verb, where, times), _NODE_BUDGET)
            for verb in verbs
        }
        watched = asyncio.run(_watch_agent(node, where, times))
        return measured | {"faults --watch, of an agent": (watched, _WATCH_BUDGET)}


def _rows(measured: Measured) -> Iterator[str]:
    for what, (seconds, budget) in measured.items():
        verdict = "held" if seconds <= budget else "missed"
        yield f"{what:50} {seconds:6.2f} s   budget {budget:.1f} s   {verdict}"


def _part(name: str, work: Callable[[Path], Measured]) -> Measured:
    with tempfile.TemporaryDirectory(prefix=f"vigil-{name}-") as directory:
        return work(Path(directory))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    load = os.getloadavg()[0]
    code = {"explain CODE": (_seconds(("explain", "80E01801"), {}, asked.times), _CODE_BUDGET)}
    node = _part("node", lambda directory: _measure_node(directory, asked.times))
    cluster = _part("cluster", lambda where: _measure_cluster(where, asked.nodes, asked.times))
    measured: Measured = code | node | cluster
    if asked.json:
        found: dict[str, Any] = {"nodes": asked.nodes, "load": load, "seconds": measured}
        print(json.dumps(found))
    else:
        print(f"{asked.nodes} nodes, load {load:.1f} at the start")
        for line in _rows(measured):
            print(line)
    sys.exit(any(seconds > budget for seconds, budget in measured.values()))


if __name__ == "__main__":
    main()
