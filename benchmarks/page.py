"""Measures the page in a real Chromium at 10,000 nodes: first rows, a change, a storm, many pages.

::

    python -m benchmarks.page [--nodes N] [--pages N]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import psutil

from stores.address import open_store
from tests.aggregator.daemon import Daemon
from tests.aggregator.nodes import T0, report
from tests.contract.documents.test_cluster_device import config, fault
from tests.parts.chromium import Chromium

if TYPE_CHECKING:
    from collections.abc import Sequence

    from playwright.async_api import Page

    from stores.base import Document, Store

_CHIPS = 16
_FAULTY_PART = 100
_CHANGES = 60
_STORM_PART = 20
_REST_SECONDS = 20.0
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
    return {"readable_seconds": seconds, "requests": len(sent), "sent_bytes": sum(sent)}


async def _add(request: Any, sent: list[int]) -> None:
    sent.append((await request.sizes())["responseBodySize"])


async def _changes(page: Page, store: Store) -> dict[str, float]:
    times = []
    for number in range(_CHANGES):
        # Each on a node of its own, which was healthy.
        node = number * _FAULTY_PART + 1
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


async def _rest(daemon: Daemon, pages: int) -> dict[str, float]:
    """Return which part of a core the aggregator takes without a page, and with so many."""
    process = psutil.Process(daemon.process.pid)
    quiet = await _part(process)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        streams = [
            asyncio.create_task(_listen(session, f"{daemon.url}/api/v1/stream"))
            for _ in range(pages)
        ]
        busy = await _part(process)
        for stream in streams:
            stream.cancel()
    return {"quiet_percent": quiet, f"{pages}_pages_percent": busy}


async def _listen(session: aiohttp.ClientSession, url: str) -> None:
    async with session.get(url, timeout=aiohttp.ClientTimeout(total=None)) as answer:
        async for _ in answer.content.iter_any():
            pass


async def _part(process: psutil.Process) -> float:
    process.cpu_percent()
    await asyncio.sleep(_REST_SECONDS)
    return float(process.cpu_percent())


async def measure(nodes: int, pages: int) -> dict[str, Any]:
    """Return all figures."""
    with tempfile.TemporaryDirectory(prefix="vigil-page-") as folder:
        directory = Path(folder)
        url = f"directory:{directory / 'store'}"
        store = open_store(url, None)
        for number in range(nodes):
            await store.put(_document(number, number % _FAULTY_PART == 0, T0))
        daemon = Daemon(directory / "aggregator", "--store", url)
        daemon.start()
        (directory / "chromium").mkdir()
        chromium = Chromium(directory / "chromium")
        figures: dict[str, Any] = {"nodes": nodes}
        try:
            async with chromium.page() as page:
                figures |= await _first_rows(page, daemon, nodes)
                await page.evaluate(_FRAMES)
                figures["change"] = await _changes(page, store)
                figures["change_longest_frame_ms"] = await _longest_frame_ms(page)
                figures["storm_seconds"] = await _storm(page, store, nodes)
                figures["storm_longest_frame_ms"] = await _longest_frame_ms(page)
            figures["rest"] = await _rest(daemon, pages)
        finally:
            chromium.close()
            daemon.stop()
            await store.close()
        return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--pages", type=int, default=50)
    given = parser.parse_args()
    print(json.dumps(asyncio.run(measure(given.nodes, given.pages)), indent=1))
