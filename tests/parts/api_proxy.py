"""A proxy before a real API server: it reads requests, and can have each trouble of a network.

It ends TLS with the certificate of the API server and has one connection to that for each of its
clients. It runs in a thread of its own; its methods may be called from any thread.

::

    with ApiProxy(plane) as proxy:
        store = open_store("kubernetes:", proxy.kubeconfig)
        proxy.freeze_old()
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import ssl
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qs, urlsplit

from tests.parts.controlplane import CHIEF_TOKEN
from tests.parts.deadlines import patience, stand_in_waits

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from concurrent.futures import Future
    from pathlib import Path
    from typing import Any, Self

    from tests.parts.controlplane import ControlPlane

T = TypeVar("T")

_CHUNK_BYTES = 64 * 1024
_HEAD_BYTES = 1024 * 1024
_NEW_CONNECTIONS = 512
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get"}


class Direction(enum.Flag):
    """Which way bytes go."""

    TO_SERVER = enum.auto()
    TO_CLIENT = enum.auto()
    BOTH = TO_SERVER | TO_CLIENT


@dataclass(frozen=True, slots=True)
class Request:
    """A request that came. ``at`` is by ``time.monotonic``."""

    at: float
    connection: int
    verb: str
    """As in roles: get, list, watch, create, update, patch, delete."""
    resource: str
    namespace: str
    name: str
    query: Mapping[str, list[str]] = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """Which requests a rule is about; empty means any. ``connections`` are the numbers of its
    connections.
    """

    verb: str = ""
    resource: str = ""
    name: str = ""
    connections: frozenset[int] | None = None

    def covers(self, request: Request) -> bool:
        """Return whether the rule covers this request."""
        return (
            self.verb in ("", request.verb)
            and self.resource in ("", request.resource)
            and self.name in ("", request.name)
            and (self.connections is None or request.connection in self.connections)
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Refusal:
    rule: Rule
    answer: bytes


@dataclass(frozen=True, slots=True, eq=False)
class _Delay:
    rule: Rule
    seconds: Callable[[Request], float]


class ApiProxy:
    """Listens on ``port`` of 127.0.0.1 before the API server of ``plane``; use with ``with``."""

    def __init__(self, plane: ControlPlane, token: str = CHIEF_TOKEN) -> None:
        self._plane = plane
        self._token = token
        self._lock = threading.Lock()
        self._requests: list[Request] = []
        self._accepted = 0
        self._pairs: set[_Pair] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._delays: list[_Delay] = []
        self._refusals: list[_Refusal] = []
        self._silenced: list[Rule] = []
        self._frozen = Direction(0)
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._run, name="api-proxy", daemon=True)
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._end())
        self._thread.join()

    @property
    def url(self) -> str:
        """Return the URL of the proxy."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def kubeconfig(self) -> Path:
        """Write a kubeconfig of the administrator with the proxy's address; return its path."""
        return self.kubeconfig_like(self._plane.kubeconfig_of(self._token))

    def kubeconfig_like(self, other: Path) -> Path:
        """Write a kubeconfig like ``other`` with the proxy's address; return its path.

        It must authenticate by a token.
        """
        path = other.with_name(f"{other.stem}-{self.port}.kubeconfig")
        path.write_text(other.read_text().replace(self._plane.url, self.url))
        path.chmod(0o600)
        return path

    @property
    def connections(self) -> int:
        """Return how many connections the proxy has accepted."""
        return self._accepted

    @property
    def open_connections(self) -> frozenset[int]:
        """Return the numbers of the open connections."""
        return self._do(self._numbers())

    def requests(self, rule: Rule = Rule(), since: float = 0.0) -> list[Request]:
        """Return the requests that came, also those that were held or refused."""
        with self._lock:
            return [one for one in self._requests if one.at >= since and rule.covers(one)]

    def freeze_old(self, direction: Direction = Direction.BOTH) -> int:
        """Pass nothing on over the connections that there are; new ones work. How many there are.

        They stay open. What a client has sent over them reaches the server with ``thaw``.
        """
        return self._do(self._freeze(direction))

    def freeze_all(self, direction: Direction = Direction.BOTH) -> int:
        """Pass nothing on, over new connections either. How many there are now."""
        self._frozen = direction
        return self.freeze_old(direction)

    def thaw(self) -> None:
        """Pass everything on again, what was held back first."""
        self._frozen = Direction(0)
        self._do(self._thaw())

    def delay(self, seconds: float | Callable[[Request], float], rule: Rule = Rule()) -> None:
        """Hold requests for so long before the server gets them.

        One whose client goes away meanwhile is dropped, as the server would.
        """
        self._delays.append(_Delay(rule, seconds if callable(seconds) else lambda _: seconds))

    def refuse(
        self, status: int, rule: Rule = Rule(), headers: Mapping[str, str] | None = None
    ) -> None:
        """Answer requests with ``status``; the server does not get them."""
        body = f'{{"kind":"Status","status":"Failure","message":"refused","code":{status}}}'
        all_headers = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        lines = [f"{name}: {value}" for name, value in (all_headers | dict(headers or {})).items()]
        answer = "\r\n".join((f"HTTP/1.1 {status} Refused", *lines, "", body)).encode()
        self._refusals.append(_Refusal(rule, answer))

    def silence(self, rule: Rule) -> None:
        """Deliver nothing more of the watches that ``rule`` covers; they stay open."""
        self._silenced.append(Rule("watch", rule.resource, rule.name, rule.connections))

    def relent(self) -> None:
        """End all delays, refusals and silences. Events that a silenced watch has withheld are
        lost.
        """
        self._delays.clear()
        self._refusals.clear()
        self._silenced.clear()

    def cut(self) -> int:
        """Break all connections; new ones work. How many there were."""
        return self._do(self._cut())

    def refuse_connections(self) -> None:
        """Break all connections, and refuse new ones."""
        self._do(self._stop_listening())
        self.cut()

    def accept_connections(self) -> None:
        """Listen again, on the same port."""
        self._do(self._listen())

    def _run(self) -> None:
        # A runner also ends a handshake that is under way, which has no task of ours.
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._ended.wait())

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        done: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return done.result(patience(10))

    async def _listen(self) -> None:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        directory = self._plane.directory
        tls.load_cert_chain(directory / "server.crt", directory / "server.key")
        self._server = await asyncio.start_server(
            self._connected, "127.0.0.1", self.port, ssl=tls, backlog=_NEW_CONNECTIONS
        )
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _end(self) -> None:
        await self._stop_listening()
        await self._cut()
        self._ended.set()

    async def _cut(self) -> int:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return len(tasks)

    async def _numbers(self) -> frozenset[int]:
        return frozenset(pair.number for pair in self._pairs if not pair.is_left)

    async def _freeze(self, direction: Direction) -> int:
        for pair in self._pairs:
            pair.freeze(direction)
        return sum(not pair.is_left for pair in self._pairs)

    async def _thaw(self) -> None:
        for pair in self._pairs:
            pair.thaw()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._accepted += 1
        pair = _Pair(self, self._accepted, reader, writer)
        pair.freeze(self._frozen)
        self._pairs.add(pair)
        try:
            await pair.run(self._plane)
        except (asyncio.CancelledError, OSError, asyncio.IncompleteReadError):
            pass  # a task of the server's that ends as cancelled would be logged
        finally:
            self._pairs.discard(pair)
            self._tasks.discard(task)
            writer.transport.abort()

    def note(self, request: Request) -> None:
        """Remember a request. For connections."""
        with self._lock:
            self._requests.append(request)

    def seconds_of(self, request: Request) -> float:
        """Return how long a request must be held (s).

        For connections.
        """
        return sum(one.seconds(request) for one in self._delays if one.rule.covers(request))

    def refusal_of(self, request: Request) -> bytes | None:
        """Return the answer to a request that is refused; ``None`` if the server is to answer.

        For connections.
        """
        for one in self._refusals:
            if one.rule.covers(request):
                return one.answer
        return None

    def is_silent(self, request: Request) -> bool:
        """Return whether a watch must deliver nothing.

        For connections.
        """
        return any(rule.covers(request) for rule in self._silenced)


class _Pair:
    """A connection of a client, and the one to the server for it."""

    def __init__(
        self,
        proxy: ApiProxy,
        number: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.number = number
        self.is_left = False
        """Whether the client has closed it."""
        self._proxy = proxy
        self._reader = reader
        self._writer = writer
        self._left = asyncio.Event()
        # What a client sent before it went arrives all the same, so it is taken at once.
        self._sent = asyncio.StreamReader(limit=_HEAD_BYTES)
        self._gates = {Direction.TO_SERVER: asyncio.Event(), Direction.TO_CLIENT: asyncio.Event()}
        self._asked: Request | None = None
        """The request that the server answers now."""
        self._answered = asyncio.Event()
        self.thaw()

    def freeze(self, direction: Direction) -> None:
        """Pass nothing on any more, that way."""
        for one, gate in self._gates.items():
            if one in direction:
                gate.clear()

    def thaw(self) -> None:
        """Pass on what was held back, and what comes."""
        for gate in self._gates.values():
            gate.set()

    async def run(self, plane: ControlPlane) -> None:
        """Pass on until either side goes."""
        tls = ssl.create_default_context(cafile=str(plane.directory / "ca.crt"))
        async with asyncio.TaskGroup() as parts:
            taking = parts.create_task(self._take())
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", plane.port, ssl=tls)
            except OSError:
                taking.cancel()
                return  # the server is away, so the client loses its connection, too
            answering = parts.create_task(self._answer(reader))
            try:
                await self._ask(writer)
            finally:
                writer.transport.abort()
                for task in (taking, answering):
                    task.cancel()

    async def _take(self) -> None:
        """Take what the client sends, until it goes."""
        with contextlib.suppress(OSError):
            while chunk := await self._reader.read(_CHUNK_BYTES):
                self._sent.feed_data(chunk)
        self.is_left = True
        self._left.set()
        self._sent.feed_eof()

    async def _ask(self, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                head = await self._sent.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                return  # the client went between requests
            first, *lines = head.decode("latin-1").split("\r\n")
            headers = {
                name.lower(): value for name, _, value in (line.partition(": ") for line in lines)
            }
            body = await self._sent.readexactly(int(headers.get("content-length", "0")))
            method, target, _ = first.split(" ")
            request = _request(self.number, method, target, body)
            self._proxy.note(request)
            is_late = not self._gates[Direction.TO_SERVER].is_set()
            await self._gates[Direction.TO_SERVER].wait()
            seconds = self._proxy.seconds_of(request)
            if seconds > 0 and await self._is_left_within(seconds):
                return
            refusal = self._proxy.refusal_of(request)
            if refusal is not None:
                await self._gates[Direction.TO_CLIENT].wait()
                self._writer.write(refusal)
                await self._writer.drain()
                continue
            self._asked = request
            self._answered.clear()
            writer.write(head + body)
            await writer.drain()
            if is_late:
                # Its client has gone, mostly; the server would see that, and not go on.
                await self._answered.wait()

    async def _is_left_within(self, seconds: float) -> bool:
        # No deadline, which would grow: clients have theirs, which do not.
        waits = list(map(asyncio.ensure_future, (self._left.wait(), stand_in_waits(seconds))))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return self._left.is_set()

    async def _answer(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(_CHUNK_BYTES):
                self._answered.set()
                await self._gates[Direction.TO_CLIENT].wait()
                if self._asked is not None and self._proxy.is_silent(self._asked):
                    continue
                self._writer.write(chunk)
                await self._writer.drain()
        self._writer.transport.abort()


def _request(connection: int, method: str, target: str, body: bytes) -> Request:
    parts = urlsplit(target)
    query = parse_qs(parts.query)
    steps = parts.path.strip("/").split("/")
    # /api/v1/... or /apis/GROUP/VERSION/...
    steps = steps[2:] if steps[0] == "api" else steps[3:]
    namespace = ""
    if len(steps) > 2 and steps[0] == "namespaces":
        namespace, steps = steps[1], steps[2:]
    resource, name = (*steps, "", "")[:2]
    verb = _VERBS.get(method, method.lower())
    if verb == "get" and "watch" in query:
        verb = "watch"
    elif verb == "get" and not name:
        verb = "list"
    return Request(time.monotonic(), connection, verb, resource, namespace, name, query, body)
