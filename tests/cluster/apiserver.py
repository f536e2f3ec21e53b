"""An API server in memory, for virtual time: a real one would make virtual time stand still.

It stands in for ``stores.kubernetes_api.client.connection.Connection``, so everything above the
network is the real store: paths, selectors, bodies, watches. It knows no kinds: whatever is under a
path is an object. ``ask`` is how a test acts on it, as on
``tests.parts.controlplane.ControlPlane``.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from contract.errors import StoreUnavailable
from stores.kubernetes_api.client.attempts import ApiAnswer
from tests.cluster.config_map import config_map_of
from tests.cluster.selectors import selects
from tests.parts.deadlines import stand_in_waits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    Object = dict[str, Any]

REQUEST_SECONDS = 2**-8
"""How long a request takes by default: a binary fraction, sums of which stay exact."""

_PODS = "api/v1/pods"
_SUBRESOURCES = ("status", "binding", "eviction")
_CLUSTER_WIDE = ("nodes", "namespaces")


@dataclass(frozen=True)
class Place:
    """What a path is about; no ``name``: all of them."""

    resource: str
    namespace: str | None
    name: str | None = None
    subresource: str = ""


@dataclass(frozen=True)
class Change:
    """An object that is now ``new`` and was ``old``; ``by`` a client, or a test (empty)."""

    place: Place
    old: Object | None
    new: Object | None
    by: str


@dataclass
class _Watch:
    place: Place
    query: Mapping[str, str]
    client: Client
    only_metadata: bool
    lines: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    late: list[bytes] = field(default_factory=list)
    status: int = 200

    @property
    def content(self) -> _Watch:
        return self

    async def read(self) -> bytes:
        return await self.lines.get() or b""

    async def iter_any(self) -> AsyncIterator[bytes]:
        while (line := await self.lines.get()) is not None:
            yield line


class ApiServer:
    """An API server in memory; ``on_change`` is called for every change, ``without`` are resources
    that are not installed.
    """

    def __init__(
        self,
        on_change: Callable[[Change], None] = lambda _: None,
        without: tuple[str, ...] = (),
    ) -> None:
        self.objects: dict[str, dict[tuple[str, str], Object]] = {}
        self.is_up = True
        self.refuses: Callable[[str, Place], bool] = lambda *_: False
        """Which requests of clients are answered with an error."""
        self.refuses_with = 503
        self.seconds = REQUEST_SECONDS
        """How long a request takes."""
        self.requests: list[tuple[str, Place]] = []
        """What clients asked but for watches."""
        self._on_change = on_change
        self._without = without
        self._version = 100
        self._gone: list[tuple[int, Place, Object]] = []
        self._watches: list[_Watch] = []

    def client(self, name: str) -> Client:
        """Return a connection to this server for the program ``name``."""
        return Client(self, name)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Send a request from outside the cluster; return the status and the answer."""
        return self._answer(method, path, None if body is None else msgspec.json.encode(body), "")

    def go_down(self) -> None:
        """Stop answering requests, and end all watches."""
        self.is_up = False
        for watch in self._watches:
            watch.lines.put_nowait(None)

    def come_back(self) -> None:
        """Answer requests again."""
        self.is_up = True

    def _answer(self, method: str, path: str, body: Any, by: str) -> tuple[int, Any]:
        place, query = place_and_query_of(path)
        if self._without and place.resource.rpartition("/")[2] in self._without:
            return _status(404, "the server could not find the requested resource")
        content = _decoded(body)
        match method, place.name, place.subresource:
            case "GET", None, _:
                return 200, self._list(place, query)
            case "GET", _, _:
                found = self._get(place)
                return (200, found) if found is not None else _missing(place)
            case "POST", _, "binding":
                spec = {"nodeName": content["target"]["name"]}
                status, answer = self._patch(place, {"spec": spec}, by)
                return (status, answer) if status != 200 else _status(201, "")
            case "POST", None, _ if "dryRun" in query:
                named = Place(place.resource, place.namespace, content["metadata"]["name"])
                is_there = self._get(named) is not None
                return _status(409, "it exists") if is_there else (201, content)
            case "POST", None, _:
                return self._create(place, content, by)
            case "PUT", _, _:
                return self._replace(place, content, by)
            case "PATCH", _, _:
                return self._patch(place, content, by)
            case "DELETE", str(), _:
                return self._delete(place, content or {}, by)
        return _status(405, f"{method} {path}")

    def _book(self, place: Place) -> dict[tuple[str, str], Object]:
        return self.objects.setdefault(place.resource, {})

    def _get(self, place: Place) -> Object | None:
        return self._book(place).get((place.namespace or "", place.name or ""))

    def _list(self, place: Place, query: Mapping[str, str]) -> Object:
        items = [one for one in self._all(place) if selects(query, one)]
        return {"metadata": {"resourceVersion": str(self._version)}, "items": items}

    def _all(self, place: Place) -> Iterator[Object]:
        for (namespace, _), one in sorted(self._book(place).items()):
            if place.namespace in (None, namespace):
                yield one

    def _create(self, place: Place, content: Object, by: str) -> tuple[int, Any]:
        place = Place(place.resource, place.namespace, content["metadata"]["name"])
        if self._get(place) is not None:
            return _status(409, f"{place.name} already exists")
        if place.resource == _PODS:
            content = content | {"status": {"phase": "Pending"}}
        return 201, self._put(place, content, by)

    def _replace(self, place: Place, content: Object, by: str) -> tuple[int, Any]:
        there = self._get(place)
        if there is None:
            return _missing(place)
        if _is_outdated(there, content):
            return _status(409, "the object has been modified")
        if place.subresource == "status":
            content = there | {"status": content.get("status", {})}
        elif "status" in there:
            content = content | {"status": there["status"]}
        if _breaks_immutability(there, content):
            return _status(422, "data: field is immutable when `immutable` is set")
        return 200, self._put(place, content, by)

    def _patch(self, place: Place, patch: Object, by: str) -> tuple[int, Any]:
        there = self._get(place)
        if there is None:
            return _missing(place)
        if _is_outdated(there, patch):
            return _status(409, "the object has been modified")
        if (
            patch.get("metadata", {}).get("uid", there["metadata"]["uid"])
            != there["metadata"]["uid"]
        ):
            return _status(422, "metadata.uid: field is immutable")
        merged = _merged(there, patch)
        if _breaks_immutability(there, merged):
            return _status(422, "data: field is immutable when `immutable` is set")
        return 200, self._put(place, merged, by)

    def _delete(self, place: Place, options: Object, by: str) -> tuple[int, Any]:
        there = self._get(place)
        if there is None:
            return _missing(place)
        only = options.get("preconditions", {})
        if _is_outdated(there, {"metadata": only}):
            return _status(409, "the object has been modified")
        if only.get("uid", there["metadata"]["uid"]) != there["metadata"]["uid"]:
            return _status(409, "the uid in the precondition is another one")
        self._version += 1
        del self._book(place)[place.namespace or "", place.name or ""]
        gone = there | {"metadata": there["metadata"] | {"resourceVersion": str(self._version)}}
        self._gone.append((self._version, place, there))
        self._changed(Change(place, there, None, by), gone)
        return (200, gone) if place.resource == _PODS else _status(200, "")

    def _put(self, place: Place, content: Object, by: str) -> Object:
        """Store it; what is the same as before keeps its version and causes no event."""
        there = self._get(place)
        known = {} if there is None else there["metadata"]
        metadata = {
            key: value for key, value in content.get("metadata", {}).items() if value is not None
        } | {"name": place.name}
        if place.namespace is not None:
            metadata["namespace"] = place.namespace
        metadata["uid"] = known.get("uid") or metadata.get("uid") or f"uid-{self._version + 1}"
        metadata["resourceVersion"] = known.get("resourceVersion", "")
        new = content | {"metadata": metadata}
        if there == new:
            return there
        self._version += 1
        metadata["resourceVersion"] = str(self._version)
        self._book(place)[place.namespace or "", place.name or ""] = new
        self._changed(Change(place, there, new, by), new)
        return new

    def _changed(self, change: Change, shown: Object) -> None:
        self._on_change(change)
        for watch in self._watches:
            if watch.place.resource != change.place.resource:
                continue
            if watch.place.namespace not in (None, change.place.namespace):
                continue
            was = change.old is not None and selects(watch.query, change.old)
            is_now = change.new is not None and selects(watch.query, change.new)
            kind = {
                (False, True): "ADDED",
                (True, True): "MODIFIED",
                (True, False): "DELETED",
            }.get((was, is_now))
            if kind is not None:
                line = _line(kind, shown, only_metadata=watch.only_metadata)
                is_late = watch.late or watch.client.late(watch.place)
                (watch.late.append if is_late else watch.lines.put_nowait)(line)

    async def _request(
        self, client: Client, method: str, path: str, body: bytes | None, *, only_metadata: bool
    ) -> tuple[int, bytes]:
        await stand_in_waits(self.seconds)
        place = place_of(urlsplit(path).path)
        self._check(client)
        by_name = place.name is not None or "fieldSelector" in path
        if method == "GET" and not by_name and client.blind(place):
            raise StoreUnavailable("connection refused")
        self.requests.append((method, place))
        if self.refuses(method, place):
            return _encoded(*_status(self.refuses_with, "the test wants it"))
        status, answer = self._answer(method, path, body, client.name)
        if only_metadata and status < 300:
            answer = only_metadata_of(answer)
        return _encoded(status, answer)

    @contextlib.asynccontextmanager
    async def _stream(
        self, client: Client, path: str, *, only_metadata: bool
    ) -> AsyncIterator[_Watch]:
        """Yield a watch with everything since the requested version.

        Nothing changes between the answer and the watch.
        """
        self._check(client)
        if client.blind(place_of(urlsplit(path).path)):
            raise StoreUnavailable("connection refused")
        parts = urlsplit(path)
        query = _query_of(parts.query)
        watch = _Watch(place_of(parts.path), query, client, only_metadata)
        if watch.place.resource.rpartition("/")[2] in self._without:
            watch.status = 404
            watch.lines.put_nowait(b"{}")
        for _, line in sorted(self._missed(watch)):
            watch.lines.put_nowait(line)
        self._watches.append(watch)
        try:
            yield watch
            self._check(client)
        finally:
            self._watches.remove(watch)

    def _missed(self, watch: _Watch) -> Iterator[tuple[int, bytes]]:
        since, only = int(watch.query.get("resourceVersion") or 0), watch.only_metadata
        for one in self._all(watch.place):
            version = int(one["metadata"]["resourceVersion"])
            if version > since and selects(watch.query, one):
                yield version, _line("MODIFIED", one, only_metadata=only)
        for version, place, gone in self._gone:
            if (
                version > since
                and place.resource == watch.place.resource
                and watch.place.namespace in (None, place.namespace)
                and selects(watch.query, gone)
            ):
                yield version, _line("DELETED", gone, only_metadata=only)

    def _check(self, client: Client) -> None:
        if client.is_cut or not self.is_up:
            raise StoreUnavailable("connection refused")

    def _cut(self, client: Client, which: Callable[[Place], bool] = lambda _: True) -> None:
        for watch in self._watches:
            if watch.client is client and which(watch.place):
                watch.lines.put_nowait(None)

    def _catch_up(self, client: Client) -> None:
        for watch in self._watches:
            if watch.client is client:
                late, watch.late = watch.late, []
                for line in late:
                    watch.lines.put_nowait(line)


class Client:
    """What the real store has for a ``Connection``. ``cut`` ends all that it does, as SIGKILL."""

    def __init__(self, server: ApiServer, name: str) -> None:
        self.name = name
        self.is_cut = False
        self.blind: Callable[[Place], bool] = lambda _: False
        """What it can neither list nor watch as a whole."""
        self.late: Callable[[Place], bool] = lambda _: False
        """Of what its watches show nothing for the time being."""
        self._server = server

    def cut(self) -> None:
        """Cut the client off, so that nothing of it reaches the server."""
        self.is_cut = True
        self._server._cut(self)

    def go_blind(self, which: Callable[[Place], bool]) -> None:
        """Refuse the client's lists and watches of some objects, and end its watches of them."""
        self.blind = which
        self._server._cut(self, which)

    def fall_behind(self, which: Callable[[Place], bool]) -> None:
        """Hold back the events of the client's watches of some objects."""
        self.late = which

    def catch_up(self) -> None:
        """Show the client everything again, and send its watches the events that they missed."""
        self.blind = self.late = lambda _: False
        self._server._catch_up(self)

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        is_urgent: bool = False,
    ) -> ApiAnswer:
        """See ``Connection``."""
        del is_urgent
        only = _wants_only_metadata(headers)
        answer = await self._server._request(self, method, path, body, only_metadata=only)
        return ApiAnswer(*answer)

    async def list(
        self, path: str, seconds: float, headers: Mapping[str, str] | None = None
    ) -> ApiAnswer:
        """See ``Connection``."""
        return await self.request("GET", path, headers=headers)

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[_Watch]:
        """See ``Connection``."""
        only = _wants_only_metadata(headers)
        async with self._server._stream(self, path, only_metadata=only) as watch:
            yield watch

    async def close(self) -> None:
        """See ``Connection``."""


@functools.lru_cache(maxsize=256)
def place_and_query_of(target: str) -> tuple[Place, Mapping[str, str]]:
    """Decode the target of a request: what it is about, and the last value of each key."""
    parts = urlsplit(target)
    return place_of(parts.path), _query_of(parts.query)


@functools.lru_cache(maxsize=256)
def place_of(path: str) -> Place:
    """Decode a path such as ``/api/v1/namespaces/a/pods/b``."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    group, rest = (parts[:2], parts[2:]) if parts[0] == "api" else (parts[:3], parts[3:])
    namespace = None
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    subresource = rest[2] if len(rest) > 2 else ""
    assert subresource in ("", *_SUBRESOURCES), path
    name = rest[1] if len(rest) > 1 else None
    assert rest[0] in _CLUSTER_WIDE or namespace or name is None or "apis" in path, path
    return Place("/".join((*group, rest[0])), namespace, name, subresource)


@functools.lru_cache(maxsize=256)
def _query_of(text: str) -> Mapping[str, str]:
    return {key: values[-1] for key, values in parse_qs(text).items()}


def _decoded(body: Any) -> Any:
    if not body:
        return None
    if isinstance(body, bytes) and body.startswith(b"k8s\0"):
        return config_map_of(body)
    return msgspec.json.decode(body)


def _encoded(status: int, answer: Any) -> tuple[int, bytes]:
    return status, msgspec.json.encode(answer)


def _status(code: int, message: str) -> tuple[int, Any]:
    return code, {"kind": "Status", "code": code, "message": message}


def _missing(place: Place) -> tuple[int, Any]:
    return _status(404, f'{place.resource} "{place.name}" not found')


def _is_outdated(there: Object, content: Object) -> bool:
    wanted = content.get("metadata", {}).get("resourceVersion")
    return bool(wanted) and wanted != there["metadata"]["resourceVersion"]


def _breaks_immutability(there: Object, content: Object) -> bool:
    """Check whether content is refused because the ConfigMap is immutable.

    Refused are other data, and to become mutable again.
    """
    if not there.get("immutable"):
        return False
    return not content.get("immutable") or content.get("data", {}) != there.get("data", {})


def _line(kind: str, shown: Object, *, only_metadata: bool) -> bytes:
    shown = only_metadata_of(shown) if only_metadata else shown
    return msgspec.json.encode({"type": kind, "object": shown}) + b"\n"


def _wants_only_metadata(headers: Mapping[str, str] | None) -> bool:
    return "PartialObjectMetadata" in (headers or {}).get("Accept", "")


def only_metadata_of(answer: Object) -> Object:
    """Return the metadata of an object or of a list, as ``PartialObjectMetadata`` has it."""
    if "items" in answer:
        return answer | {"items": [{"metadata": one["metadata"]} for one in answer["items"]]}
    return {"metadata": answer["metadata"]}


def _merged(there: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7386); return the result."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(there) if isinstance(there, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value)
    return merged
