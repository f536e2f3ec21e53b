"""What an aggregator needs for many agents on one broker, and what a restart of the broker does.

::

    python -m benchmarks.broker [--agents 1000] [--changes 200] [--restarts 3] [--json]

A real mosquitto without persistence, a real ``vigil aggregator``, and as many agents as asked for
in a process of their own (``benchmarks.broker_agents``), a tenth of them with a standing fault. An
independent reader follows cluster-info throughout. Measured are the start of the aggregator until
it is ready, one change at a time until the reader sees it, the memory of the aggregator, and after
each restart of the broker the time until every document and every entry is right again. Ends with 1
when a budget is missed, a chip turned healthy, or a node vanished.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from typing_extensions import override

from benchmarks.report import quantile_ms
from benchmarks.scale_documents import chip, node_names
from contract.errors import StoreError
from contract.names import CLUSTER_DEVICE_PREFIX, DEVICE_INFO_NAMESPACE, REPORT_LABEL
from stores.address import open_store
from stores.base import Selection
from tests.aggregator.chip_reader import ChipReader
from tests.aggregator.daemon import OUTPUTS, Daemon
from tests.aggregator.nodes import published
from tests.parts.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from stores.base import Document, Store

# Without persistence, so that a restart loses everything; no message is dropped, and none waits for
# Nagle.
_SETTINGS = (
    "max_queued_messages 1000000",
    "set_tcp_nodelay true",
    "autosave_interval 0",
)
BUDGETS = {
    "ready_seconds": 4.0,
    "change_p50_ms": 10.0,
    "change_p99_ms": 80.0,
    "right_seconds": 6.0,
    "memory_mib": 60.0,
}
_QUIET_SECONDS = 0.1
_PATIENCE_SECONDS = 60.0
_FAULTY_SHARE = 10


class Agents:
    """The process of all agents."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def begin(cls, url: str, count: int) -> Agents:
        arguments = ("-m", "benchmarks.broker_agents", url, str(count), str(count // _FAULTY_SHARE))
        pipe = asyncio.subprocess.PIPE
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable, *arguments, stdin=pipe, stdout=pipe
            )
        )

    async def change(self, node: str, number: int | None) -> float:
        """Have a node change; the steady time just before its write."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{node} {'-' if number is None else number}\n".encode())
        return float(await self._process.stdout.readline())

    async def end(self) -> None:
        """End the process."""
        self._process.kill()
        await self._process.wait()


class Reader(ChipReader):
    """Also notes when a node's chip was first shown ill."""

    def __init__(self) -> None:
        super().__init__()
        self.waits_for = ("", "")
        self.came = asyncio.Event()
        self.came_at = 0.0

    @override
    def take(self, document: Document) -> None:
        at = time.monotonic()
        super().take(document)
        node, name = self.waits_for
        if not node or not document.name.startswith(CLUSTER_DEVICE_PREFIX):
            return
        entry = published(document.data[document.name]).get(node)
        if entry is not None and name in str(entry["DeviceList"]):
            ill = entry["DeviceList"]["huawei.com/Ascend910-Unhealthy"]
            if name in ill.split(","):
                self.came_at = at
                self.waits_for = ("", "")
                self.came.set()


async def _until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Ask until it is so, also of a broker that is away."""
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while True:
            # A broker that restarts gives no answer for a while.
            with contextlib.suppress(StoreError):
                if await is_so():
                    return
            await asyncio.sleep(0.05)


async def _all_there(store: Store, count: int) -> None:
    """Wait until the broker has each agent's document."""
    reports = Selection(DEVICE_INFO_NAMESPACE, label=REPORT_LABEL)

    async def is_so() -> bool:
        return len(await store.list(reports)) >= count

    await _until(is_so)


async def _right_seconds(store: Store, wanted: dict[str, str], began: float) -> float:
    """Wait until documents and entries are what they were; how long that took."""
    await _all_there(store, len(wanted))

    async def is_so() -> bool:
        return await _entries(store) == wanted

    await _until(is_so)
    return time.monotonic() - began


async def _entries(store: Store) -> dict[str, str]:
    """Return node to the unhealthy chips that cluster-info shows."""
    found = {}
    for document in await store.list(OUTPUTS):
        if document.name.startswith(CLUSTER_DEVICE_PREFIX):
            for node, entry in published(document.data[document.name]).items():
                found[node] = entry["DeviceList"]["huawei.com/Ascend910-Unhealthy"]
    return found


async def _changes(agents: Agents, reader: Reader, nodes: list[str], count: int) -> list[float]:
    """Make a chip of one node after the other ill; how long each took to be seen."""
    seconds = []
    for node in nodes[:count]:
        # Before the change is made: it may be shown before this task runs again.
        reader.came.clear()
        reader.waits_for = (node, chip(5))
        began = await agents.change(node, 5)
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await reader.came.wait()
        seconds.append(reader.came_at - began)
        await asyncio.sleep(_QUIET_SECONDS)
    return seconds


async def measure(directory: Path, count: int, changes: int, restarts: int) -> dict[str, Any]:
    """Measure everything; figures by the name of their budget, and what was wrong."""
    nodes = node_names(count)
    with Broker(directory, _SETTINGS) as broker:
        store = open_store(broker.url)
        agents = await Agents.begin(broker.url, count)
        daemon = Daemon(directory / "aggregator", "--store", broker.url)
        reader = Reader()
        try:
            await _all_there(store, count)
            began = time.monotonic()
            await asyncio.to_thread(daemon.start)
            ready = time.monotonic() - began
            with contextlib.suppress(AssertionError):  # what was wrong is in the figures
                async with reader.reading(store):
                    # Those without a fault: a new one has to be seen among none.
                    healthy = nodes[count // _FAULTY_SHARE :]
                    seconds = await _changes(agents, reader, healthy, changes)
                    # What was published right before the restarts is what must be there afterwards.
                    wanted = await _entries(store)
                    right = []
                    for _ in range(restarts):
                        broker.kill()
                        broker.start()
                        right.append(await _right_seconds(store, wanted, time.monotonic()))
            memory = psutil.Process(daemon.process.pid).memory_full_info().pss
            return {
                "ready_seconds": ready,
                "change_p50_ms": quantile_ms(seconds, 0.5),
                "change_p99_ms": quantile_ms(seconds, 0.99),
                "right_seconds": max(right),
                "memory_mib": memory / 2**20,
                "wrong": reader.wrong,
            }
        finally:
            daemon.stop()
            await agents.end()
            await store.close()


def main() -> None:
    """Measure, print, and end with 1 when something is not as it should be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--restarts", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        figures = asyncio.run(measure(Path(directory), given.agents, given.changes, given.restarts))
    missed = [name for name, budget in BUDGETS.items() if figures[name] > budget]
    if given.json:
        print(json.dumps(figures | {"missed": missed}))
    else:
        for name, budget in BUDGETS.items():
            verdict = "missed" if name in missed else "held"
            print(f"{name:16} {figures[name]:8.1f}   budget {budget:5.1f}   {verdict}")
        print(f"{'wrong':16} {len(figures['wrong']):8}   {', '.join(figures['wrong'][:5])}")
    sys.exit(1 if missed or figures["wrong"] else 0)


if __name__ == "__main__":
    main()
