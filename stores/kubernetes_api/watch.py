"""Lists in pages and watches of one kind of object of an API server.

A watch is resumed at its last version when the server ends it in the usual way. After any other end
everything is listed again.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import urlencode

import aiohttp
import msgspec

from contract.errors import StoreForbidden, StoreUnavailable
from contract.kubernetes import KubernetesObject
from contract.validation_texts import decode_text
from pacing.backoff import Backoff
from stores.interruption import Interrupted
from stores.kubernetes_api import wire

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping

    from stores.kubernetes_api.client.connection import ApiConnection

# The size of a page in client-go.
_PAGE = 500
_PAGE_SECONDS = 60.0
_HEAD_START_SECONDS = 0.001
"""Until the request for the next page is sent, before the process is busy with this one."""
# Random as in client-go, so that the watches of all agents do not end at the same time.
_WATCH_SECONDS = (240, 480)
# Shorter than the silence after which a connection is given up. So the server ends a watch of what
# never changes, and the next one takes the same connection, without another TLS handshake.
_QUIET_WATCH_SECONDS = (60, 80)
_MAX_FRAME_BYTES = 16 * 1024 * 1024
# A watch that ends at once is a failure, whatever the server answers.
_MIN_WATCH_SECONDS = 1.0
_STEADY_SECONDS = 5.0
_GATHERED_BYTES = 256 * 1024
"""More than this wakes the process during a pause."""

Item = TypeVar("Item")
Event = TypeVar("Event")


class ListPage(msgspec.Struct, Generic[Item]):
    """One page of a list."""

    metadata: wire.ListMetadata
    items: list[Item] | None


read_objects = msgspec.json.Decoder(ListPage[KubernetesObject]).decode


async def listed(
    connection: ApiConnection,
    path: str,
    query: Mapping[str, str],
    read_page: Callable[[bytes], ListPage[Item]],
    action: str,
    *,
    only_metadata: bool = False,
    is_of_one: bool = False,
) -> tuple[list[Item], str]:
    """Return all objects and the version of the whole, from which a watch can follow.

    ``read_page`` decodes one page; it may raise ``msgspec.DecodeError`` and ``RecursionError``.
    ``is_of_one``: there is at most one, so the answer comes as soon as that to a read of it.
    """
    ask = partial(
        _page,
        *(connection, path, query, read_page, action),
        only_metadata=only_metadata,
        is_of_one=is_of_one,
    )
    return await _listed_at_once(ask)


async def _listed_at_once(
    ask: Callable[[str], Coroutine[Any, Any, ListPage[Item]]],
) -> tuple[list[Item], str]:
    items: list[Item] = []
    page = await ask("")
    items.extend(page.items or ())
    while page.metadata.continue_token:
        page = await ask(page.metadata.continue_token)
        items.extend(page.items or ())
    return items, page.metadata.resource_version


async def _listed_by_page(
    ask: Callable[[str], Coroutine[Any, Any, ListPage[Item]]],
) -> AsyncGenerator[ListPage[Item], None]:
    """Yield the pages of a list. The server makes the next one while the caller has one."""
    page = await ask("")
    while token := page.metadata.continue_token:
        asked = asyncio.create_task(ask(token), name="list the next page")
        try:
            await asyncio.sleep(_HEAD_START_SECONDS)
            yield page
            page = await asked
        finally:
            # Also where the caller ends before the answer is there.
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
    yield page


async def _page(
    connection: ApiConnection,
    path: str,
    query: Mapping[str, str],
    read_page: Callable[[bytes], ListPage[Item]],
    action: str,
    token: str,
    *,
    only_metadata: bool = False,
    is_of_one: bool = False,
) -> ListPage[Item]:
    """Return the first page of a list, or the one that continues with ``token``."""
    parameters = {**query, "limit": str(_PAGE)}
    if token:
        parameters["continue"] = token
    url = f"{path}?{urlencode(parameters)}"
    headers = wire.LIST_ONLY_METADATA if only_metadata else None
    if is_of_one:
        answer = await connection.request("GET", url, headers=headers)
    else:
        answer = await connection.list(url, _PAGE_SECONDS, headers)
    body = wire.accepted(answer, f"list {action}")
    try:
        return read_page(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise StoreUnavailable(
            f"the list of {action} is malformed: {decode_text(error)}"
        ) from error


async def watched(
    connection: ApiConnection,
    path: str,
    query: Mapping[str, str],
    read_page: Callable[[bytes], ListPage[Item]],
    action: str,
    everything: Callable[[list[Item]], Event],
    read_event: Callable[[str, msgspec.Raw], tuple[Event | None, str]],
    *,
    page_event: Callable[[list[Item], bool], Event] | None = None,
    only_metadata: bool = False,
    pause_seconds: float = 0.0,
) -> AsyncGenerator[Event | Interrupted, None]:
    """Follow the objects that ``path`` and ``query`` select for ever, or ``only_metadata`` of them.

    Missing rights are waited for. ``action`` names the objects in errors. After each part of the
    stream further ones stay in the socket for ``pause_seconds``.

    ``everything`` makes an event of a list, ``read_event`` of a frame's type and object, with the
    version after it, which is empty where it could not be read; it may raise
    ``msgspec.DecodeError``. With ``page_event`` each page of a list is an event: it gets
    the objects of the page, and whether that is the first one. ``everything`` gets none then.
    """
    loop = asyncio.get_running_loop()
    backoff = Backoff()
    reason = ""
    ask = partial(_page, *(connection, path, query, read_page, action), only_metadata=only_metadata)
    while True:
        began = loop.time()
        try:
            if page_event is None:
                items, version = await _listed_at_once(ask)
                yield everything(items)
                # A generator keeps its locals: all objects would stay
                # in memory as long as the watch lasts.
                del items
            else:
                is_first = True
                async with contextlib.aclosing(_listed_by_page(ask)) as pages:
                    async for page in pages:
                        yield page_event(page.items or [], is_first)
                        is_first, version = False, page.metadata.resource_version
                        del page
                yield everything([])
            reason = ""
            changes = _follow(
                connection,
                path,
                query,
                version,
                action,
                read_event,
                only_metadata=only_metadata,
                pause_seconds=pause_seconds,
            )
            async with contextlib.aclosing(changes):
                async for event in changes:
                    yield event
        except (StoreUnavailable, StoreForbidden) as error:
            # What worked for a while has only ended, as when an API server restarts: no long pause.
            if loop.time() - began > _STEADY_SECONDS:
                backoff.reset()
            if str(error) != reason:
                reason = str(error)
                yield Interrupted(reason)
        await asyncio.sleep(backoff.next_seconds())


async def _follow(
    connection: ApiConnection,
    path: str,
    query: Mapping[str, str],
    version: str,
    action: str,
    read_event: Callable[[str, msgspec.Raw], tuple[Event | None, str]],
    *,
    only_metadata: bool,
    pause_seconds: float,
) -> AsyncGenerator[Event, None]:
    """Yield changes after ``version``, for as long as none can be missed.

    Ends with an error. The server may have forgotten the version (410): then everything is listed,
    as after any other failure.
    """
    loop = asyncio.get_running_loop()
    headers = wire.ONLY_METADATA if only_metadata else None
    is_quiet = False
    while True:
        limits = _QUIET_WATCH_SECONDS if is_quiet else _WATCH_SECONDS
        is_quiet = True
        parameters = {
            **query,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(random.randint(*limits)),
        }
        began = loop.time()
        async with connection.stream(f"{path}?{urlencode(parameters)}", headers) as response:
            if response.status != HTTPStatus.OK:
                body = await response.read()
                raise wire.refusal(response.status, body, f"watch {action}")
            pending = bytearray()
            # Proxies cut what is quiet, and where nothing changes not even a bookmark comes: it is
            # asked anew then from where it was. A server that is gone does not answer that.
            with contextlib.suppress(aiohttp.ClientError, OSError):
                async for chunk in response.content.iter_any():
                    is_quiet = False
                    pending += chunk
                    if b"\n" not in chunk and len(pending) <= _MAX_FRAME_BYTES:
                        continue  # a large frame comes in many pieces
                    *lines, rest = pending.split(b"\n")
                    for line in lines:
                        if line.strip():
                            event, newer = _event(line, read_event)
                            version = newer or version
                            if event is not None:
                                yield event
                    pending = rest
                    if len(pending) > _MAX_FRAME_BYTES:
                        raise StoreUnavailable("a watch frame is too large")
                    if pause_seconds:
                        await _pause(response, pause_seconds)
        if loop.time() - began < _MIN_WATCH_SECONDS:
            raise StoreUnavailable("the API server ended the watch at once")


async def _pause(response: aiohttp.ClientResponse, seconds: float) -> None:
    """Sleep while the kernel gathers what comes, so that it wakes this process once.

    A paused transport of asyncio would still read a connection over TLS.
    """
    connection = response.connection
    transport = None if connection is None else connection.transport
    peer = None if transport is None else transport.get_extra_info("socket")
    if peer is None:
        return
    with contextlib.suppress(OSError):  # it was closed meanwhile
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _GATHERED_BYTES)
    try:
        await asyncio.sleep(seconds)
    finally:
        with contextlib.suppress(OSError):
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


def _event(
    line: bytearray, read_event: Callable[[str, msgspec.Raw], tuple[Event | None, str]]
) -> tuple[Event | None, str]:
    """Return the event in a line of the watch, and the version after it."""
    try:
        frame = wire.frame_decoder.decode(line)
        if frame.type == "BOOKMARK":
            return None, wire.bookmark_decoder.decode(frame.object).metadata.resource_version
        if frame.type == "ERROR":
            # Mostly 410: the version is too old, so that everything has to be listed again.
            status = wire.status_decoder.decode(frame.object)
            raise StoreUnavailable(f"the watch ended: {status.message or status.reason}")
        if frame.type not in ("ADDED", "MODIFIED", "DELETED"):
            raise StoreUnavailable(f"a watch frame has the unknown type {frame.type!r}")
        return read_event(frame.type, frame.object)
    except (msgspec.DecodeError, RecursionError) as error:
        raise StoreUnavailable(f"a watch frame is malformed: {decode_text(error)}") from error
