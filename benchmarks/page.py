"""Measures the page in a real Chromium at 10,000 nodes: first rows, a change, a storm.

What 50 open pages cost the aggregator is measured with pages of ``page_clients``: at rest, while
nodes change, and when the aggregator starts again.

::

    python -m benchmarks.page [--nodes N] [--pages N]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import socket
import statistics
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks.scale_watch import Readers
from stores.address import open_store
from tests.aggregator.daemon import Daemon
from tests.aggregator.nodes import T0, report
from tests.contract.documents.node_documents import config, fault
from tests.parts.chromium import Chromium
from tests.parts.deadlines import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from playwright.async_api import Page

    from stores.base import Document, Store

_CHIPS = 16
_FAULTY_PART = 100
_CHANGES = 120
_STORM_PART = 20
_REST_SECONDS = 90.0
"""Longer than the time after which each page asks whether something changed."""
_BLOCKS = 3
_PUBLICATIONS = 150
"""In each block without pages, and in each with them."""
_RESTARTS = 5
_PUBLISHED_SECONDS = 120.0
"""A deadline only."""
_FRAMES = """
() => {
  window.longest = 0;
  let last = performance.now();
  const frame = (now) => {
    window.longest = Math.max(window.longest, now - last);
    last = now;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
}
"""
_SHOWN = """
([name, word]) => document.querySelector(`[data-node="${name}"]`)?.ariaLabel?.includes(word)
"""


def _name(number: int) -> str:
    return f"node-{number:05}"


def _document(number: int, is_faulty: bool, stamp: int) -> Document:
    chip = number % _CHIPS
    if not is_faulty:
        return report(_name(number), config(update_time=stamp))
    faults = [fault(chip, "RestartNPU", "80E18402")]
    return report(_name(number), config(faults, unhealthy=(chip,), update_time=stamp))


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "p50_ms": round(ordered[len(ordered) // 2] * 1000),
        "p99_ms": round(ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] * 1000),
    }


async def _shown(page: Page, number: int, word: str) -> None:
    await page.wait_for_function(_SHOWN, arg=[_name(number), word], timeout=60_000)


async def _longest_frame_ms(page: Page) -> int:
    longest = await page.evaluate("Math.round(window.longest)")
    await page.evaluate("window.longest = 0")
    return int(longest)


async def _first_rows(page: Page, daemon: Daemon, nodes: int) -> dict[str, Any]:
    sent: list[int] = []
    sizes: list[asyncio.Task[None]] = []
    page.on(
        "requestfinished", lambda request: sizes.append(asyncio.create_task(_add(request, sent)))
    )
    began = time.monotonic()
    await page.goto(daemon.url)
    await page.wait_for_function(
        "count => document.querySelectorAll('[data-node]').length === count",
        arg=nodes,
        timeout=60_000,
    )
    seconds = round(time.monotonic() - began, 2)
    # The size of an answer is asked for behind its end.
    await asyncio.gather(*sizes)
    # The worker asks for the rows, and the browser counts no request of a worker.
    rows = await asyncio.to_thread(_rows_bytes, daemon.url)
    return {
        "readable_seconds": seconds,
        "requests": len(sent) + 1,
        "page_bytes": sum(sent),
        "rows_bytes": rows,
    }


def _rows_bytes(url: str) -> int:
    request = urllib.request.Request(f"{url}/api/v1/fleet", headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request) as answer:
        return len(answer.read())


async def _add(request: Any, sent: list[int]) -> None:
    sent.append((await request.sizes())["responseBodySize"])


async def _changes(page: Page, store: Store) -> dict[str, float]:
    times = []
    for number in range(_CHANGES):
        # Each on a node of its own, which was healthy.
        node = number * _STORM_PART + 1
        began = time.monotonic()
        await store.put(_document(node, True, T0 + 10))
        await _shown(page, node, "RestartNPU")
        times.append(time.monotonic() - began)
        await asyncio.sleep(0.2)
    return _quantiles(times)


async def _storm(page: Page, store: Store, nodes: int) -> float:
    hit = range(2, nodes, _STORM_PART)
    began = time.monotonic()
    for number in hit:
        await store.put(_document(number, True, T0 + 20))
    for number in (hit[0], hit[-1]):
        await _shown(page, number, "RestartNPU")
    return round(time.monotonic() - began, 2)


class ManyPages:
    """Measures what open pages cost the aggregator; ``nodes`` are those that were not changed."""

    def __init__(self, daemon: Daemon, store: Store, pages: int, nodes: Iterator[int]) -> None:
        self._daemon = daemon
        self._store = store
        self._pages = pages
        self._nodes = nodes
        self._readers = Readers(store)
        self._following = asyncio.create_task(self._readers.run())

    async def measure(self) -> dict[str, Any]:
        """Return all figures, without a page and with so many."""
        await self._readers.listed.wait()
        try:
            quiet_part = await self._part()
            async with self._open():
                part = await self._part()
            return {
                "pages": self._pages,
                "rest_percent": {"quiet": quiet_part, "pages": part},
                "publication": await self._publications(),
                "first_publication_seconds": await self._restarts(),
            }
        finally:
            self._following.cancel()

    @contextlib.asynccontextmanager
    async def _open(self) -> AsyncIterator[None]:
        command = (sys.executable, "-m", "benchmarks.page_clients", self._daemon.url)
        clients = await asyncio.create_subprocess_exec(*command, str(self._pages))
        try:
            await until(lambda: self._streams() == self._pages, "all pages are open", 60)
            yield
        finally:
            clients.terminate()
            await clients.wait()

    def _streams(self) -> int:
        return int(self._daemon.metric("npu_vigil_stream_clients"))

    async def _part(self) -> float:
        """Return which part of a core the aggregator takes at rest, in percent."""
        process = psutil.Process(self._daemon.process.pid)
        process.cpu_percent()
        await asyncio.sleep(_REST_SECONDS)
        return float(process.cpu_percent())

    async def _publications(self) -> dict[str, dict[str, float]]:
        quiet: list[float] = []
        busy: list[float] = []
        for _ in range(_BLOCKS):
            # In turn, so that other work on this machine meets both alike.
            await self._publish(quiet)
            async with self._open():
                await self._publish(busy)
        return {"quiet": _quantiles(quiet), "pages": _quantiles(busy)}

    async def _publish(self, times: list[float]) -> None:
        for _ in range(_PUBLICATIONS):
            began = time.monotonic()
            times.append(await self._published() - began)
            await asyncio.sleep(0.2)

    async def _published(self) -> float:
        """Change a node; return when (monotonic) a reader of the cluster documents sees it."""
        node = next(self._nodes)
        seen = self._readers.shows(_name(node), f"Ascend910-{node % _CHIPS}")
        await self._store.put(_document(node, True, int(time.time())))
        waits: set[asyncio.Future[Any]] = {seen, self._following}
        await asyncio.wait(waits, timeout=_PUBLISHED_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if self._following.done():
            raise RuntimeError("the reader has ended") from self._following.exception()
        if not seen.done():
            raise TimeoutError(f"{_name(node)} is not published after {_PUBLISHED_SECONDS:g} s")
        return seen.result()

    async def _restarts(self) -> dict[str, float]:
        """Return how long after its start an aggregator publishes a change, in the median."""
        quiet, busy = [], []
        for _ in range(_RESTARTS):
            # In turn, too.
            quiet.append(await self._restart())
            async with self._open():
                busy.append(await self._restart())
        return {"quiet": statistics.median(quiet), "pages": statistics.median(busy)}

    async def _restart(self) -> float:
        await asyncio.to_thread(self._daemon.stop)
        published = asyncio.create_task(self._published())
        await asyncio.sleep(0.1)
        began = time.monotonic()
        await asyncio.to_thread(self._daemon.spawn)
        return round(await published - began, 2)


async def measure(nodes: int, pages: int) -> dict[str, Any]:
    """Return all figures."""
    with tempfile.TemporaryDirectory(prefix="vigil-page-") as folder:
        directory = Path(folder)
        url = f"directory:{directory / 'store'}"
        store = open_store(url, None)
        for number in range(nodes):
            await store.put(_document(number, number % _FAULTY_PART == 0, T0))
        # A restart keeps the address, so that open pages find it again.
        with socket.create_server(("127.0.0.1", 0)) as free:
            listen = f"127.0.0.1:{free.getsockname()[1]}"
        daemon = Daemon(directory / "aggregator", "--store", url, listen=listen)
        daemon.start()
        (directory / "chromium").mkdir()
        figures: dict[str, Any] = {"nodes": nodes}
        try:
            async with Chromium(directory / "chromium") as chromium, chromium.page() as page:
                figures |= await _first_rows(page, daemon, nodes)
                await page.evaluate(_FRAMES)
                figures["change"] = await _changes(page, store)
                figures["change_longest_frame_ms"] = await _longest_frame_ms(page)
                figures["storm_seconds"] = await _storm(page, store, nodes)
                figures["storm_longest_frame_ms"] = await _longest_frame_ms(page)
            untouched = (node for node in range(nodes) if node % _STORM_PART > 2)
            figures["many"] = await ManyPages(daemon, store, pages, untouched).measure()
        finally:
            daemon.stop()
            await store.close()
        return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--pages", type=int, default=50)
    given = parser.parse_args()
    print(json.dumps(asyncio.run(measure(given.nodes, given.pages)), indent=1))
