"""The nodes of a large cluster as one cheap process: writes and renews over a few connections.

Started by ``benchmarks.scale``. Reads commands from standard input and answers each on standard
output, one JSON object a line; times are those of the monotonic clock, which all processes share.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from benchmarks.scale_documents import (
    config_map,
    device_document,
    dpu_document,
    node_names,
    node_object,
    pod_object,
    scheduled_objects,
    slice_object,
)
from contract.documents.write_numbers import encode_writes
from contract.names import (
    DEVICE_INFO_NAMESPACE,
    HEARTBEAT_NAMESPACE,
    device_info_name,
    heartbeat_name,
)
from stores.base import Beat
from stores.kubernetes_api import leases

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

# A few are enough for 10,000 nodes: HTTP/1.1 answers one request after the other.
_CONNECTIONS = 8
_COMMAND_BYTES = 1 << 22
"""A storm names a twentieth of the nodes."""
_IDLE_SECONDS = 30.0
"""The API server closes a connection on which nothing was asked for 90 s."""
_CREATED = (200, 201)
_CONFIG_MAPS = f"/api/v1/namespaces/{DEVICE_INFO_NAMESPACE}/configmaps"
_LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{HEARTBEAT_NAMESPACE}/leases"
_JSON = "application/json"
_PATCH = "application/merge-patch+json"


class Request(msgspec.Struct, frozen=True):
    """What to ask of the API server."""

    method: str
    path: str
    body: Any
    content_type: str = _JSON


class Refused(Exception):
    """The API server did not do what was asked."""


class Pipe:
    """One connection, one request at a time: a fifth of the cost of a general client."""

    def __init__(self, port: int, tls: ssl.SSLContext) -> None:
        self._port, self._tls = port, tls
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._used_at = 0.0

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        idle_seconds = time.monotonic() - self._used_at
        # Opened anew before the server closes it: a request on a closing connection is lost.
        if self._streams is None or idle_seconds > _IDLE_SECONDS:
            if self._streams is not None:
                self._streams[1].close()
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, ssl=self._tls)
        self._used_at = time.monotonic()
        return self._streams

    async def ask(self, request: Request) -> None:
        """Ask and wait for the answer; raises ``Refused``."""
        body = msgspec.json.encode(request.body)
        reader, writer = await self._open()
        writer.write(
            f"{request.method} {request.path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Content-Type: {request.content_type}\r\nContent-Length: {len(body)}\r\n"
            # Metadata alone: the whole object would come back with each write.
            "Accept: application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1\r\n\r\n".encode()
            + body
        )
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        answer = await _body(reader, head)
        if int(head[9:12]) not in _CREATED:
            raise Refused(f"{request.method} {request.path}: {answer[:300].decode()}")


async def _body(reader: asyncio.StreamReader, head: str) -> bytes:
    """Read an answer, which comes in chunks where its metadata are large."""
    _, _, length = head.partition("content-length: ")
    if length:
        return await reader.readexactly(int(length.partition("\r\n")[0]))
    found = []
    while size := int(await reader.readuntil(b"\r\n"), 16):
        found.append((await reader.readexactly(size + 2))[:-2])
    await reader.readexactly(2)
    return b"".join(found)


class Load:
    """All connections, and what is going on over them."""

    def __init__(self, pipes: list[Pipe], names: list[str], chips: int) -> None:
        self._names, self._chips = names, chips
        self._pipes: asyncio.Queue[Pipe] = asyncio.Queue()
        for pipe in pipes:
            self._pipes.put_nowait(pipe)
        self._going: list[asyncio.Task[None]] = []
        self._latest = 0.0
        self._stamps: dict[str, int] = {}
        """Of the last write of each node, for its heartbeat."""

    async def _ask(self, pipe: Pipe, request: Request) -> None:
        try:
            await pipe.ask(request)
        finally:
            self._pipes.put_nowait(pipe)

    async def _all(self, requests: Iterable[Request]) -> dict[str, Any]:
        """Write all documents as quickly as possible."""
        began, waiting = time.monotonic(), iter(requests)

        # All workers take from one iterator, so no request is made twice.
        async def work() -> None:
            for request in waiting:
                await self._ask(await self._pipes.get(), request)

        await asyncio.gather(*(work() for _ in range(_CONNECTIONS)))
        return {"began": began, "ended": time.monotonic()}

    async def _again(self, seconds: float, make: Callable[[int, str], Request]) -> None:
        """Make one request for each node in so many seconds, evenly spread, for ever."""
        step, at = seconds / len(self._names), time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            while True:
                for number, node in enumerate(self._names):
                    at += step
                    late = time.monotonic() - at
                    # How far the load is behind its plan: a figure of a load that lags is not
                    # valid.
                    self._latest = max(self._latest, late)
                    # Shorter waits than 5 ms are not worth a timer; they are made up for by the
                    # next ones.
                    if late < -0.005:
                        await asyncio.sleep(-late)
                    pipe = await self._pipes.get()
                    tasks.create_task(self._ask(pipe, make(number, node)))

    async def do(self, command: dict[str, Any]) -> dict[str, Any]:
        """Carry out one command."""
        match command:
            case {"do": "fill"}:
                return await self._all(self._device(n, None, "POST") for n in self._names)
            case {"do": "storm", "nodes": nodes, "faulty": faulty}:
                return await self._all(self._device(node, faulty, "PUT") for node in nodes)
            case {"do": "nodes" | "pods" | "jobs" | "slices"}:
                return await self._all(self._objects(command))
            case {"do": "leases", "seconds": seconds}:
                return await self._all(
                    Request("POST", _LEASES, leases.whole(self._beat(node, seconds)))
                    for node in self._names
                )
            case {"do": "beat", "seconds": seconds}:
                self._start(seconds, lambda _, node: self._renewal(node, seconds))
                return {}
            case {"do": "rewrite", "seconds": seconds}:
                self._start(seconds, lambda _, node: self._device(node, None, "PUT"))
                return {}
            case {"do": "dpus", "seconds": seconds}:
                made = await self._all(self._dpus(node, "POST") for node in self._names)
                self._start(seconds, lambda _, node: self._dpus(node, "PUT"))
                return made
            case {"do": "quiet"}:
                for task in self._going:
                    task.cancel()
                # Cancelled tasks are expected; any other error ends the benchmark.
                ended = await asyncio.gather(*self._going, return_exceptions=True)
                self._going.clear()
                for one in ended:
                    if isinstance(one, Exception):
                        raise one
                latest, self._latest = self._latest, 0.0
                return {"latest_seconds": latest}
        raise ValueError(command)

    def _objects(self, command: dict[str, Any]) -> Iterable[Request]:
        match command:
            case {"do": "nodes"}:
                made = (node_object(*one) for one in enumerate(self._names))
                return (Request("POST", "/api/v1/nodes", one) for one in made)
            case {"do": "slices"}:
                path = "/apis/resource.k8s.io/v1/resourceslices"
                made = (slice_object(node, self._chips) for node in self._names)
                return (Request("POST", path, one) for one in made)
            case {"do": "pods", "count": count}:
                path = "/api/v1/namespaces/default/pods"
                made = (pod_object(one, self._names, self._chips) for one in range(count))
                return (Request("POST", path, one) for one in made)
        found = scheduled_objects(self._names, command["pods"], command["jobs"])
        return (Request("POST", path, one) for path, one in found)

    def _start(self, seconds: float, make: Callable[[int, str], Request]) -> None:
        self._going.append(asyncio.create_task(self._again(seconds, make)))

    def _device(self, node: str, faulty: int | None, method: str) -> Request:
        # The stamp of each write is newer than that before, also within a second.
        stamp = max(int(time.time()), self._stamps.get(node, 0) + 1)
        self._stamps[node] = stamp
        document = device_document(node, stamp, faulty, self._chips)
        path = _CONFIG_MAPS if method == "POST" else f"{_CONFIG_MAPS}/{device_info_name(node)}"
        return Request(method, path, config_map(document))

    def _dpus(self, node: str, method: str) -> Request:
        document = dpu_document(node, time.time_ns() // 1_000_000)
        path = _CONFIG_MAPS if method == "POST" else f"{_CONFIG_MAPS}/{document.name}"
        return Request(method, path, config_map(document))

    def _beat(self, node: str, seconds: float) -> Beat:
        stamp = self._stamps.get(node)
        return Beat(
            node,
            f"host-of-{node}",
            seconds,
            time.time_ns() // 1_000_000,
            writes="" if stamp is None else encode_writes({"device-info": stamp}),
        )

    def _renewal(self, node: str, seconds: float) -> Request:
        body = leases.fields(self._beat(node, seconds), None)
        return Request("PATCH", f"{_LEASES}/{heartbeat_name(node)}", body, _PATCH)


async def run(directory: Path, port: int, nodes: int, chips: int) -> None:
    """Carry out commands until standard input ends."""
    tls = ssl.create_default_context(cafile=str(directory / "ca.crt"))
    tls.load_cert_chain(directory / "admin.crt", directory / "admin.key")
    pipes = [Pipe(port, tls) for _ in range(_CONNECTIONS)]
    load = Load(pipes, node_names(nodes), chips)
    lines = asyncio.StreamReader(_COMMAND_BYTES)
    loop = asyncio.get_running_loop()
    # Commands are awaited in the loop, so that renewals go on meanwhile.
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        print(json.dumps(await load.do(json.loads(line))), flush=True)


def run_child(
    description: str | None, run: Callable[[Path, int, int, int], Coroutine[Any, Any, None]]
) -> None:
    """Run a child that ``benchmarks.scale`` starts, with directory, port, nodes and chips."""
    summary = description.splitlines()[0] if description else None
    parser = argparse.ArgumentParser(description=summary)
    parser.add_argument("directory", type=Path)
    parser.add_argument("port", type=int)
    parser.add_argument("nodes", type=int)
    parser.add_argument("chips", type=int)
    options = parser.parse_args()
    asyncio.run(run(options.directory, options.port, options.nodes, options.chips))


if __name__ == "__main__":
    run_child(__doc__, run)
