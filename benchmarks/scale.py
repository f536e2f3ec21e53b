"""What one aggregator needs for thousands of nodes, beside its budgets and the Go program's needs.

::

    python -m benchmarks.scale [--nodes 10000] [--chips 8] [--only PART] [--seconds 60]
                               [--changes 200] [--follower] [--played] [--json]

A real API server, a real ``vigil aggregator``, a process that is all the nodes
(``benchmarks.scale_load``), and a watch that is the readers. Parts: ``changes``, ``rest``,
``leases``, ``storm``, ``takeover`` (a second replica, and the leader terminated, killed, paused
for a minute) and ``full`` (Node objects of 8 KB, two pods on every node, each device-info written
again every 5 minutes, Leases, a restart) and ``advice`` (by itself: Node objects, 20,000 pods in
2,500 jobs, an aggregator that advises) and ``dpus`` (by itself: a document of an RDMA plugin for
each node, one in a hundred with a fault, written again every 5 minutes; what that costs is the
difference to a start without them); without ``--only`` all of them, and 1,000, 5,000 and 10,000
nodes of 8 and 16 chips without ``--nodes`` and ``--chips``; the larger and stranger
sizes only rest and change. Memory is resident size, megabytes are millions of bytes. ``--follower``
starts a second replica in ``full``, which follows. ``--played`` takes ``benchmarks.scale_player``
in place of the API server, for ``changes``, ``rest`` and ``storm`` with any number of nodes; its
results have no times. Everything runs on this machine: judge times of start and of changes where
nothing else runs, CPU seconds and ratios anywhere. Ends with 1 when a budget is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks.scale_documents import chip, device_document, node_names
from benchmarks.scale_player import PlayedPlane
from benchmarks.scale_table import missed, print_table, without_times
from benchmarks.scale_takeover import Replicas
from benchmarks.scale_watch import Readers
from contract.names import DEFAULT_MAX_NODES, MAX_NODES
from stores.address import open_store
from stores.base import Changed, Document, DocumentsListed, Selection
from tests.aggregator.daemon import Daemon
from tests.parts.controlplane import ControlPlane
from tests.parts.definitions import POD_GROUPS, VCJOBS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stores.base import Store

PARTS = ("changes", "rest", "leases", "storm", "takeover", "full", "advice", "dpus")
_BY_ITSELF = ("advice", "dpus")
_SIZES: tuple[tuple[int, int], ...] = (
    (1000, 8),
    (5000, 8),
    (10_000, 8),
    (1000, 16),
    (5000, 16),
    (10_000, 16),
)
_COMPLETE_SIZE = (10_000, 8)
_PARTS_OF_OTHER_SIZES = ("changes", "rest")
_PLAYED_PARTS = ("changes", "rest", "storm")
_PLAYED_LEASE_SECONDS = 120
"""A takeover of 100,000 nodes renews no Lease for up to 17 s on a busy machine."""
_QUOTA_BYTES = 8 << 30
"""Of etcd, which stores 2 GiB by default: so many that no size of cluster is bounded by it."""

_BARE_LABEL = ("npu-vigil-benchmark", "bare")
_BARE = Selection(namespace="default", label=_BARE_LABEL)
_SETTLE_SECONDS = 20.0
"""After a start: touches are spread over the first third of their period."""
_QUIET_SECONDS = 0.1
"""Between two changes: one at a time, and no storm that the aggregator would hold back."""
_BARE_QUIET_SECONDS = 0.02
_STORM_SHARE = 20
_SHOWN_SECONDS = 300.0
"""100,000 nodes on a busy machine take more than a minute."""
_KEPT_SECONDS = 5.0
"""After a storm its kept state is written, which comes last."""
_LEASE_SECONDS = 15.0
_REWRITE_SECONDS = 300.0
_PODS_OF_A_NODE = 2
_PODS_OF_A_JOB = 8
_ADVISED_SECONDS = 180.0
"""Until all Nodes and pods are read, on a machine that is busy, too."""
_MB = 1_000_000


class Load:
    """The generator."""

    def __init__(self, plane: ControlPlane, nodes: int, chips: int) -> None:
        self._arguments = (str(plane.directory), str(plane.port), str(nodes), str(chips))
        self._process: asyncio.subprocess.Process | None = None

    async def do(self, what: str, **more: object) -> dict[str, Any]:
        """Let it do something; its answer."""
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "benchmarks.scale_load", *self._arguments),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps({"do": what, **more}).encode() + b"\n")
        line = await stdout.readline()
        if not line:
            raise RuntimeError(f"the generator ended with {await self._process.wait()} at {what}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def stop(self) -> None:
        """End it."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


class Bare:
    """One ConfigMap with a number and ``text``, until a watch shows it."""

    def __init__(self, store: Store) -> None:
        self.text = ""
        self._store = store
        self._wanted = ""
        self._seen = asyncio.Event()
        self.listed = asyncio.Event()

    async def run(self) -> None:
        """Watch until cancelled."""
        async for event in self._store.watch(_BARE):
            match event:
                case DocumentsListed():
                    self.listed.set()
                case Changed(document):
                    if document.data.get("number") == self._wanted:
                        self._seen.set()

    async def write(self, number: int) -> float:
        """Write once; the milliseconds until it is shown."""
        self._wanted = str(number)
        self._seen.clear()
        data = {"number": self._wanted, "text": self.text}
        document = Document("default", "bare", data, dict([_BARE_LABEL]))
        at = time.monotonic()
        await self._store.put(document)
        await self._seen.wait()
        return (time.monotonic() - at) * 1000


class Cluster:
    """One size of cluster and what was measured of it."""

    def __init__(self, plane: ControlPlane, directory: Path, nodes: int, chips: int) -> None:
        self._plane, self._directory = plane, directory
        self._chips = chips
        self._names = node_names(nodes)
        self._store = open_store("kubernetes:", plane.kubeconfig)
        self._readers = Readers(self._store)
        self._bare = Bare(self._store)
        self._load = Load(plane, nodes, chips)
        self._daemon = self._new_daemon("aggregator")
        self._has_leases = False
        self.result: dict[str, Any] = {"nodes": nodes, "chips": chips, "load": [os.getloadavg()[0]]}

    def _new_daemon(self, name: str) -> Daemon:
        options = ("--store", "kubernetes:", "--kubeconfig", str(self._plane.kubeconfig))
        daemon = Daemon(self._directory / name, *options)
        if isinstance(self._plane, PlayedPlane):
            daemon.environment["VIGIL_LEADER_LEASE_SECONDS"] = str(_PLAYED_LEASE_SECONDS)
        if len(self._names) > DEFAULT_MAX_NODES:
            daemon.environment["VIGIL_MAX_NODES"] = str(MAX_NODES)
        return daemon

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write the nodes' documents; yield when the aggregator has published them."""
        # A played API server has the documents already, and no cost of its own worth a measurement.
        server = None
        if not isinstance(self._plane, PlayedPlane):
            server = psutil.Process(self._plane.apiserver_pid)
            filled = await self._load.do("fill")
            self.result["fill_s"] = filled["ended"] - filled["began"]
        tasks = [asyncio.create_task(one.run()) for one in (self._readers, self._bare)]
        try:
            await self._readers.listed.wait()
            await self._bare.listed.wait()
            there = self._readers.shows_all(self._names)
            before = server and server.cpu_times()
            began = time.monotonic()
            await asyncio.to_thread(self._daemon.start)
            self.result["complete_s"] = await _soon(there) - began
            self.result["start_cpu_s"] = sum(self._process().cpu_times()[:2])
            self.result["start_peak_mb"] = self._peak_mb(self._daemon)
            if server is not None:
                self.result["server_cpu_s"] = _used(before, server.cpu_times())
                self.result["server_mb"] = server.memory_info().rss / _MB
            yield
            self.result["peak_mb"] = max(
                self.result.get("peak_mb", 0.0), self._peak_mb(self._daemon)
            )
            self.result["documents"] = sum("-device-" in one for one in self._readers.documents)
            self.result["doubled"] = self._readers.doubled()
        finally:
            await asyncio.to_thread(self._daemon.stop)
            await self._load.stop()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._store.close()
            self.result["load"].append(os.getloadavg()[0])

    async def measure_changes(self, count: int, prefix: str = "") -> None:
        """Measure one change after the other, each until it is shown; before each a small bare
        write, and one as large as a cluster document.
        """
        process, counted = self._process(), self._readers.count()
        text = self._readers.largest
        used = 0.0
        bare: list[float] = []
        large: list[float] = []
        taken: list[float] = []
        # In turns: another program that makes the machine slow for a while does it to all three.
        for number in range(count):
            self._bare.text = ""
            bare.append(await self._bare.write(2 * number))
            await asyncio.sleep(_BARE_QUIET_SECONDS)
            self._bare.text = text
            large.append(await self._bare.write(2 * number + 1))
            await asyncio.sleep(_BARE_QUIET_SECONDS)
            before = process.cpu_times()
            taken.append(await self._change(number))
            # Behind its readers a change causes kept state to be written.
            await asyncio.sleep(_QUIET_SECONDS)
            used += _used(before, process.cpu_times())
        figures = {
            "bare_p50_ms": statistics.median(bare),
            "bare_p99_ms": _p99(bare),
            "large_p50_ms": statistics.median(large),
            "large_p99_ms": _p99(large),
            "change_p50_times": statistics.median(taken) / statistics.median(large),
            "change_p99_times": _p99(taken) / _p99(large),
            "change_p50_ms": statistics.median(taken),
            "change_p99_ms": _p99(taken),
            "change_kb": counted.sent_bytes / count / 1000,
            "change_kept": counted.kept / count,
            "change_cpu_ms": used * 1000 / count,
        }
        self.result |= {prefix + key: value for key, value in figures.items()}

    async def _change(self, number: int) -> float:
        # Twice the same node in a row: a fault, then its recovery.
        node = self._names[number // 2 * 7919 % len(self._names)]
        faulty = number // 2 % self._chips if number % 2 == 0 else None
        document = device_document(node, int(time.time()), faulty, self._chips)
        shown = self._readers.shows(node, "" if faulty is None else chip(faulty))
        at = time.monotonic()
        await self._store.put(document)
        return (await _soon(shown) - at) * 1000

    async def measure_rest(self, seconds: float, prefix: str = "rest") -> None:
        """Measure while nothing changes."""
        await asyncio.sleep(_SETTLE_SECONDS)
        process, counted = self._process(), self._readers.count()
        before = process.cpu_times()
        await asyncio.sleep(seconds)
        per_minute = 60 / seconds
        memory = process.memory_full_info()
        self.result |= {
            f"{prefix}_cpu_s": _used(before, process.cpu_times()) * per_minute,
            f"{prefix}_data_writes": counted.data_writes,
            f"{prefix}_touches": counted.touches * per_minute,
            ("" if prefix == "rest" else f"{prefix}_") + "rss_mb": memory.rss / _MB,
            ("" if prefix == "rest" else f"{prefix}_") + "pss_mb": memory.pss / _MB,
        }

    async def measure_leases(self, seconds: float) -> None:
        """Measure while nothing changes, and every node beats."""
        await self._beat()
        # Until each node was seen to beat twice at one interval, beats are listed every 5 s.
        await asyncio.sleep(2 * _LEASE_SECONDS)
        await self.measure_rest(seconds, "leases")
        done = await self._load.do("quiet")
        self.result["leases_late_s"] = done["latest_seconds"]

    async def _beat(self) -> None:
        if not self._has_leases:
            await self._load.do("leases", seconds=_LEASE_SECONDS)
            self._has_leases = True
        await self._load.do("beat", seconds=_LEASE_SECONDS)

    async def measure_storm(self) -> None:
        """Measure a fault on one node in twenty at once."""
        nodes = self._names[::_STORM_SHARE]
        await asyncio.sleep(2)
        counted = self._readers.count()
        shown = self._readers.shows_all(nodes, chip(5))
        done = await self._load.do("storm", nodes=nodes, faulty=5)
        self.result["storm_s"] = await _soon(shown) - done["began"]
        self.result["storm_written_s"] = done["ended"] - done["began"]
        await asyncio.sleep(_KEPT_SECONDS)
        self.result["storm_writes_s"] = counted.most_in_a_second
        self.result["storm_writes"] = len(counted.at)
        self.result["storm_kept"] = counted.kept
        over = self._readers.shows_all(nodes, "")
        await self._load.do("storm", nodes=nodes, faulty=None)
        await _soon(over)

    async def measure_takeover(self) -> None:
        """Start a second replica, and measure what readers see when the first one ends."""
        second, count = self._new_daemon("second"), self._readers.count
        replicas = Replicas(self._daemon, second, self._change, count)
        try:
            await replicas.follow()
            self.result |= await replicas.measure()
        finally:
            self._daemon = replicas.leader
            await asyncio.to_thread(replicas.follower.stop)

    async def measure_full(self, seconds: float, changes: int, follower: bool) -> None:
        """Measure a cluster as it is: Nodes, pods, beats and documents that are written again."""
        self.result["peak_mb"] = self._peak_mb(self._daemon)
        await asyncio.to_thread(self._daemon.stop)
        await self._load.do("nodes")
        await self._load.do("pods", count=_PODS_OF_A_NODE * len(self._names))
        await self._beat()
        await self._load.do("rewrite", seconds=_REWRITE_SECONDS)
        began = time.monotonic()
        await asyncio.to_thread(self._daemon.start)
        self.result["full_again_s"] = time.monotonic() - began
        await self.measure_rest(seconds, "full")
        await self.measure_changes(changes, "full_")
        self.result["full_peak_mb"] = self._peak_mb(self._daemon)
        if follower:
            await self._measure_follower(seconds)
        await self._load.do("quiet")

    async def measure_advice(self, seconds: float, changes: int) -> None:
        """Measure an aggregator that advises about 2 pods on each node, 8 to a job."""
        await asyncio.to_thread(self._daemon.stop)
        for kind in (POD_GROUPS, VCJOBS):
            await asyncio.to_thread(kind.install, self._plane)
        pods = _PODS_OF_A_NODE * len(self._names)
        await self._load.do("jobs", pods=pods, jobs=pods // _PODS_OF_A_JOB)
        self._daemon.environment["VIGIL_ADVICE_ENABLED"] = "true"
        await asyncio.to_thread(self._daemon.spawn)
        await asyncio.to_thread(self._daemon.process.wait_until, self._advises, _ADVISED_SECONDS)
        await self.measure_rest(seconds, "advice")
        await self.measure_changes(changes, "advice_")
        self.result["advice_end_rss_mb"] = self._process().memory_info().rss / _MB
        self.result["advice_peak_mb"] = self._peak_mb(self._daemon)

    async def measure_dpus(self, seconds: float) -> None:
        """Measure what documents of RDMA plugins cost, one for each node."""
        await self._start_again(0)
        await self.measure_rest(seconds, "no_dpus")
        await self._load.do("dpus", seconds=_REWRITE_SECONDS)
        await self._start_again(len(self._names))
        await self.measure_rest(seconds, "dpus")
        for unit in ("rss_mb", "cpu_s"):
            self.result[f"dpus_more_{unit}"] = (
                self.result[f"dpus_{unit}"] - self.result[f"no_dpus_{unit}"]
            )
        self.result["dpus_shown"] = self._daemon.metric("npu_vigil_cluster_dpu_faults{")
        await self._load.do("quiet")

    async def _start_again(self, dpus: int) -> None:
        """Start the aggregator anew; both times its metrics are read, which costs memory, too."""
        await asyncio.to_thread(self._daemon.stop)
        await asyncio.to_thread(self._daemon.spawn)
        is_ready = partial(self._shows_dpus, dpus)
        await asyncio.to_thread(self._daemon.process.wait_until, is_ready, _ADVISED_SECONDS)

    def _shows_dpus(self, count: int) -> bool:
        if self._daemon.ask("/readyz")[0] != 200:
            return False
        return self._daemon.metric('npu_vigil_dpu_documents{state="current"}') == count

    def _advises(self) -> bool:
        if self._daemon.ask("/readyz")[0] != 200:
            return False
        return bool(self._daemon.ask("/api/v1/advice")[1]["advice"]["advised_at_ms"])

    async def _measure_follower(self, seconds: float) -> None:
        second = self._new_daemon("follower")
        try:
            await asyncio.to_thread(second.start)
            process = psutil.Process(second.process.pid)
            before = process.cpu_times()
            await asyncio.sleep(seconds)
            used = _used(before, process.cpu_times())
            self.result["follower_cpu_s"] = used * 60 / seconds
            self.result["follower_rss_mb"] = process.memory_info().rss / _MB
            self.result["follower_peak_mb"] = self._peak_mb(second)
        finally:
            await asyncio.to_thread(second.stop)

    def _process(self) -> psutil.Process:
        return psutil.Process(self._daemon.process.pid)

    def _peak_mb(self, daemon: Daemon) -> float:
        status = Path(f"/proc/{daemon.process.pid}/status").read_text()
        line = next(one for one in status.splitlines() if one.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024 / _MB


async def _soon(shown: asyncio.Future[float]) -> float:
    async with asyncio.timeout(_SHOWN_SECONDS):
        return await shown


def _p99(milliseconds: list[float]) -> float:
    return statistics.quantiles(milliseconds, n=100)[98]


def _used(before: Any, after: Any) -> float:
    """Return the CPU seconds between two readings."""
    seconds: float = after.user + after.system - before.user - before.system
    return seconds


async def measure(
    plane: ControlPlane, directory: Path, size: tuple[int, int], options: argparse.Namespace
) -> dict[str, Any]:
    """Measure one size of cluster."""
    # With ``full`` there would be other Nodes and pods already.
    every = tuple(part for part in PARTS if part not in _BY_ITSELF)
    if options.played:
        every = _PLAYED_PARTS
    parts = options.only or (every if size == _COMPLETE_SIZE else _PARTS_OF_OTHER_SIZES)
    cluster = Cluster(plane, directory, *size)
    async with cluster.running():
        if "changes" in parts:
            await cluster.measure_changes(options.changes)
        if "rest" in parts:
            await cluster.measure_rest(options.seconds)
        if "leases" in parts:
            await cluster.measure_leases(options.seconds)
        if "storm" in parts:
            await cluster.measure_storm()
        if "takeover" in parts:
            await cluster.measure_takeover()
        if "full" in parts:
            await cluster.measure_full(options.seconds, options.changes, options.follower)
        if "advice" in parts:
            await cluster.measure_advice(options.seconds, options.changes)
        if "dpus" in parts:
            await cluster.measure_dpus(options.seconds)
    return without_times(cluster.result) if options.played else cluster.result


def _plane(directory: Path, size: tuple[int, int], *, is_played: bool) -> ControlPlane:
    if is_played:
        return PlayedPlane(directory, *size)
    return ControlPlane(directory, quota_bytes=_QUOTA_BYTES)


def main() -> None:
    """Print a table for each size, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--nodes", type=int, action="append")
    parser.add_argument("--chips", type=int, action="append", choices=(8, 16))
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--follower", action="store_true")
    parser.add_argument("--played", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.played and not set(options.only or ()) <= set(_PLAYED_PARTS):
        parser.error(f"--played measures {', '.join(_PLAYED_PARTS)} and no other part")
    sizes = _SIZES
    if options.nodes or options.chips:
        sizes = tuple((n, c) for c in options.chips or [8] for n in options.nodes or [10_000])
    results = []
    for size in sizes:
        with (
            tempfile.TemporaryDirectory(prefix="vigil-scale-") as directory,
            _plane(Path(directory), size, is_played=options.played) as plane,
        ):
            results.append(asyncio.run(measure(plane, Path(directory), size, options)))
        if not options.json:
            print_table(results[-1])
    if options.json:
        json.dump(results, sys.stdout, indent=2)
        print()
    for one in missed(results):
        print(f"missed: {one}", file=sys.stderr)
    sys.exit(1 if missed(results) else 0)


if __name__ == "__main__":
    main()
