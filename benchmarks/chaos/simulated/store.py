"""The API server of the simulated platform: late, silent, unreachable, or set back to older data.

It is that of ``tests.cluster.apiserver``. A request takes half of its time until it has its effect,
so a program may end in between, or never get the answer.
"""

from __future__ import annotations

import asyncio
import copy
from typing import TYPE_CHECKING, Any, cast

import msgspec
from typing_extensions import override

from contract.errors import StoreUnavailable
from tests.cluster.apiserver import (
    REQUEST_SECONDS,
    ApiServer,
    Client,
    Place,
    only_metadata_of,
    place_and_query_of,
)
from tests.parts.places import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.cluster.apiserver import Change, Object
    from tests.parts.controlplane import ControlPlane

_KEPT_DELETIONS = 100
GIVEN_UP_SECONDS = 10.0
"""After so long without an answer the real client of the product gives a read up."""


class SimulatedApiServer(ApiServer):
    """An API server with troubles; ``writes`` are all that programs changed, in order."""

    def __init__(self, on_change: Callable[[Change], None]) -> None:
        super().__init__(on_change)
        self.writes: list[tuple[float, str, str, str]] = []
        """Time, client, object and method."""
        self.apart: set[str] = set()
        """Programs that cannot reach it."""
        self.on_write: list[Callable[[str, str | None], None]] = []
        """Called with the client and the name of the object after a write had its effect."""
        self._kept: dict[str, dict[tuple[str, str], Object]] = {}

    @override
    async def _request(
        self, client: Client, method: str, path: str, body: bytes | None, *, only_metadata: bool
    ) -> tuple[int, bytes]:
        half = max(self.seconds, REQUEST_SECONDS) / 2
        if half > GIVEN_UP_SECONDS:
            await asyncio.sleep(GIVEN_UP_SECONDS)
            raise StoreUnavailable("no answer in time")
        await asyncio.sleep(half)
        self._check(client)
        (place, _), before = place_and_query_of(path), self._version
        if self.refuses(method, place):
            status, answer = self.refuses_with, {"kind": "Status", "code": self.refuses_with}
        else:
            status, answer = self._answer(method, path, body, client.name)
        if self._version != before:
            at = asyncio.get_running_loop().time()
            self.writes.append((at, client.name, f"{place.resource}/{place.name}", method))
            for callback in tuple(self.on_write):
                callback(client.name, place.name)
        if only_metadata and status < 300:
            answer = only_metadata_of(answer)
        content = msgspec.json.encode(answer)
        await asyncio.sleep(half)
        self._check(client)
        return status, content

    @override
    def client(self, name: str) -> Client:
        return _SimulatedClient(self, name)

    @override
    def _check(self, client: Client) -> None:
        super()._check(client)
        if client.name in self.apart:
            raise StoreUnavailable("no route to host")

    @override
    def _answer(self, method: str, path: str, body: Any, by: str) -> tuple[int, Any]:
        # A dry run of a write is none; that of a new object is answered by the base.
        if method != "POST" and "dryRun" in path:
            return 403, {"kind": "Status", "code": 403, "message": "no dry runs here"}
        return super()._answer(method, path, body, by)

    def cut_watches(self) -> None:
        """End all watches, as a restart of the server does."""
        for watch in tuple(self._watches):
            watch.lines.put_nowait(None)

    def separate(self, program: str) -> None:
        """Let a program not reach the server."""
        self.apart.add(program)
        for watch in tuple(self._watches):
            if watch.client.name == program:
                watch.lines.put_nowait(None)

    def join(self, program: str) -> None:
        """Let a program reach the server again."""
        self.apart.discard(program)

    def compact(self) -> None:
        """Drop all writes, and all but the last deletions: watches need only those."""
        self.writes.clear()
        del self._gone[:-_KEPT_DELETIONS]

    def keep(self) -> None:
        """Keep a copy of all data."""
        self._kept = copy.deepcopy(self.objects)

    def set_back(self) -> None:
        """Put the copy in the place of the data, as an operator restores a backup of etcd.

        Versions go on, as ``etcdutl snapshot restore --bump-revision --mark-compacted`` makes them.
        """
        kept = self._kept
        paths = {
            (resource, key)
            for objects in (kept, self.objects)
            for resource, items in objects.items()
            for key in items
        }
        for resource, (namespace, name) in sorted(paths):
            place = Place(resource, namespace or None, name)
            content = kept.get(resource, {}).get((namespace, name))
            if content is not None:
                self._put(place, content, "")
            else:
                self._delete(place, {}, "")
        self.cut_watches()


class _SimulatedClient(Client):
    certificate_ends_ms: Mapping[str, int] = {}
    """No credentials are needed."""


class SimulatedStore:
    """See ``benchmarks.chaos.site.StorePlatform``."""

    def __init__(self, api: SimulatedApiServer) -> None:
        self.api = api
        # It asks the server as it asks a real one, by ``ask`` and ``request``.
        self.place = Cluster(cast("ControlPlane", _Plane(api)))

    def take(self) -> None:
        """Take it away from everybody."""
        self.api.go_down()

    def give(self) -> None:
        """Give it back as it was."""
        self.api.come_back()


class _Plane:
    def __init__(self, api: SimulatedApiServer) -> None:
        self.ask = api.ask

    def request(self, method: str, path: str, body: Any = None) -> Any:
        status, answer = self.ask(method, path, body)
        assert status < 300, answer
        return answer
