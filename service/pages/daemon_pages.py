"""Pages over HTTP: on an address, and for the same host on a socket."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from inspect import isawaitable
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from contract.names import socket_path_problem
from contract.pages.messages import collecting
from contract.pages.readiness import ReadinessPage
from contract.sentences import english
from service.http.address import ListenAddress, is_of_this_host
from service.http.connection import SENT_WITH_ALL, free_place
from service.http.connections import SOCKET_LIMITS, ListenerLimits
from service.http.counts import Counts
from service.http.server import BACKLOG, HttpServer
from service.login.check import Login
from service.pages.exposition import Exposition, ExpositionFormat

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from aiohttp.typedefs import Handler, Middleware

    from service.login.tokens import TokenChecks
    from service.login.users import UsersFile
    from service.pages.exposition import Render
    from service.tls.connection import Handshakes
    from service.tls.files import PagesTls

log = logging.getLogger("service.pages")

LISTEN_NAME = "listen"
"""The file in the state directory with the address where the daemon listens."""

_SHUTDOWN_SECONDS = 0.5
_COUNTS: web.AppKey[Counts] = web.AppKey("counts", Counts)
HOST_NAMES: web.AppKey[frozenset[str]] = web.AppKey("host names", frozenset)
"""Names in lower case that requests may use for this daemon, besides localhost and addresses."""


def application(
    stalled: Callable[[], Mapping[str, float]],
    not_ready: Callable[[], Sequence[str]],
    exposition: Render,
    api: Mapping[str, Callable[[], object]],
    warnings: Callable[[], Sequence[str]] = tuple,
) -> web.Application:
    """Return the pages of a daemon; what they show is taken anew for each request.

    One exposition is good for a second; the metrics of the pages themselves are added to it.
    ``/healthz`` is 503 while a task stalls and shows for how many seconds, ``/readyz`` is 503 while
    there are reasons against it. ``/metrics`` is OpenMetrics for clients that ask for it, else
    Prometheus' text format. ``api`` holds paths and what is shown there as JSON. What takes long
    is awaited. ``warnings`` are shown by ``/readyz`` and make nothing unready.
    """

    async def health(_: web.Request) -> web.Response:
        stuck = stalled()
        return json_response({"healthy": not stuck, "stalled": stuck}, 503 if stuck else 200)

    async def ready(_: web.Request) -> web.Response:
        reasons = tuple(not_ready())
        shown = ReadinessPage(not reasons, reasons, tuple(warnings()))
        return json_response(shown, 503 if reasons else 200)

    async def metrics(request: web.Request) -> web.Response:
        # A request that waits for another one's page keeps no page from being computed.
        free_place(request)
        form = ExpositionFormat.of(",".join(request.headers.getall("Accept", ())))
        return web.Response(body=await shared.get(form), headers={"Content-Type": form.value})

    counts = Counts()
    shared = Exposition(exposition, counts)
    pages = web.Application()
    pages[_COUNTS] = counts
    pages.router.add_get("/healthz", health)
    pages.router.add_get("/readyz", ready)
    pages.router.add_get("/metrics", metrics)
    for path, value in api.items():
        pages.router.add_get(path, _showing(value))
    return pages


def _showing(value: Callable[[], object]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def show(_: web.Request) -> web.Response:
        shown = value()
        return json_response(await shown if isawaitable(shown) else shown)

    return show


def is_kept(request: web.Request, tag: str) -> bool:
    """Return whether the client has the answer with ``tag``, the ``ETag`` without its quotes.

    Tags are compared weakly (RFC 9110, 13.1.2).
    """
    return any(cached_tag.value in (tag, "*") for cached_tag in request.if_none_match or ())


def json_response(value: object, status: int = 200) -> web.Response:
    """Return ``value`` as the answer to a request; its sentences are English.

    Where it has ``messages``, its last member, these are filled with its sentences. The value is
    encoded once: what is advised for ten thousand nodes takes long.
    """
    messages = getattr(value, "messages", None)
    hook = english if messages is None else collecting(messages)
    body = msgspec.json.encode(value, enc_hook=hook) + b"\n"
    return web.Response(body=body, status=status, content_type="application/json")


@contextlib.asynccontextmanager
async def serving(
    pages: web.Application,
    listen: str | None,
    state_dir: Path,
    *,
    socket_name: str | None = None,
    limits: ListenerLimits = ListenerLimits(),  # noqa: B008
    host_names: Collection[str] = (),
    tls: PagesTls | None = None,
    users: UsersFile | None = None,
    tokens: TokenChecks | None = None,
) -> AsyncIterator[None]:
    """Serve ``pages`` until the end of the block, on ``listen`` (``HOST:PORT``, port 0 for any).

    The address is logged and noted in ``state_dir``. One that cannot be bound is a warning and a
    metric, and is tried again every 5 s. ``socket_name`` is a socket in ``state_dir`` for users who
    may write there; without it the daemon works, and a warning is logged. ``host_names`` are names
    that requests over loopback may use, besides ``localhost`` and addresses. With ``tls`` the
    address is served over TLS; the socket never is. ``users`` and clients with ``tokens`` may read
    what needs a login.
    """
    counts = pages[_COUNTS]
    pages.on_response_prepare.append(_sends)
    names = frozenset(name.lower() for name in host_names)
    pages[HOST_NAMES] = names
    pages.middlewares.insert(0, _only_for(names))
    login = None
    has_certificates = tls is not None and tls.demands_certificate
    if has_certificates or users is not None or tokens is not None:
        login = Login(tls, users, tokens, counts)
        pages.middlewares.insert(0, login.check)
    runner = web.AppRunner(
        pages, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS, handler_cancellation=True
    )
    await runner.setup()
    server = HttpServer(runner, counts)
    # The socket is never served over TLS.
    handshakes = None if tls is None or listen is None else _handshakes(tls, counts)
    tasks = []
    try:
        if socket_name is not None:
            _serve_socket(server, state_dir / socket_name)
        if listen is not None:
            over_tls = None if handshakes is None else handshakes.protocol
            address = ListenAddress(server, limits, listen, state_dir / LISTEN_NAME, over_tls)
            if not await address.attempt():
                trying = address.keep_trying()
                tasks.append(asyncio.create_task(trying, name="address of the pages"))
            if tls is not None:
                current = tls.keep_current()
                tasks.append(asyncio.create_task(current, name="certificates of the pages"))
            if users is not None and login is not None:
                current = login.keep_current(users)
                tasks.append(asyncio.create_task(current, name="users of the pages"))
            if tokens is not None and login is not None:
                current = login.keep_reviewed(tokens)
                tasks.append(asyncio.create_task(current, name="tokens of the pages"))
        yield
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        server.close()
        if handshakes is not None:
            handshakes.close()
        await runner.cleanup()
        if login is not None:
            login.close()


def _handshakes(tls: PagesTls, counts: Counts) -> Handshakes:
    # Imported late: threads and TLS cost memory, and most daemons use neither here.
    from service.tls.connection import Handshakes

    return Handshakes(tls, counts)


async def _sends(request: web.Request, response: web.StreamResponse) -> None:
    """Free the place of a page that was computed: sending it lasts as long as its client reads."""
    free_place(request)
    response.headers.update(SENT_WITH_ALL)


def _only_for(names: Collection[str]) -> Middleware:
    """Refuse what a browser asks for a web page of another site."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        sockname = request.get_extra_info("sockname")
        here = sockname[0] if isinstance(sockname, tuple) else ""
        # Only programs leave the name out.
        if all(is_of_this_host(host, here, names) for host in request.headers.getall("Host", ())):
            return await handler(request)
        reason = (
            "over loopback this daemon is asked by an address, as localhost, or by a name of "
            "pages.host_names"
        )
        return json_response({"error": reason}, 421)

    return check


def _serve_socket(server: HttpServer, path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        # Before the name exists, so that no other user can ever connect.
        os.fchmod(listener.fileno(), 0o600)
        listener.bind(str(path))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        log.warning("no API on %s: %s", path, socket_path_problem(path) or error)
    else:
        server.serve([listener], SOCKET_LIMITS)
