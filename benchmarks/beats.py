"""What thousands of heartbeats on one broker cost one aggregator, and when a node is found silent.

::

    python -m benchmarks.beats [--connections 5000] [--minutes 5] [--interval 5] [--json]

A real mosquitto, a real ``vigil aggregator`` that publishes to a directory, and as many connections
as asked for, each a node that beats at QoS 1 and has a last will. Meanwhile some fall silent with
their connection open, some lose their connection, and no other node may be published lost. Beside
that one node changes its device-info now and then: how long this takes until it is in cluster-info
is what waits behind the beats.

Every connection is a file in this process and one in the broker: ``ulimit -n`` must be above
``--connections`` by 500; it is raised where it may be, and printed. Ends with 1 when a node was
lost that was not, or one was found too late.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import resource
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from aggregator.merge.pipeline import LOST_ANNOTATION
from benchmarks.beat_clients import connect, keep_beating
from benchmarks.scale_documents import device_document
from contract.names import CLUSTER_NAMESPACE, CLUSTER_NODE_NAME
from stores.address import open_store
from tests.aggregator.daemon import Daemon
from tests.parts.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.beat_clients import BeatingClient
    from stores.base import Store

_VICTIMS = 3
"""So many fall silent and so many lose their connection: too few for the brake."""
_SPARE_FILES = 500
_LOOK_SECONDS = 0.05
_PROBE_SECONDS = 1.0
_PROBE_NODE = "probe"
# Beyond the threshold of the interval: one listing and one write.
_LATEST_SECONDS = 1.0
_BROKEN_INTERVALS = 2


@dataclass
class Lost:
    """The nodes that are published lost, as the readers of cluster-info see it, and since when."""

    file: Path
    found_at: dict[str, float] = field(default_factory=dict)

    async def look(self) -> None:
        """Look until cancelled."""
        seen = 0
        while True:
            # Before the first loss there is no such document.
            with contextlib.suppress(FileNotFoundError):
                changed = self.file.stat().st_mtime_ns
                if changed != seen:
                    seen = changed
                    annotations = json.loads(self.file.read_text()).get("annotations", {})
                    for node in filter(None, annotations.get(LOST_ANNOTATION, "").split(",")):
                        self.found_at.setdefault(node, time.monotonic())
            await asyncio.sleep(_LOOK_SECONDS)


@dataclass
class Probe:
    """Changes one node's device-info and waits until cluster-info has it."""

    store: Store
    directory: Path
    milliseconds: list[float] = field(default_factory=list)

    async def run(self) -> None:
        """Go on until cancelled."""
        # An hour back: each change has a newer stamp, and none is ahead of the clock.
        number, stamp = 0, int(time.time()) - 3600
        while True:
            number += 1
            document = device_document(_PROBE_NODE, stamp + number, number % 8)
            at = time.perf_counter()
            await self.store.put(document)
            await self._shown(f'Unhealthy\\":\\"Ascend910-{number % 8}\\"')
            self.milliseconds.append((time.perf_counter() - at) * 1000)
            await asyncio.sleep(_PROBE_SECONDS)

    async def _shown(self, text: str) -> None:
        async with asyncio.timeout(30):
            while True:
                files = (self.directory / CLUSTER_NAMESPACE).glob("cluster-info-device-*.json")
                if any(text in file.read_text() for file in files):
                    return
                await asyncio.sleep(0.002)


def raise_limit(connections: int) -> int:
    """Return the limit of open files, raised to what is needed. End the program where it is too
    low.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + _SPARE_FILES
    # Only as far as needed: each process that is started inherits the limit.
    if soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            sys.exit(f"ulimit -n is {hard}; {connections} connections need {needed}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    return max(soft, needed)


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _quantiles(milliseconds: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(milliseconds, n=100, method="inclusive") if milliseconds[1:] else []
    return {
        "p50_ms": round(statistics.median(milliseconds), 1),
        "p99_ms": round(cuts[98], 1) if cuts else round(max(milliseconds), 1),
        "max_ms": round(max(milliseconds), 1),
    }


async def _victims(
    clients: list[BeatingClient], seconds: float, strike: Callable[[BeatingClient], None]
) -> dict[str, float]:
    """Strike one after the other within so many seconds; return node to its last beat."""
    struck = {}
    for client in clients:
        await asyncio.sleep(seconds / len(clients))
        strike(client)
        struck[client.node] = client.beaten_at
    return struck


def _fall_silent(client: BeatingClient) -> None:
    client.is_silent = True


async def run(
    directory: Path, broker: Broker, connections: int, seconds: float, interval: float
) -> dict[str, Any]:
    """Measure it."""
    published = directory / "published"
    daemon = Daemon(
        directory / "aggregator", "--store", broker.url, "--publish", f"directory:{published}"
    )
    await asyncio.to_thread(daemon.start)
    store = open_store(broker.url)
    probe = Probe(store, published)
    lost = Lost(published / CLUSTER_NAMESPACE / f"{CLUSTER_NODE_NAME}.json")
    tasks: list[asyncio.Task[None]] = []
    try:
        nodes = [f"node-{number:05}" for number in range(connections)]
        began = time.monotonic()
        clients = await connect(nodes, broker.port, interval)
        connecting = time.monotonic() - began
        tasks += [
            asyncio.create_task(work)
            for work in (keep_beating(clients, interval), lost.look(), probe.run())
        ]
        # Two intervals, so that no connection's start is in the figures.
        await asyncio.sleep(2 * interval)
        measured = {
            "aggregator": psutil.Process(daemon.process.pid),
            "broker": psutil.Process(broker.pid),
            "clients": psutil.Process(),
        }
        before = {name: _cpu_seconds(process) for name, process in measured.items()}
        beaten = sum(client.acknowledged for client in clients)
        # Those were measured while clients connected.
        probe.milliseconds.clear()
        began = time.monotonic()
        # Four intervals are left at the end, in which the last one must be found.
        half = (seconds - 4 * interval) / 2
        silent = await _victims(clients[:_VICTIMS], half, _fall_silent)
        broken = await _victims(
            clients[_VICTIMS : 2 * _VICTIMS], half, lambda client: client.break_off()
        )
        await asyncio.sleep(max(0.0, began + seconds - time.monotonic()))
        took = time.monotonic() - began
        used = {name: _cpu_seconds(one) - before[name] for name, one in measured.items()}
        beaten = sum(client.acknowledged for client in clients) - beaten
        struck = silent | broken
        state = (await asyncio.to_thread(daemon.ask, "/api/v1/liveness"))[1]["liveness"]
        return {
            "connections": connections,
            "ulimit_n": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            "seconds": round(took, 1),
            "connecting_s": round(connecting, 1),
            "beats_per_second": round(beaten / took, 1),
            "false_losses": sorted(lost.found_at.keys() - struck.keys()),
            "alarm": state["alarm"],
            "connections_ended": sum(c.ended is not None for c in clients) - len(broken),
            "silent_found_s": _after(silent, lost),
            "broken_found_s": _after(broken, lost),
            "cpu_percent": {name: round(one / took * 100, 1) for name, one in used.items()},
            "memory_mib": {
                name: round(measured[name].memory_full_info().pss / 2**20, 1)
                for name in ("aggregator", "broker")
            },
            "change_behind_beats": _quantiles(probe.milliseconds),
        }
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        await store.close()
        daemon.stop()
        for one in ended:
            if isinstance(one, Exception):
                raise one


def _after(struck: dict[str, float], lost: Lost) -> list[float | None]:
    """Return the seconds from the last beat until it was published; ``None`` for one not found."""
    return [
        round(lost.found_at[node] - at, 2) if node in lost.found_at else None
        for node, at in struck.items()
    ]


def wrong(result: dict[str, Any], interval: float) -> list[str]:
    """Return what is not as it must be."""
    output = []
    if result["false_losses"]:
        output.append(f"published lost, but were not: {', '.join(result['false_losses'][:10])}")
    if result["alarm"]:
        output.append("the silence alarm was raised")
    if result["connections_ended"]:
        output.append(f"{result['connections_ended']} connections ended that should not")
    for what, intervals in (("silent", 3), ("broken", _BROKEN_INTERVALS)):
        limit = intervals * interval + _LATEST_SECONDS
        # ``None`` is a node that was never found, which is later than any limit.
        late = [one for one in result[f"{what}_found_s"] if one is None or one > limit]
        if late:
            output.append(f"{what} nodes found after {late} s, allowed are {limit} s")
    return output


def main() -> int:
    """Print the figures, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--connections", type=int, default=5000)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--interval", type=float, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    raise_limit(options.connections)
    with tempfile.TemporaryDirectory(prefix="vigil-beats-") as name:
        directory = Path(name)
        (directory / "broker").mkdir()
        # mosquitto would drop messages of a slow subscriber at its default of 1,000.
        with Broker(directory / "broker", ("max_queued_messages 0",)) as broker:
            result = asyncio.run(
                run(directory, broker, options.connections, options.minutes * 60, options.interval)
            )
    found = wrong(result, options.interval)
    if options.json:
        json.dump(result | {"wrong": found}, sys.stdout, indent=2)
        print()
    else:
        for key, value in result.items():
            print(f"{key:20} {value}")
        for one in found:
            print(f"WRONG: {one}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
