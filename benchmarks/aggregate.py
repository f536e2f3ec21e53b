"""How long a change of one node's device-info takes to be visible in cluster-info.

::

    python -m benchmarks.aggregate [--nodes 100 --nodes 1000] [--changes 200] [--beats]
                                   [--idle-seconds 10] [--json]

A real API server, a real ``vigil aggregator``, and beside it in the same run the bare cost of one
small ConfigMap write until a watch shows it. Documents are touched every 45 s: what an idle
aggregator costs is known after that long. ``--beats`` gives each node a Lease of 5 s; nobody
renews them, which costs the aggregator no less than if somebody did.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from contract import device_info
from contract.device_info import DeviceFault, DeviceInfo, TimeAndLevel
from contract.families import FAMILIES
from contract.names import (
    CLUSTER_LABEL,
    CLUSTER_NAMESPACE,
    DEVICE_INFO_NAMESPACE,
    REPORT_LABEL,
    device_info_name,
)
from stores.address import open_store
from stores.base import Beat, Changed, Document, Listed, Selection, Store
from tests.aggregator.daemon import Daemon
from tests.parts.controlplane import ControlPlane

if TYPE_CHECKING:
    from collections.abc import Callable

_BARE = Selection(namespace="default", label=("npu-vigil-benchmark", "bare"))
_CLUSTER = Selection(namespace=CLUSTER_NAMESPACE, label=CLUSTER_LABEL)
_AT_ONCE = 16


class Shown:
    """Waits for a watch to show a text."""

    def __init__(self, store: Store, selection: Selection) -> None:
        self._store, self._selection = store, selection
        self._wanted = ""
        self._at = 0.0
        self._found = asyncio.Event()
        self.listed = asyncio.Event()

    async def run(self) -> None:
        """Watch until cancelled."""
        async for event in self._store.watch(self._selection):
            match event:
                case Listed():
                    self.listed.set()
                case Changed(document):
                    now = time.perf_counter()
                    if self._wanted and any(self._wanted in v for v in document.data.values()):
                        self._at, self._wanted = now, ""
                        self._found.set()

    def want(self, text: str) -> None:
        """From now on look for ``text``."""
        self._found.clear()
        self._wanted = text

    async def at(self) -> float:
        """When it was shown."""
        async with asyncio.timeout(30):
            await self._found.wait()
        return self._at


def device_document(node: str, stamp: int, faulty: int | None) -> Document:
    """A node of eight chips, one of which may be faulty."""
    family = FAMILIES["Ascend910B"]
    chips = [f"{family.device_type}-{chip}" for chip in range(8)]
    bad = () if faulty is None else (chips[faulty],)
    level = "RestartNPU"
    faults = tuple(
        DeviceFault(
            "CardUnhealthy",
            chip,
            level,
            level,
            level,
            "80E18402",
            {"80E18402": TimeAndLevel(stamp * 1000, level)},
        )
        for chip in bad
    )
    info = DeviceInfo(
        device_type=family.device_type,
        free=tuple(chip for chip in chips if chip not in bad),
        unhealthy=bad,
        network_unhealthy=(),
        recovering=(),
        faults=faults,
        update_time=stamp,
    )
    data = device_info.encode(info, family)
    return Document(DEVICE_INFO_NAMESPACE, device_info_name(node), data, dict([REPORT_LABEL]))


async def measure(changes: int, one: Callable[[int], Any], pause: float = 0.02) -> list[float]:
    """Milliseconds of each of ``changes`` calls with a pause in seconds after each."""
    taken = []
    for number in range(changes):
        taken.append(await one(number))
        await asyncio.sleep(pause)
    return taken


def summary(milliseconds: list[float]) -> dict[str, float]:
    """Median, 99th percentile and maximum."""
    cuts = statistics.quantiles(milliseconds, n=100)
    return {
        "p50_ms": round(statistics.median(milliseconds), 1),
        "p99_ms": round(cuts[98], 1),
        "max_ms": round(max(milliseconds), 1),
    }


async def run(
    plane: ControlPlane, directory: Path, nodes: int, changes: int, idle_seconds: float, beats: bool
) -> dict[str, Any]:
    """One size of cluster."""
    store = open_store("kubernetes:", plane.kubeconfig)
    stamp = int(time.time())
    names = [f"node-{number:05}" for number in range(nodes)]
    stamps = dict.fromkeys(names, stamp)
    gate = asyncio.Semaphore(_AT_ONCE)

    async def put(node: str) -> None:
        async with gate:
            await store.put(device_document(node, stamp, None))
            if beats:
                await store.beat(Beat(node, "benchmark", 5.0, stamp * 1000))

    await asyncio.gather(*(put(node) for node in names))
    daemon = Daemon(directory, "--store", "kubernetes:", "--kubeconfig", str(plane.kubeconfig))
    bare, cluster = Shown(store, _BARE), Shown(store, _CLUSTER)
    began = time.perf_counter()
    await asyncio.to_thread(daemon.start)
    complete = time.perf_counter() - began
    tasks = [asyncio.create_task(shown.run()) for shown in (bare, cluster)]
    try:
        await bare.listed.wait()
        await cluster.listed.wait()

        async def write_bare(number: int) -> float:
            document = Document(
                "default", "bare", {"number": f"<{number}>"}, {"npu-vigil-benchmark": "bare"}
            )
            bare.want(f"<{number}>")
            at = time.perf_counter()
            await store.put(document)
            return (await bare.at() - at) * 1000

        async def change(number: int) -> float:
            # Twice the same node in a row: a fault, then its recovery.
            node = names[(number // 2 * 7919) % nodes]
            own = int(time.time())
            document = device_document(node, own, number % 8 if number % 2 == 0 else None)
            faulty = f"Ascend910-{number % 8}" if number % 2 == 0 else ""
            stamps[node] = max(stamps[node] + 1, own)
            cluster.want(f'-Unhealthy":"{faulty}"}},"UpdateTime":{stamps[node]}')
            at = time.perf_counter()
            await store.put(document)
            return (await cluster.at() - at) * 1000

        result: dict[str, Any] = {"nodes": nodes, "start_to_complete_s": round(complete, 2)}
        result["bare"] = summary(await measure(changes, write_bare))
        process = psutil.Process(daemon.process.pid)
        before = process.cpu_times()
        # A node that changes more often than once a second is told of together sooner or later.
        pause = max(0.02, 1 / nodes)
        result["change"] = summary(await measure(changes, change, pause))
        result["cpu_ms_per_change"] = round(_used(before, process.cpu_times()) * 1000 / changes, 1)
        result["memory_mib"] = round(process.memory_full_info().pss / 2**20, 1)
        before = process.cpu_times()
        touches = await asyncio.to_thread(daemon.metric, "npu_vigil_publication_touches_total")
        await asyncio.sleep(idle_seconds)
        used = _used(before, process.cpu_times())
        touched = await asyncio.to_thread(daemon.metric, "npu_vigil_publication_touches_total")
        result["idle_cpu_s_per_minute"] = round(used * 60 / idle_seconds, 2)
        result["idle_touches_per_minute"] = round((touched - touches) * 60 / idle_seconds, 1)
        return result
    finally:
        daemon.stop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await store.close()


def _used(before: Any, after: Any) -> float:
    """CPU seconds between two readings."""
    seconds: float = after.user + after.system - before.user - before.system
    return seconds


def main() -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--nodes", type=int, action="append")
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--idle-seconds", type=float, default=10)
    parser.add_argument("--beats", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = []
    for nodes in options.nodes or [100, 1000]:
        with (
            tempfile.TemporaryDirectory(prefix="vigil-aggregate-") as directory,
            ControlPlane(Path(directory)) as plane,
        ):
            results.append(
                asyncio.run(
                    run(
                        plane,
                        Path(directory) / "aggregator",
                        nodes,
                        options.changes,
                        options.idle_seconds,
                        options.beats,
                    )
                )
            )
    if options.json:
        json.dump(results, sys.stdout, indent=2)
        print()
        return
    print("nodes  complete  bare p50/p99  change p50/p99  x bare  CPU/change  memory   idle CPU")
    for one in results:
        bare, change = one["bare"], one["change"]
        print(
            f"{one['nodes']:5}  {one['start_to_complete_s']:6} s  "
            f"{bare['p50_ms']:5}/{bare['p99_ms']:<5}   {change['p50_ms']:6}/{change['p99_ms']:<6}"
            f"   {change['p50_ms'] / bare['p50_ms']:5.1f}  {one['cpu_ms_per_change']:7} ms"
            f"  {one['memory_mib']:5} MiB"
            f"  {one['idle_cpu_s_per_minute']} s/min"
        )


if __name__ == "__main__":
    main()
