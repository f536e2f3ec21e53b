"""Pages over HTTP: on an address, and for the same host on a socket."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from inspect import isawaitable
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from contract.errors import ConfigurationError, Problem
from service.files import replace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

log = logging.getLogger("service.pages")

LISTEN_NAME = "listen"
"""The file in the state directory that says where the daemon listens."""

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SHUTDOWN_SECONDS = 0.5


def application(
    stalled: Callable[[], Mapping[str, float]],
    not_ready: Callable[[], Sequence[str]],
    exposition: Callable[[], bytes | Awaitable[bytes]],
    api: Mapping[str, Callable[[], object]],
) -> web.Application:
    """The pages of a daemon; what they show is taken anew for each request.

    ``/healthz`` is 503 while a task stalls and says for how many seconds, ``/readyz`` is 503 while
    there are reasons against it, ``/metrics`` is Prometheus' text format. ``api`` holds paths and
    what is shown there as JSON. What takes long is awaited.
    """

    async def health(_: web.Request) -> web.Response:
        stuck = stalled()
        return json_response({"healthy": not stuck, "stalled": stuck}, 503 if stuck else 200)

    async def ready(_: web.Request) -> web.Response:
        reasons = not_ready()
        return json_response({"ready": not reasons, "reasons": reasons}, 503 if reasons else 200)

    async def metrics(_: web.Request) -> web.Response:
        shown = exposition()
        body = shown if isinstance(shown, bytes) else await shown
        return web.Response(body=body, headers={"Content-Type": _METRICS_TYPE})

    pages = web.Application()
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


def json_response(value: object, status: int = 200) -> web.Response:
    """``value`` as the answer to a request."""
    return web.Response(
        body=msgspec.json.encode(value) + b"\n", status=status, content_type="application/json"
    )


@contextlib.asynccontextmanager
async def serving(
    pages: web.Application, listen: str | None, state_dir: Path, *, socket_name: str | None = None
) -> AsyncIterator[None]:
    """Serve ``pages`` until the end of the block, on ``listen`` (``HOST:PORT``, port 0 for any).

    The address is logged and noted in ``state_dir``. ``socket_name`` is a socket in ``state_dir``
    for whoever may write there; it is a convenience: without it the daemon works, and says so.

    Raises ``ConfigurationError`` when ``listen`` cannot be used.
    """
    runner = web.AppRunner(pages, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        if socket_name is not None:
            await _serve_socket(runner, state_dir / socket_name)
        if listen is not None:
            await _serve_address(runner, listen, state_dir / LISTEN_NAME)
        yield
    finally:
        await runner.cleanup()


def _make_way(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)


def _note(path: Path, text: str) -> None:
    try:
        replace(path, text.encode())
    except OSError as error:
        log.warning("%s is not written: %s", path, error)


async def _serve_socket(runner: web.AppRunner, path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    try:
        _make_way(path)
        # Before the name exists, so that nobody else can ever connect.
        os.fchmod(listener.fileno(), 0o600)
        listener.bind(str(path))
        await web.SockSite(runner, listener).start()
    except OSError as error:
        listener.close()
        log.warning("no API on %s: %s", path, error)


async def _serve_address(runner: web.AppRunner, listen: str, note: Path) -> None:
    host, _, port = listen.rpartition(":")
    site = web.TCPSite(runner, host.strip("[]"), int(port))
    try:
        await site.start()
    except OSError as error:
        problem = Problem("--listen", f"cannot listen on {listen}: {error.strerror}")
        raise ConfigurationError("configuration", [problem]) from None
    address = runner.addresses[-1]
    shown = f"[{address[0]}]" if ":" in address[0] else address[0]
    url = f"http://{shown}:{address[1]}"
    log.info("listening on %s", url)
    _note(note, f"{url}\n")
