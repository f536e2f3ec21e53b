"""A real Chromium without windows. It is started once; each test opens a context of its own.

It is Chromium's headless shell: the engine, network and storage of the browser of this version,
without its windows. The whole browser opens a window for each page and draws it. A page takes
2.5 s of a processor there, and 0.8 s in the shell.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playwright.async_api import async_playwright

from tests.parts.processes import Running, program

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Page

_START_SECONDS = 30.0
_OF_DEBIAN = Path("/usr/lib/chromium")
"""Debian's script of the same name on ``PATH`` passes no signals to the program."""


class Chromium:
    """The running browser, within ``async with``; ``directory`` is its own."""

    def __init__(self, directory: Path) -> None:
        self._port = directory / "profile" / "DevToolsActivePort"
        command = [
            str(program("chromium-headless-shell", _OF_DEBIAN)),
            "--remote-debugging-port=0",
            f"--user-data-dir={directory / 'profile'}",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            # Nothing is asked for but what a test opens.
            "--disable-background-networking",
            "--disable-component-update",
        ]
        if os.getuid() == 0:
            # Chromium refuses to run its sandbox as root.
            command.append("--no-sandbox")
        self._running = Running(command, directory / "chromium.log", dict(os.environ))
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Chromium:
        """Connect to it once: each connection is a process of its own."""
        self._stack.callback(self._running.stop)
        try:
            self._running.wait_until(self._port.exists, _START_SECONDS)
            playwright = await self._stack.enter_async_context(async_playwright())
            port = self._port.read_text(encoding="ascii").splitlines()[0]
            self._browser = await playwright.chromium.connect_over_cdp(f"http://127.0.0.1:{port}")
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the browser."""
        await self._stack.aclose()

    @contextlib.asynccontextmanager
    async def page(self, **options: Any) -> AsyncIterator[Page]:
        """Yield an empty page in a context of its own; an error of its scripts fails the test."""
        context = await self._browser.new_context(**options)
        page = await context.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        try:
            yield page
        finally:
            await context.close()
        assert errors == []
