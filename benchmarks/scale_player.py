"""An API server that plays more nodes than a real one can be filled with on one machine.

Started by ``benchmarks.scale --played``. It is that of ``tests.cluster.apiserver`` behind HTTPS.
Documents of nodes are made when they are listed, so it needs no memory for them; what is written is
kept and shown to watches. It has no etcd, no admission and no cost of its own worth a measurement:
judge the aggregator's CPU seconds and memory by it, not times.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from typing import TYPE_CHECKING, Any

from aiohttp import web
from typing_extensions import override

from benchmarks.scale_documents import config_map, device_document, node_names
from benchmarks.scale_load import run_child
from contract.names import DEVICE_INFO_NAMESPACE, REPORT_LABEL, device_info_name
from tests.cluster.apiserver import ApiServer, Client
from tests.parts.controlplane import ControlPlane
from tests.parts.processes import Running

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.cluster.apiserver import Object, Place

_CONFIG_MAPS = "api/v1/configmaps"
_NODE_LIST = {"labelSelector": "=".join(REPORT_LABEL)}
_NO_STAMP = 1_760_000_000
_UP_SECONDS = 60.0
_MAX_BODY_BYTES = 16 * 1024 * 1024


class PlayedApiServer(ApiServer):
    """An API server with a document of each node from the start."""

    def __init__(self, nodes: int, chips: int) -> None:
        super().__init__(without=("podgroups",))
        self.seconds = 0.0
        self._chips = chips
        self._nodes = {device_info_name(node): node for node in node_names(nodes)}
        self._names = list(self._nodes)

    @override
    def _list(self, place: Place, query: Mapping[str, str]) -> Object:
        is_of_nodes = (place.resource, place.namespace) == (_CONFIG_MAPS, DEVICE_INFO_NAMESPACE)
        if not is_of_nodes or not _NODE_LIST.items() <= query.items():
            return super()._list(place, query)
        begin = int(query.get("continue") or 0)
        end = begin + int(query["limit"])
        metadata = {"resourceVersion": str(self._version)}
        if end < len(self._names):
            metadata["continue"] = str(end)
        return {"metadata": metadata, "items": [self._shown(n) for n in self._names[begin:end]]}

    def _shown(self, name: str) -> Object:
        there = self.objects.get(_CONFIG_MAPS, {}).get((DEVICE_INFO_NAMESPACE, name))
        return there or self._unwritten(name)

    def _unwritten(self, name: str) -> Object:
        document = config_map(device_document(self._nodes[name], _NO_STAMP, None, self._chips))
        return document | {"metadata": document["metadata"] | {"resourceVersion": "1", "uid": name}}

    @override
    def _replace(self, place: Place, content: Object, by: str) -> tuple[int, Any]:
        # The first write of a node's document replaces the one that was only listed so far.
        if place.name in self._nodes and place.resource == _CONFIG_MAPS and not self._get(place):
            book = self.objects.setdefault(_CONFIG_MAPS, {})
            book[place.namespace or "", place.name] = self._unwritten(place.name)
        return super()._replace(place, content, by)


class PlayedPlane(ControlPlane):
    """The process of this module in place of an API server with its etcd."""

    def __init__(self, directory: Path, nodes: int, chips: int) -> None:
        super().__init__(directory)
        self._size = (str(nodes), str(chips))
        self._player: Running | None = None

    @override
    def start(self) -> None:
        arguments = (str(self.directory), str(self.port), *self._size)
        command = [sys.executable, "-m", "benchmarks.scale_player", *arguments]
        self._player = Running(command, self.directory / "player.log")
        self._player.wait_until((self.directory / "playing").exists, _UP_SECONDS)

    @override
    def stop(self) -> None:
        if self._player is not None:
            self._player.stop()


async def _handle(request: web.Request, client: Client) -> web.StreamResponse:
    headers = dict(request.headers)
    if "watch" not in request.query:
        body = await request.read() or None
        answer = await client.request(request.method, request.path_qs, body, headers)
        return web.Response(body=answer.body, status=answer.status, content_type="application/json")
    async with client.stream(request.path_qs, headers) as watch:
        response = web.StreamResponse(status=watch.status)
        await response.prepare(request)
        async for line in watch.content.iter_any():
            await response.write(line)
    return response


async def _run(directory: Path, port: int, nodes: int, chips: int) -> None:
    client = PlayedApiServer(nodes, chips).client("all")
    application = web.Application(client_max_size=_MAX_BODY_BYTES)
    application.router.add_route("*", "/{path:.*}", lambda request: _handle(request, client))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(directory / "server.crt", directory / "server.key")
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
    (directory / "playing").touch()
    await asyncio.Event().wait()


if __name__ == "__main__":
    run_child(__doc__, _run)
