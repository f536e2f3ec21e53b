"""What it costs to list a directory store every 10 s: ``python -m benchmarks.directory_listing``.

Watches a directory with files of 1,000 nodes as an aggregator does, and one of them as an agent
does. Nothing changes there. Prints the share of a core; ends with 1 where it is more than 0.5 %.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from stores.address import open_store
from stores.base import Document, DocumentsListed, Selection, Store

_CIM = ("mx-consumer-cim", "true")
_AGGREGATOR = (
    Selection(label=_CIM),
    Selection(label=("mc-consumer-publicfault", "true")),
    Selection(has_label="jobID"),
    Selection(label=("npu-vigil/state", "true")),
    Selection(namespace="mindx-dl"),
    Selection(namespace="cluster-system"),
)
_AGENT = (Selection("kube-system", "mindx-dl-deviceinfo-node-7"),)
_BUDGET_PERCENT = 0.5


async def _share(url: str, selections: tuple[Selection, ...], seconds: float) -> float:
    """Return the percentage of a core that watching takes."""
    store = open_store(url)
    ready = asyncio.Semaphore(0)

    async def follow(selection: Selection) -> None:
        async for event in store.watch(selection):
            if isinstance(event, DocumentsListed):
                ready.release()

    tasks = [asyncio.create_task(follow(one)) for one in selections]
    for _ in selections:
        await ready.acquire()
    began, used = time.monotonic(), time.process_time()
    await asyncio.sleep(seconds)
    share = 100 * (time.process_time() - used) / (time.monotonic() - began)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    await store.close()
    return share


async def _fill(store: Store, nodes: int) -> None:
    for number in range(nodes):
        name = f"mindx-dl-deviceinfo-node-{number}"
        await store.put(Document("kube-system", name, {"text": "x" * 2000}, dict([_CIM])))


async def _measure(nodes: int, seconds: float) -> int:
    worst = 0.0
    with tempfile.TemporaryDirectory() as directory:
        url = f"directory:{Path(directory) / 'store'}"
        store = open_store(url)
        await _fill(store, nodes)
        await store.close()
        for who, selections in (("aggregator", _AGGREGATOR), ("agent", _AGENT)):
            share = await _share(url, selections, seconds)
            print(f"{nodes} files, {who}: {share:.3f} % of a core")
            worst = max(worst, share)
    return int(worst > _BUDGET_PERCENT)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    sys.exit(asyncio.run(_measure(given.nodes, given.seconds)))


if __name__ == "__main__":
    main()
