"""Changes as server-sent events: ``GET /api/v1/stream``.

A client that reads slowly misses no event without notice. Where too many events wait for it, or are
not kept any more, it gets a ``gap`` and reads the state from the other pages. Each of their answers
has in ``stream`` the id of the newest event that it contains. A client that sends this id as
``Last-Event-ID`` gets all later events.

A client that sends nothing and reads nothing cannot be distinguished from one that waits for an
event. So where all places are taken, a new client gets the place of the oldest client of the
address that has the most.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter, deque
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from aiohttp import hdrs, web

from contract.sentences import english
from pacing.waiting import wait_for_event
from service.pages.parameters import Parameter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator

PATH = "/api/v1/stream"
PARAMETERS = (
    Parameter("node", "Only what is about this node"),
    Parameter("Last-Event-ID", "What came behind this event", place="header"),
)
ROWS = "rows"
"""The parameter, and the event, of rows that change; a page that has them as well calls
``serve_rows``.
"""
EPOCH_HEADER = "Vigil-Epoch"
PLACES = 100
_KEPT = 10_000
_BLOCK = 100
"""So many events are compressed together, in less than 0.1 ms."""
_WAITING = 1_000
_COMMENT_SECONDS = 15.0
_GAP = b"event: gap\ndata: {}\n\n"
_GATHER_SECONDS = 0.03
"""Rows of changes within this time are made together."""
_MAX_ROWS = 100
"""Where more nodes change at once, clients read all rows, which are made once for all of them."""


class _StreamEvent(NamedTuple):
    nodes: tuple[str, ...]
    text: bytes


class _LastEvents:
    """The last 10,000 events and up to 99 more. All but the newest are compressed.

    Events resemble each other: 10,000 changes take 0.14 MiB so, and 6 MiB as objects, by which a
    process would grow for hours or days.
    """

    def __init__(self) -> None:
        self._blocks: deque[bytes] = deque()
        self._newest: list[_StreamEvent] = []

    def __len__(self) -> int:
        return len(self._blocks) * _BLOCK + len(self._newest)

    def add(self, event: _StreamEvent) -> None:
        """Add the event behind the one that was added last."""
        self._newest.append(event)
        if len(self._newest) == _BLOCK:
            self._blocks.append(zlib.compress(msgspec.msgpack.encode(self._newest), level=1))
            self._newest = []
        if len(self) == _KEPT + _BLOCK:
            self._blocks.popleft()

    def last(self, count: int) -> Iterator[_StreamEvent]:
        """Yield the last ``count`` events, the oldest first."""
        skipped = len(self) - count
        for block in islice(self._blocks, skipped // _BLOCK, None):
            events = msgspec.msgpack.decode(zlib.decompress(block), type=list[_StreamEvent])
            yield from events[skipped % _BLOCK :]
            skipped = 0
        yield from self._newest[max(0, len(self._newest) - count) :]


class StreamStatus(msgspec.Struct, frozen=True):
    """``clients`` listen now. ``events`` came since the process began, ``gaps`` times a client was
    sent a gap, ``displaced`` clients lost their place to another one.
    """

    clients: int
    events: int
    gaps: int
    displaced: int


class Stream:
    """Sends changes to at most ``places`` clients. ``epoch`` is in the ids of this process.

    The last 10,000 events are sent again to a client that comes back.
    """

    def __init__(self, epoch: str, places: int = PLACES) -> None:
        self._epoch = epoch
        self._places = places
        self._number = 0
        self._kept = _LastEvents()
        self._clients: dict[_Client, None] = {}
        """The oldest first."""
        self._gaps = 0
        self._displaced = 0
        self._rows: Callable[[frozenset[str]], Awaitable[msgspec.Struct]] | None = None
        self._changed: set[str] = set()
        """Nodes of which rows are to be sent."""
        self._sending_rows: asyncio.Task[None] | None = None

    @property
    def clients(self) -> int:
        """How many listen now."""
        return len(self._clients)

    def status(self) -> StreamStatus:
        """Return the clients and what was sent or lost so far."""
        gaps = self._gaps + sum(client.gaps for client in self._clients)
        return StreamStatus(len(self._clients), self._number, gaps, self._displaced)

    @property
    def epoch(self) -> str:
        """What names this process in ids of events."""
        return self._epoch

    @property
    def last_id(self) -> str:
        """The id of the newest event."""
        return f"{self._epoch}-{self._number}"

    def send(self, name: str, change: msgspec.Struct, nodes: Collection[str] = ()) -> None:
        """Send an event that is about ``nodes``, without waiting for a client."""
        self._number += 1
        body = msgspec.json.encode(change, enc_hook=english)
        text = b"id: %s\nevent: %s\ndata: %s\n\n" % (self.last_id.encode(), name.encode(), body)
        event = _StreamEvent(tuple(nodes), text)
        self._kept.add(event)
        for client in self._clients:
            client.take(event)
        if nodes and any(client.takes_rows for client in self._clients):
            self._changed.update(nodes)
            if self._sending_rows is None or self._sending_rows.done():
                self._sending_rows = asyncio.create_task(self._send_rows(), name="send rows")

    def serve_rows(self, rows: Callable[[frozenset[str]], Awaitable[msgspec.Struct]]) -> None:
        """Send what ``rows`` returns of nodes that changed, to clients that ask for it.

        Each client would ask for the same rows otherwise, and its requests would cost as much as
        all that is published. Such an event has no id and is not sent again.
        """
        self._rows = rows

    async def _send_rows(self) -> None:
        clock = asyncio.get_running_loop().time
        while self._changed and self._rows is not None:
            await asyncio.sleep(_GATHER_SECONDS)
            nodes, self._changed = frozenset(self._changed), set()
            if len(nodes) > _MAX_ROWS:
                continue
            began = clock()
            body = msgspec.json.encode(await self._rows(nodes))
            text = b"event: %s\ndata: %s\n\n" % (ROWS.encode(), body)
            event = _StreamEvent(tuple(nodes), text)
            for client in self._clients:
                if client.takes_rows:
                    client.take(event)
            # A storm of changes must not keep the loop busy with rows.
            await asyncio.sleep(2 * (clock() - began))

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer a client until it leaves; see ``PARAMETERS``."""
        headers = {
            "Content-Type": "text/event-stream",
            "Cache-Control": "no-store",
            # A page behind a proxy of several aggregators sees here whether it got another one.
            EPOCH_HEADER: self._epoch,
        }
        if request.method == hdrs.METH_HEAD:
            return web.Response(headers=headers)
        response = web.StreamResponse(headers=headers)
        # A client that loses its place is to connect again.
        response.force_close()
        takes_rows = request.query.get(ROWS) == "true"
        client = _Client(request.query.get("node"), request.remote or "", takes_rows)
        if len(self._clients) >= self._places:
            self._displace_for(client)
        self._clients[client] = None
        try:
            self._resume(client, request.headers.get("Last-Event-ID"))
            await response.prepare(request)
            await response.write(b"retry: 1000\n\n")
            with suppress(ConnectionError):
                while text := await client.next():
                    await response.write(text)
        finally:
            self._forget(client)
        return response

    def _displace_for(self, new: _Client) -> None:
        """End the oldest client of the address that has the most; its own where it has as many."""
        counts = Counter(client.address for client in self._clients)
        most = max(counts.values())
        loses = {address for address, count in counts.items() if count == most}
        if new.address in loses:
            loses = {new.address}
        oldest = next(client for client in self._clients if client.address in loses)
        self._forget(oldest)
        self._displaced += 1
        oldest.displace()

    def _forget(self, client: _Client) -> None:
        if client in self._clients:
            del self._clients[client]
            self._gaps += client.gaps

    def _resume(self, client: _Client, last: str | None) -> None:
        if not last:
            return
        epoch, _, text = last.rpartition("-")
        is_number = text.isascii() and text.isdecimal() and len(text) < 20
        number = int(text) if is_number else -1
        missed = self._number - number
        if epoch != self._epoch or not 0 <= missed <= len(self._kept):
            client.miss()
            return
        for event in self._kept.last(missed):
            client.take(event)


class _Client:
    """The events that wait for one client."""

    def __init__(self, node: str | None, address: str, takes_rows: bool) -> None:
        self.address = address
        self.takes_rows = takes_rows
        self._is_displaced = False
        self._node = node
        self._waiting: deque[bytes] = deque()
        self._came = asyncio.Event()
        self.gaps = 0

    def take(self, event: _StreamEvent) -> None:
        if self._node is not None and self._node not in event.nodes:
            return
        if len(self._waiting) >= _WAITING:
            self.miss()
        self._waiting.append(event.text)
        self._came.set()

    def miss(self) -> None:
        """Replace the waiting events by a gap, and count it."""
        self.gaps += 1
        self._waiting.clear()
        self._waiting.append(_GAP)
        self._came.set()

    def displace(self) -> None:
        """Send nothing more."""
        self._is_displaced = True
        self._came.set()

    async def next(self) -> bytes:
        """Return what is to be sent next; a comment where nothing happened for a while.

        Nothing when the client lost its place.
        """
        if not await wait_for_event(self._came, _COMMENT_SECONDS):
            return b": nothing happened\n\n"
        if self._is_displaced:
            return b""
        text = b"".join(self._waiting)
        self._waiting.clear()
        self._came.clear()
        return text
