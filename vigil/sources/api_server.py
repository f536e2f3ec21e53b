"""Asks the aggregator of a cluster through the service proxy of its API server.

The caller's own rights count: ``get`` on ``services/proxy``. Source:
https://kubernetes.io/docs/tasks/access-application-cluster/access-cluster-services/
"""

from __future__ import annotations

import asyncio
import queue
from typing import TYPE_CHECKING

import aiohttp
import msgspec

from contract.errors import StoreError, StoreUnavailable
from contract.names import AGGREGATOR_NAMESPACE, AGGREGATOR_PORT, AGGREGATOR_SERVICE
from stores.kubernetes_api import wire
from stores.kubernetes_api.client.connection import ApiConnection
from vigil.daemon_client import OK, DaemonClient
from vigil.sources.event_loop import EventLoop

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROXY = (
    f"/api/v1/namespaces/{AGGREGATOR_NAMESPACE}/services/"
    f"http:{AGGREGATOR_SERVICE}:{AGGREGATOR_PORT}/proxy"
)
_SERVER = f"Service {AGGREGATOR_NAMESPACE}/{AGGREGATOR_SERVICE}, through the API server"
_ANSWER_SECONDS = 30.0
_CLOSE_SECONDS = 2.0
_SERVER_ERROR = 500


class _Status(msgspec.Struct):
    """What only the API server itself answers."""

    kind: str = ""
    api_version: str = msgspec.field(name="apiVersion", default="")


class ApiServerClient(DaemonClient):
    """Asks the aggregator behind the API server of ``kubeconfig``; see ``DaemonClient``.

    Raises ``StoreError`` also where the API server refuses the request, or knows no aggregator.
    """

    def __init__(self, kubeconfig: str) -> None:
        super().__init__(_SERVER, _ANSWER_SECONDS)
        self._loop = EventLoop()
        self._connection = ApiConnection(kubeconfig)

    def ask(self, path: str) -> tuple[int, bytes]:
        """Return status and body of the answer of the aggregator."""
        asked = self._connection.request("GET", _PROXY + path)
        status, body = self._loop.run(asked, _ANSWER_SECONDS, self.server)
        if status != OK and _is_of_api_server(status, body):
            raise wire.refusal(status, body, f"reach {AGGREGATOR_NAMESPACE}/{AGGREGATOR_SERVICE}")
        return status, body

    def follow(self, path: str) -> Iterator[bytes]:
        """Yield each line of an answer that has no end, until somebody on the way ends it."""
        lines: queue.SimpleQueue[bytes | StoreError | None] = queue.SimpleQueue()

        async def read() -> None:
            try:
                async with self._connection.stream(_PROXY + path) as answer:
                    while answer.status == OK and (line := await answer.content.readline()):
                        lines.put(line)
                lines.put(None)
            except StoreError as error:
                lines.put(error)
            except (aiohttp.ClientError, OSError, ValueError, asyncio.CancelledError) as error:
                lines.put(StoreUnavailable(f"{self.server} gives no answer: {error}"))

        self._loop.begin(read())
        while (line := lines.get()) is not None:
            if isinstance(line, StoreError):
                raise line
            yield line

    def close(self) -> None:
        """Give the connection back."""
        self._loop.close(self._connection.close(), _CLOSE_SECONDS)


def _is_of_api_server(status: int, body: bytes) -> bool:
    """Return whether the API server answered, not the aggregator behind it."""
    try:
        found = msgspec.json.decode(body, type=_Status)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return status >= _SERVER_ERROR  # "Error trying to reach service: ..." is plain text
    return (found.kind, found.api_version) == ("Status", "v1")
