"""Health, metrics and the API over HTTP."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from aggregator import metrics
from contract.errors import ConfigurationError, Problem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from aggregator.status import Health, Status

_log = logging.getLogger(__name__)

LISTEN_NAME = "listen"
_SHUTDOWN_SECONDS = 0.5


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(value) + b"\n", status=status, content_type="application/json"
    )


def application(probe: Callable[[], Health], picture: Callable[[], Status]) -> web.Application:
    """The pages. ``probe`` and ``picture`` are taken anew for each request."""

    async def health(_: web.Request) -> web.Response:
        stalled = probe().stalled
        return _json({"healthy": not stalled, "stalled": stalled}, 503 if stalled else 200)

    async def ready(_: web.Request) -> web.Response:
        reason = probe().not_ready
        return _json({"ready": reason is None, "reason": reason}, 503 if reason else 200)

    async def scrape(_: web.Request) -> web.Response:
        body = metrics.exposition(picture())
        return web.Response(body=body, headers={"Content-Type": metrics.CONTENT_TYPE})

    async def nodes(_: web.Request) -> web.Response:
        now = picture()
        return _json({"at_ms": now.at_ms, "nodes": now.nodes})

    async def faults(_: web.Request) -> web.Response:
        now = picture()
        return _json({"at_ms": now.at_ms, "faults": now.faults})

    async def documents(_: web.Request) -> web.Response:
        now = picture()
        return _json({"at_ms": now.at_ms, "stores": now.sources, "documents": now.documents})

    pages = web.Application()
    pages.router.add_get("/healthz", health)
    pages.router.add_get("/readyz", ready)
    pages.router.add_get("/metrics", scrape)
    pages.router.add_get("/api/v1/nodes", nodes)
    pages.router.add_get("/api/v1/faults", faults)
    pages.router.add_get("/api/v1/documents", documents)
    return pages


@contextlib.asynccontextmanager
async def serving(
    pages: web.Application, listen: str | None, state_dir: Path
) -> AsyncIterator[None]:
    """Serve ``pages`` until the end of the block; nothing where ``listen`` is ``None``.

    Raises ``ConfigurationError`` when the address cannot be used.
    """
    if listen is None:
        yield
        return
    runner = web.AppRunner(pages, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        await _listen(runner, listen, state_dir)
        yield
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, listen: str, state_dir: Path) -> None:
    host, _, port = listen.rpartition(":")
    try:
        await web.TCPSite(runner, host.strip("[]"), int(port)).start()
    except OSError as error:
        problem = Problem("--listen", f"cannot listen on {listen}: {error.strerror}")
        raise ConfigurationError("vigil aggregator", [problem]) from None
    address = runner.addresses[-1]
    shown = f"[{address[0]}]" if ":" in address[0] else address[0]
    url = f"http://{shown}:{address[1]}"
    _log.info("listening on %s", url)
    try:
        _note(state_dir / LISTEN_NAME, f"{url}\n")
    except OSError as error:
        _log.warning("%s is not written: %s", state_dir / LISTEN_NAME, error)


def _note(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.new")
    draft.write_text(text)
    draft.replace(path)
