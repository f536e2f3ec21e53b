"""The store that is a Kubernetes API server: documents are its ConfigMaps.

A write is one request in the usual case. A watch goes on where it was when the server ends it in
the usual way, and lists again after anything else.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import msgspec

from contract.errors import StoreConflict, StoreError, StoreRefused, StoreUnavailable
from stores import kubernetes_wire as wire
from stores import kubernetes_writers as writers
from stores.backoff import Backoff
from stores.base import Changed, Deleted, Document, Interrupted, Listed, Selection, WatchEvent
from stores.document_names import check_names
from stores.kubernetes_beats import Heartbeats
from stores.kubernetes_connection import Connection
from stores.kubernetes_namespaces import create_namespace
from stores.touch import TOUCHED, touched_now

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from stores.base import Beat, Writer

_OK = 200
_CREATED = 201
_ACCEPTED = 202
_UNAUTHORIZED = 401
_FORBIDDEN = 403
_NOT_FOUND = 404
_CONFLICT = 409

_PAGE = 500
_PAGE_SECONDS = 60.0
_WATCH_SECONDS = (240, 480)
_LARGEST_FRAME_BYTES = 16 * 1024 * 1024
# A watch that ends at once is a failure, whatever the server says.
_SHORTEST_WATCH_SECONDS = 1.0
_STEADY_SECONDS = 5.0
_ATTEMPTS = 3


class _NoRights(StoreRefused):
    """Refused for now: roles and tokens may still come."""


class KubernetesStore:
    """ConfigMaps of the API server that ``kubeconfig`` names, or of this pod's."""

    def __init__(self, url: str, kubeconfig: str | None) -> None:
        self._url = url
        self._connection = Connection(kubeconfig)
        self._heartbeats = Heartbeats(self._connection)

    @property
    def url(self) -> str:
        """See ``Store``."""
        return self._url

    async def get(self, namespace: str, name: str) -> Document | None:
        """See ``Store``."""
        check_names(namespace, name)
        status, body = await self._connection.request("GET", _path(namespace, name))
        if status == _NOT_FOUND:
            return None
        if status != _OK:
            raise wire.refusal(status, body, f"read ConfigMap {namespace}/{name}")
        try:
            return wire.document(wire.config_map_decoder.decode(body))
        except msgspec.DecodeError as error:
            raise StoreUnavailable(
                f"the answer for ConfigMap {namespace}/{name} is no ConfigMap: {error}"
            ) from error

    async def list(self, selection: Selection) -> tuple[Document, ...]:
        """See ``Store``."""
        documents, _ = await self._list(selection)
        return documents

    async def put(self, document: Document, *, expected: str | None = None) -> str:
        """See ``Store``. A missing namespace is created."""
        namespace, name = document.namespace, document.name
        check_names(namespace, name)
        what = f"write ConfigMap {namespace}/{name}"
        body = wire.config_map_body(document, expected)
        for _ in range(_ATTEMPTS):
            if expected != "":
                status, answer = await self._write("PUT", _path(namespace, name), body)
                if status in (_OK, _CREATED):
                    return _version(answer, what)
                if status == _CONFLICT and expected is None:
                    continue
                if status != _NOT_FOUND:
                    raise wire.refusal(status, answer, what)
                if expected is not None:
                    raise StoreConflict(f"cannot {what}: version {expected} was deleted")
            status, answer = await self._write("POST", _path(namespace), body)
            if status in (_OK, _CREATED):
                return _version(answer, what)
            if status == _NOT_FOUND:
                await create_namespace(self._connection, namespace, what)
            elif status != _CONFLICT or expected is not None:
                raise wire.refusal(status, answer, what)
        raise StoreUnavailable(f"cannot {what}: others write it all the time")

    async def _write(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        return await self._connection.request(
            method, f"{path}?{wire.FIELD_MANAGER}", body, headers=wire.WRITE_HEADERS
        )

    async def delete(self, namespace: str, name: str) -> None:
        """See ``Store``."""
        check_names(namespace, name)
        status, body = await self._connection.request("DELETE", _path(namespace, name))
        if status not in (_OK, _ACCEPTED, _NOT_FOUND):
            raise wire.refusal(status, body, f"delete ConfigMap {namespace}/{name}")

    async def watch(self, selection: Selection) -> AsyncIterator[WatchEvent]:
        """See ``Store``. Missing rights are waited for: they may come, as tokens and roles do."""
        loop = asyncio.get_running_loop()
        backoff = Backoff()
        reason = ""
        while True:
            began = loop.time()
            try:
                documents, version = await self._list(selection)
                yield Listed(documents)
                del documents
                reason = ""
                async with contextlib.aclosing(self._follow(selection, version)) as changes:
                    async for event in changes:
                        yield event
            except (StoreUnavailable, _NoRights) as error:
                if loop.time() - began > _STEADY_SECONDS:
                    backoff.reset()
                if str(error) != reason:
                    reason = str(error)
                    yield Interrupted(reason)
            await asyncio.sleep(backoff.next_seconds())

    async def beat(self, beat: Beat) -> None:
        """See ``Store``."""
        await self._heartbeats.beat(beat)

    async def beats(self, node: str | None = None) -> tuple[Beat, ...]:
        """See ``Store``."""
        return await self._heartbeats.beats(node)

    async def touch(self, namespace: str, name: str) -> None:
        """See ``Store``."""
        check_names(namespace, name)
        status, answer = await self._connection.request(
            "PATCH",
            f"{_path(namespace, name)}?{wire.TOUCH_MANAGER}",
            msgspec.json.encode({"metadata": {"annotations": {TOUCHED: touched_now()}}}),
            headers=wire.MERGE_PATCH_HEADERS | wire.ONLY_METADATA,
        )
        if status not in (_OK, _NOT_FOUND):
            raise wire.refusal(status, answer, f"touch ConfigMap {namespace}/{name}")

    async def writer(self, namespace: str, name: str) -> Writer | None:
        """See ``Store``."""
        check_names(namespace, name)
        what = f"read who writes ConfigMap {namespace}/{name}"
        status, body = await self._connection.request(
            "GET", _path(namespace, name), headers=wire.ONLY_METADATA
        )
        if status == _NOT_FOUND:
            return None
        if status != _OK:
            raise wire.refusal(status, body, what)
        try:
            return writers.newest_writer(writers.decoder.decode(body).metadata.managed_fields)
        except (msgspec.DecodeError, ValueError) as error:
            raise StoreUnavailable(f"the answer to {what} makes no sense: {error}") from error

    async def close(self) -> None:
        """See ``Store``."""
        await self._connection.close()

    async def _list(self, selection: Selection) -> tuple[tuple[Document, ...], str]:
        """All selected documents and the version of the whole, from which a watch can follow."""
        documents: list[Document] = []
        query = _query(selection) | {"limit": str(_PAGE)}
        while True:
            path = f"{_path(selection.namespace)}?{urlencode(query)}"
            status, body = await self._connection.request("GET", path, seconds=_PAGE_SECONDS)
            if status != _OK:
                raise _refusal(status, body, "list ConfigMaps")
            try:
                page = wire.list_decoder.decode(body)
            except msgspec.DecodeError as error:
                raise StoreUnavailable(f"the list of ConfigMaps is malformed: {error}") from error
            documents.extend(map(wire.document, page.items))
            if not page.metadata.continue_token:
                return tuple(documents), page.metadata.resource_version
            query["continue"] = page.metadata.continue_token

    async def _follow(
        self, selection: Selection, version: str
    ) -> AsyncGenerator[Changed | Deleted, None]:
        """Changes after ``version``, for as long as none can be missed.

        Ends with an error. The server may have forgotten the version (410): then it is asked for
        everything, like after any other failure.
        """
        loop = asyncio.get_running_loop()
        while True:
            query = _query(selection) | {
                "watch": "1",
                "allowWatchBookmarks": "true",
                "resourceVersion": version,
                "timeoutSeconds": str(random.randint(*_WATCH_SECONDS)),
            }
            path = f"{_path(selection.namespace)}?{urlencode(query)}"
            began = loop.time()
            async with self._connection.stream(path) as response:
                if response.status != _OK:
                    body = await response.read()
                    raise _refusal(response.status, body, "watch ConfigMaps")
                pending = bytearray()
                async for chunk in response.content.iter_any():
                    pending += chunk
                    if b"\n" not in chunk and len(pending) <= _LARGEST_FRAME_BYTES:
                        continue  # a large frame comes in many pieces
                    *lines, rest = pending.split(b"\n")
                    for line in lines:
                        if line.strip():
                            event, version = _event(line)
                            if event is not None:
                                yield event
                    pending = rest
                    if len(pending) > _LARGEST_FRAME_BYTES:
                        raise StoreUnavailable("a watch frame is too large")
            if loop.time() - began < _SHORTEST_WATCH_SECONDS:
                raise StoreUnavailable("the API server ended the watch at once")


def _path(namespace: str | None, name: str | None = None) -> str:
    path = "/api/v1"
    if namespace is not None:
        path += f"/namespaces/{quote(namespace, safe='')}"
    path += "/configmaps"
    if name is not None:
        path += f"/{quote(name, safe='')}"
    return path


def _query(selection: Selection) -> dict[str, str]:
    query = {}
    if selection.name is not None:
        query["fieldSelector"] = f"metadata.name={selection.name}"
    if selection.label is not None:
        query["labelSelector"] = "=".join(selection.label)
    return query


def _version(answer: bytes, what: str) -> str:
    try:
        return wire.config_map_decoder.decode(answer).metadata.resource_version
    except msgspec.DecodeError as error:
        raise StoreUnavailable(f"the answer to {what} is no ConfigMap: {error}") from error


def _refusal(status: int, body: bytes, what: str) -> StoreError:
    if status in (_UNAUTHORIZED, _FORBIDDEN):
        return _NoRights(f"cannot {what}: {wire.status_text(status, body)}")
    return wire.refusal(status, body, what)


def _event(line: bytearray) -> tuple[Changed | Deleted | None, str]:
    """The event in a line of the watch, and the version after it."""
    try:
        frame = wire.frame_decoder.decode(line)
        if frame.type == "BOOKMARK":
            return None, wire.bookmark_decoder.decode(frame.object).metadata.resource_version
        if frame.type == "ERROR":
            status = wire.status_decoder.decode(frame.object)
            raise StoreUnavailable(f"the watch ended: {status.message or status.reason}")
        document = wire.document(wire.config_map_decoder.decode(frame.object))
    except msgspec.DecodeError as error:
        raise StoreUnavailable(f"a watch frame is malformed: {error}") from error
    if frame.type in ("ADDED", "MODIFIED"):
        return Changed(document), document.version
    if frame.type == "DELETED":
        return Deleted(document.namespace, document.name), document.version
    raise StoreUnavailable(f"a watch frame has the unknown type {frame.type!r}")
