"""How soon conditions, taints and rules follow when many nodes get a fault at once.

::

    python -m benchmarks.signals [--nodes 10000] [--json]

A real API server with a Node of 8 KB and a ResourceSlice for each node, a real ``vigil aggregator``
with all three options, and a process that is all nodes (``benchmarks.scale_load``). A chip of one
node in twenty gets a fault, all at once; later all faults end. Meanwhile the other Nodes wait for
their first conditions, which takes longer than everything else. Ends with 1 when a budget is
missed, a Node has a taint that it should not have, or there were more writes than changes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aggregator.scheduler_signals.observed_nodes import KIND
from aggregator.scheduler_signals.service import SETTLE_SECONDS
from benchmarks.scale import Load
from benchmarks.scale_documents import node_names
from contract.node_signals import FALSE, NPU_HEALTHY, TAINT_KEY, NodeSignals
from stores.address import open_store
from stores.cluster import Snapshot, Update
from tests.aggregator.daemon import Daemon
from tests.parts.controlplane import ControlPlane

if TYPE_CHECKING:
    from contract.documents.device_taints import TaintRule
    from stores.base import Store

_SHARE = 20
_CHIP = 5
_MAX_SECONDS = {"taints": 60.0, "rules": 60.0, "conditions": 120.0}
_GIVE_UP_SECONDS = 600.0
_UP_SECONDS = 180.0
"""Until all Nodes are read, on a machine that is busy, too."""
_OPTIONS = {
    "NODE_CONDITIONS_ENABLED": "true",
    "NODE_TAINTS_ENABLED": "true",
    "NODE_TAINTS_CHIPS": "any",
    # The level of the faults here. No controller manager runs that would answer a rule to evict.
    "NODE_TAINTS_NO_SCHEDULE_LEVELS": "RestartNPU",
    "DEVICE_TAINTS_ENABLED": "true",
    "DEVICE_TAINTS_EFFECTS": "RestartNPU=NoSchedule",
}


class Signals:
    """The nodes with a taint, a rule or a false condition, as watches show them."""

    def __init__(self, store: Store) -> None:
        self.nodes: dict[str, set[str]] = {kind: set() for kind in _MAX_SECONDS}
        self.foreign: set[str] = set()
        """The Nodes that have a taint of another program."""
        self._rules: dict[str, str] = {}
        self._store = store
        self._changed = asyncio.Event()

    async def follow(self) -> None:
        """Follow Nodes and rules, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_nodes(), name="Nodes")
            tasks.create_task(self._follow_rules(), name="rules")

    async def _follow_nodes(self) -> None:
        assert self._store.cluster is not None, "an API server has Nodes"
        async for event in self._store.cluster.objects(KIND):
            if isinstance(event, Snapshot):
                for node, signals in event.items.items():
                    self._observe_node(node, signals)
            elif isinstance(event, Update) and event.value is not None:
                self._observe_node(event.key, event.value)

    def _observe_node(self, node: str, signals: NodeSignals) -> None:
        condition = signals.condition(NPU_HEALTHY)
        self._set("taints", node, bool(signals.fault_taints))
        self._set("conditions", node, condition is not None and condition.status == FALSE)
        if any(taint.key != TAINT_KEY for taint in signals.taints):
            self.foreign.add(node)
        else:
            self.foreign.discard(node)

    async def _follow_rules(self) -> None:
        assert self._store.device_taints is not None, "an API server has rules"
        async for event in self._store.device_taints.rules("v1beta2"):
            if isinstance(event, Snapshot):
                for name, rule in event.items.items():
                    self._observe_rule(name, rule)
            elif isinstance(event, Update):
                self._observe_rule(event.key, event.value)

    def _observe_rule(self, name: str, rule: TaintRule | None) -> None:
        if rule is not None:
            self._rules[name] = rule.node
        self._set("rules", self._rules[name], rule is not None)

    def _set(self, kind: str, node: str, is_there: bool) -> None:
        (self.nodes[kind].add if is_there else self.nodes[kind].discard)(node)
        self._changed.set()

    async def times(self, wanted: set[str]) -> dict[str, float]:
        """Return by kind when exactly these nodes have it (monotonic)."""
        at: dict[str, float] = {}
        async with asyncio.timeout(_GIVE_UP_SECONDS):
            while len(at) < len(self.nodes):
                self._changed.clear()
                now = time.monotonic()
                at |= {k: now for k, nodes in self.nodes.items() if k not in at and nodes == wanted}
                if len(at) < len(self.nodes):
                    await self._changed.wait()
        return at


async def measure(plane: ControlPlane, directory: Path, nodes: int) -> dict[str, Any]:
    """Measure one storm and its end; the figures, seconds since the first document was written."""
    names = node_names(nodes)
    faulty = names[::_SHARE]
    result: dict[str, Any] = {"nodes": nodes, "faulty": len(faulty), "load": [os.getloadavg()[0]]}
    load, store = Load(plane, nodes, 8), open_store("kubernetes:", plane.kubeconfig)
    signals = Signals(store)
    following = asyncio.create_task(signals.follow(), name="signals")
    daemon = Daemon(
        directory / "aggregator", "--store", "kubernetes:", "--kubeconfig", str(plane.kubeconfig)
    )
    daemon.environment = {f"VIGIL_{name}": value for name, value in _OPTIONS.items()}
    try:
        for objects in ("fill", "nodes", "slices"):
            await load.do(objects)
        began = time.monotonic()
        await asyncio.to_thread(daemon.spawn)
        await asyncio.to_thread(daemon.process.wait_until, partial(_is_ready, daemon), _UP_SECONDS)
        result["ready_s"] = time.monotonic() - began
        await asyncio.sleep(SETTLE_SECONDS + 1)
        for begins in (True, False):
            wanted = set(faulty) if begins else set[str]()
            times = asyncio.create_task(signals.times(wanted))
            # The times of a change that came before would be wrong.
            await asyncio.sleep(0)
            done = await load.do("storm", nodes=faulty, faulty=_CHIP if begins else None)
            phase = "begin" if begins else "end"
            result |= {
                f"{kind}_{phase}_s": at - done["began"] for kind, at in (await times).items()
            }
        result["foreign_taints"] = len(signals.foreign)
        page = (await asyncio.to_thread(daemon.ask, "/api/v1/scheduler-signals"))[1]
        result["outcomes"] = {option["option"]: option["outcomes"] for option in page["signals"]}
    finally:
        await asyncio.to_thread(daemon.stop)
        await load.stop()
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
        await store.close()
    result["load"].append(os.getloadavg()[0])
    return result


def _is_ready(daemon: Daemon) -> bool:
    return bool(daemon.ask("/readyz")[0] == HTTPStatus.OK)


def missed(result: dict[str, Any]) -> list[str]:
    """Return what is not as it should be, a sentence each."""
    problems = [
        f"{kind}_{phase}_s is {result[f'{kind}_{phase}_s']:.1f}, the budget is {seconds:.0f}"
        for kind, seconds in _MAX_SECONDS.items()
        for phase in ("begin", "end")
        if result[f"{kind}_{phase}_s"] > seconds
    ]
    changes = 2 * result["faulty"]
    for option in ("node_taints", "device_taints"):
        written = result["outcomes"][option]["written"]
        if written != changes:
            problems.append(f"{option}: {written} writes for {changes} changes")
    # The API server taints each new Node, which no controller takes back here.
    if result["foreign_taints"] != result["nodes"]:
        problems.append(f"only {result['foreign_taints']} Nodes have the taint of another program")
    return problems


def main() -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.signals", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="vigil-signals-") as directory,
        ControlPlane(Path(directory)) as plane,
    ):
        result = asyncio.run(measure(plane, Path(directory), options.nodes))
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        for key, value in result.items():
            print(f"{key}: {value:.1f}" if isinstance(value, float) else f"{key}: {value}")
    problems = missed(result)
    for problem in problems:
        print(f"missed: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
