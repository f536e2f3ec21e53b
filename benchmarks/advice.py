"""What advice costs the aggregator: ``python -m benchmarks.advice``.

In one process, without an API server: the cluster of ``benchmarks/advise.py`` as its JSON, followed
by the part of the aggregator that advises. Prints how long it takes from a changed cluster document
until advice about it is there, the CPU of such a change with the document's decoding, memory, and
the CPU of a time in which documents are only touched. Ends with 1 when a budget is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import sys
import time
from time import process_time
from typing import TYPE_CHECKING, Any, NoReturn

import psutil

from aggregator.advising.advice import AdviceService
from aggregator.advising.cluster_objects import KINDS
from benchmarks import advise
from contract.kubernetes import decode_object
from service.clock import system_clock
from stores.cluster import Snapshot, Update

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from stores.cluster import ObjectKind

LATENCY, CPU, MEMORY = "latency p99, ms", "CPU of a change, ms", "memory, MB"
BUDGETS = {LATENCY: 100.0, CPU: 5.0, MEMORY: 262.0}
_KINDS = {
    "Node": "nodes",
    "Pod": "pods",
    "PodGroup": "podgroups",
    "Job": "vcjobs",
    "ConfigMap": "documents",
}
_TOUCH_SECONDS = 45.0


class Feeds:
    """A ``Cluster`` that has what it is given."""

    def __init__(self, found: Iterable[advise.Object]) -> None:
        self.queues: dict[str, asyncio.Queue[Any]] = {}
        self.documents: dict[str, advise.Object] = {}
        self.values: dict[str, dict[str, Any]] = {kind.name: {} for kind in KINDS.values()}
        for one in found:
            kind = KINDS[_KINDS[one["kind"]]]
            uid = one["metadata"]["uid"]
            self.values[kind.name][uid] = kind.read(decode_object(json.dumps(one).encode()))
            if one["kind"] == "ConfigMap":
                self.documents[uid] = one

    async def objects(self, kind: ObjectKind[Any]) -> AsyncIterator[Any]:
        """Yield what there is of a kind, and then what changes."""
        queue = self.queues[kind.name] = asyncio.Queue()
        yield Snapshot(self.values.pop(kind.name, {}), frozenset())
        while True:
            raw = await queue.get()
            value: Any = kind.read(decode_object(raw))
            yield Update(value.uid, value)

    def write(self, text: bytes) -> None:
        """Have a cluster document be another now, as its JSON."""
        self.queues[KINDS["documents"].name].put_nowait(text)


class Changes:
    """Cards of a cluster that fail and recover, in documents."""

    def __init__(self, feeds: Feeds) -> None:
        self._feeds = feeds
        self.documents = [
            one for one in feeds.documents.values() if "device" in one["metadata"]["name"]
        ]
        self._count = 0

    def next(self) -> bytes:
        """Return the document of a card that is another now, stamped as our writers do."""
        number, self._count = self._count, self._count + 1
        one = self.documents[number * 7 % len(self.documents)]
        name = one["metadata"]["name"]
        entries = json.loads(one["data"][name])
        entry = entries[list(entries)[number * 13 % len(entries)]]
        key = "huawei.com/Ascend910-Unhealthy"
        entry["DeviceList"][key] = "" if entry["DeviceList"][key] else advise.chip(number % 8)
        entry["UpdateTime"] = max(int(time.time()), entry["UpdateTime"] + 1)
        one["data"][name] = json.dumps(entries)
        head, _, tail = _encoded(one).rpartition(_VERSION)
        return b"%b%d%b" % (head, 20_000_000 + number, tail)

    def touches(self) -> Iterator[bytes]:
        """Yield all documents with other versions, one after the other and again."""
        texts = [_encoded(one).rpartition(_VERSION) for one in self.documents]
        for number, (head, _, tail) in enumerate(itertools.cycle(texts)):
            yield b"%b%d%b" % (head, 50_000_000 + number, tail)


_VERSION = b"40000000"


def _encoded(one: advise.Object) -> bytes:
    one["metadata"]["resourceVersion"] = _VERSION.decode()
    return json.dumps(one).encode()


async def measured(given: argparse.Namespace) -> dict[str, float]:
    """Follow the cluster, change it, and leave it alone."""
    feeds = Feeds(advise.objects(given.nodes, given.pods, given.jobs, given.bad))
    changes = Changes(feeds)
    looked = asyncio.Event()
    advising = AdviceService(feeds, system_clock, lambda _: looked.set())  # type: ignore[arg-type]
    advising.kept.restore({}, system_clock())
    for name, kind in advising.shared_kinds.items():
        advising.observe_objects(name, Snapshot(feeds.values.pop(kind.name)))
    task: asyncio.Task[NoReturn] = asyncio.create_task(advising.run())

    async def advised(since: int) -> None:
        while advising.status().advised_at_ms < since:
            looked.clear()
            await looked.wait()

    await advised(1)
    first = advising.status().seconds
    await asyncio.sleep(10 * first + 2)
    gc.collect()
    latencies, cpu = [], []
    for _ in range(given.changes):
        text = changes.next()
        await asyncio.sleep(given.pause)
        used, at = process_time(), time.perf_counter()
        feeds.write(text)
        await advised(system_clock().wall_ms)
        latencies.append((time.perf_counter() - at) * 1000)
        cpu.append((process_time() - used) * 1000)
    latencies.sort()
    touches, sessions, used = changes.touches(), advising.status().sessions, process_time()
    for _ in range(int(given.rest / _TOUCH_SECONDS * len(changes.documents))):
        await asyncio.sleep(_TOUCH_SECONDS / len(changes.documents))
        feeds.write(next(touches))
    at_rest = (process_time() - used) * 60 / given.rest
    status = advising.status()
    task.cancel()
    return {
        "decisions": float(sum(len(one.decisions) for one in status.reports)),
        "first session: CPU, s": first,
        "latency p50, ms": latencies[len(latencies) // 2],
        LATENCY: latencies[len(latencies) * 99 // 100],
        CPU: sum(cpu) / len(cpu),
        "sessions in the time at rest": float(status.sessions - sessions),
        "a minute at rest: CPU, s": at_rest,
        MEMORY: psutil.Process().memory_info().rss / 1e6,
    }


def main() -> int:
    """Measure, and print what it was."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--nodes", type=int, default=10_000)
    arguments.add_argument("--pods", type=int, default=20_000)
    arguments.add_argument("--jobs", type=int, default=2_500)
    arguments.add_argument("--bad", type=int, default=5, help="percent of the nodes")
    arguments.add_argument("--changes", type=int, default=200)
    arguments.add_argument("--pause", type=float, default=0.2, help="seconds between changes")
    arguments.add_argument("--rest", type=float, default=30.0, help="seconds at rest")
    found = asyncio.run(measured(arguments.parse_args()))
    for name, value in found.items():
        budget = BUDGETS.get(name)
        rest = "" if budget is None else f"  of {budget:.0f}{'  MISSED' * (value > budget)}"
        print(f"{name:>28} {value:8.2f}{rest}")
    return 1 if any(found[name] > budget for name, budget in BUDGETS.items()) else 0


if __name__ == "__main__":
    sys.exit(main())
