"""Health, metrics and the API, over HTTP on ``--listen`` and on a socket in the state directory."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from agent import metrics
from contract.errors import ConfigurationError, Problem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from agent.publication import Publication
    from agent.status import Status

log = logging.getLogger("agent.http")

SOCKET_NAME = "agent.sock"
LISTEN_NAME = "listen"
_SHUTDOWN_SECONDS = 0.5


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(value) + b"\n", status=status, content_type="application/json"
    )


def application(picture: Callable[[], Status], record: Publication) -> web.Application:
    """The pages. ``picture`` is taken anew for each request."""

    async def health(_: web.Request) -> web.Response:
        stalled = picture().stalled
        return _json({"healthy": not stalled, "stalled": stalled}, 503 if stalled else 200)

    async def ready(_: web.Request) -> web.Response:
        reasons = picture().not_ready
        return _json({"ready": not reasons, "reasons": reasons}, 503 if reasons else 200)

    async def scrape(_: web.Request) -> web.Response:
        body = metrics.exposition(picture(), record)
        return web.Response(body=body, headers={"Content-Type": metrics.CONTENT_TYPE})

    async def status(_: web.Request) -> web.Response:
        return _json(picture())

    async def faults(_: web.Request) -> web.Response:
        now = picture()
        return _json({"node": now.node, "at_ms": now.at_ms, "faults": now.faults})

    pages = web.Application()
    pages.router.add_get("/healthz", health)
    pages.router.add_get("/readyz", ready)
    pages.router.add_get("/metrics", scrape)
    pages.router.add_get("/api/v1/status", status)
    pages.router.add_get("/api/v1/faults", faults)
    return pages


@contextlib.asynccontextmanager
async def serving(
    pages: web.Application, listen: str | None, state_dir: Path
) -> AsyncIterator[None]:
    """Serve ``pages`` until the end of the block.

    Raises ``ConfigurationError`` when ``listen`` cannot be used. The socket in the state directory
    is a convenience: without it the agent works, and says so.
    """
    runner = web.AppRunner(pages, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        await _serve_socket(runner, state_dir / SOCKET_NAME)
        if listen is not None:
            await _serve_address(runner, listen, state_dir / LISTEN_NAME)
        yield
    finally:
        await runner.cleanup()


def _make_way(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)


def _note(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.new")
    try:
        draft.write_text(text)
        draft.replace(path)
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
        raise ConfigurationError("vigil agent", [problem]) from None
    address = runner.addresses[-1]
    shown = f"[{address[0]}]" if ":" in address[0] else address[0]
    url = f"http://{shown}:{address[1]}"
    log.info("listening on %s", url)
    _note(note, f"{url}\n")
