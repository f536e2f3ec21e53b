"""Many open pages without a browser: each reads rows and the stream as ``live.js`` does.

::

    python -m benchmarks.page_clients URL PAGES

A browser with 50 tabs would take the cores on which the aggregator is measured. Pages come from ten
loopback addresses. The program runs until it is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from typing import TYPE_CHECKING

import aiohttp
import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

_ADDRESSES = 10
_MAX_NODES_ASKED = 20
_ROWS_SECONDS = 1.0
_BETWEEN_SECONDS = 0.3
_WHOLE_SECONDS = 1.0
_REFRESH_SECONDS = 60.0
_RETRY_SECONDS = 1.0
_MAX_RETRY_SECONDS = 30.0
_STARTING_SECONDS = 3.0
_NOT_READY = 503


class _Page(msgspec.Struct):
    stream: str


class _Change(msgspec.Struct):
    node: str = ""
    nodes: list[str] = []


class _Rows(msgspec.Struct):
    asked: list[str]


_page = msgspec.json.Decoder(_Page)
_change = msgspec.json.Decoder(_Change)
_rows = msgspec.json.Decoder(_Rows)


class OpenPage:
    """One page at ``url``; see ``live.js`` for the same names."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url
        self._tag = ""
        self._last_id = ""
        self._pending: set[str] = set()
        self._wants_whole = False
        self._came = asyncio.Event()

    async def run(self) -> None:
        """Stay open until cancelled."""
        retry = _RETRY_SECONDS
        while True:
            try:
                await self._read({})
                retry = _RETRY_SECONDS
                await self._follow()
            except aiohttp.ClientResponseError as error:
                if error.status == _NOT_READY:
                    await asyncio.sleep(_spread(_STARTING_SECONDS))
                    continue
            except (aiohttp.ClientError, TimeoutError):
                pass
            await asyncio.sleep(_spread(retry))
            retry = min(2 * retry, _MAX_RETRY_SECONDS)

    async def _read(self, asked: Mapping[str, str] | list[tuple[str, str]]) -> None:
        headers = {"If-None-Match": self._tag} if self._tag and not asked else {}
        address = f"{self._url}/api/v1/fleet"
        async with self._session.get(address, params=asked, headers=headers) as answer:
            answer.raise_for_status()
            body = await answer.read()
            if answer.status == 200 and not asked:
                self._tag = answer.headers["ETag"]
                self._last_id = self._last_id or _page.decode(body).stream

    async def _follow(self) -> None:
        headers = {"Last-Event-ID": self._last_id}
        timeout = aiohttp.ClientTimeout(total=None, sock_read=45)
        address = f"{self._url}/api/v1/stream?rows=true"
        async with self._session.get(address, headers=headers, timeout=timeout) as stream:
            stream.raise_for_status()
            reading = asyncio.create_task(self._read_what_changed())
            refresh = asyncio.create_task(self._refresh())
            event = b""
            try:
                async for line in stream.content:
                    if line.startswith(b"id: "):
                        self._last_id = line[4:].decode().strip()
                    elif line.startswith(b"event: "):
                        event = line[7:].strip()
                    elif not line.startswith(b"data: "):
                        continue
                    elif event == b"gap":
                        break
                    elif event == b"rows":
                        self._pending.difference_update(_rows.decode(line[6:]).asked)
                    else:
                        change = _change.decode(line[6:])
                        self._pending.update(change.nodes, {change.node} - {""})
                        self._came.set()
            finally:
                self._last_id = self._tag = ""
                for task in (reading, refresh):
                    task.cancel()
                await asyncio.gather(reading, refresh, return_exceptions=True)

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(_spread(_REFRESH_SECONDS))
            self._wants_whole = True
            self._came.set()

    async def _read_what_changed(self) -> None:
        while True:
            await self._came.wait()
            if self._wants_whole or len(self._pending) > _MAX_NODES_ASKED:
                await asyncio.sleep(_WHOLE_SECONDS * (0.5 + random.random() / 2))
            else:
                await asyncio.sleep(_ROWS_SECONDS)
            self._came.clear()
            nodes, self._pending = self._pending, set()
            is_whole = self._wants_whole or len(nodes) > _MAX_NODES_ASKED
            self._wants_whole = False
            if not is_whole and not nodes:
                continue
            await self._read([] if is_whole else [("node", node) for node in nodes])
            await asyncio.sleep(_BETWEEN_SECONDS)


def _spread(seconds: float) -> float:
    return seconds * (1 + random.random() / 2)


async def open_pages(url: str, pages: int) -> None:
    """Keep so many pages open until cancelled."""
    async with contextlib.AsyncExitStack() as stack:
        sessions = [
            await stack.enter_async_context(
                aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(limit=0, local_addr=(f"127.0.0.{2 + number}", 0))
                )
            )
            for number in range(_ADDRESSES)
        ]
        opened = (OpenPage(sessions[number % _ADDRESSES], url) for number in range(pages))
        await asyncio.gather(*(page.run() for page in opened))


if __name__ == "__main__":
    asyncio.run(open_pages(sys.argv[1], int(sys.argv[2])))
