"""Shows a state once, or each new one until Ctrl-C."""

from __future__ import annotations

import os
import re
import shutil
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NoReturn, Protocol
from urllib.parse import quote

import msgspec
import typer

from contract.errors import StoreUnavailable
from vigil.daemon_client import NOT_FOUND, DaemonClient
from vigil.status.options import NOT_WELL
from vigil.status.show import print_lines, width

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_AGENT_SECONDS = 0.2
_AGGREGATOR_SECONDS = 0.25
_WITHOUT_SIGNAL_SECONDS = 2.0
"""The stream of an aggregator has no events of jobs, heartbeats and the leader."""
_STREAM_SECONDS = 40.0
"""The stream sends a comment every 15 s."""
_AGAIN_SECONDS = 1.0
_CLEAR = "\x1b[H\x1b[2J"
_AGES = re.compile(rb"[0-9.]+ (s|min|h|d)\b")


@dataclass(frozen=True)
class Output:
    """What a verb shows: ``document`` as JSON, ``lines`` of a width as text."""

    document: msgspec.Struct
    lines: Callable[[int], Iterable[str]]
    well: bool

    @property
    def key(self) -> bytes:
        """What differs between two states: everything but times that pass."""
        values = msgspec.to_builtins(self.document)
        for name in ("at_ms", "facts", "documents"):
            values.pop(name, None)
        return _AGES.sub(b"", msgspec.json.encode(values))


def show(
    client: DaemonClient,
    ask: Callable[[], Output],
    *,
    node: str | None,
    watching: bool,
    as_json: bool,
    utc: bool,
) -> NoReturn:
    """Show what ``ask`` returns; ends the verb with its exit status.

    With ``watching`` each change is shown, until Ctrl-C. An agent is asked every 0.2 s; an
    aggregator after an event of its stream (of ``node``), at most 4 times a second.
    """
    if watching:
        with suppress(KeyboardInterrupt):
            _watch(client, ask, node, as_json=as_json, utc=utc)
        raise typer.Exit
    state = ask()
    if as_json:
        print(msgspec.json.encode(state.document).decode())
    else:
        print_lines(state.lines(width()))
    raise typer.Exit(0 if state.well else NOT_WELL)


class _Signal(Protocol):
    def wait(self) -> None: ...


def _watch(
    client: DaemonClient, ask: Callable[[], Output], node: str | None, *, as_json: bool, utc: bool
) -> None:
    screen: _Paper | _Terminal = _Paper(as_json=as_json, utc=utc)
    if not as_json and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        screen = _Terminal()
    screen.show(ask())
    signal = _signal_of(client, node)
    while True:
        signal.wait()
        try:
            screen.show(ask())
        except StoreUnavailable as error:
            screen.fail(str(error))
            time.sleep(_AGAIN_SECONDS)


def _signal_of(client: DaemonClient, node: str | None) -> _Signal:
    if client.ask("/api/v1/leader")[0] == NOT_FOUND:
        return _Pause()
    path = "/api/v1/stream" + (f"?node={quote(node, safe='')}" if node else "")
    return _Stream(DaemonClient(client.server, _STREAM_SECONDS), path)


class _Pause:
    def wait(self) -> None:
        time.sleep(_AGENT_SECONDS)


class _Stream:
    """Waits for an event of the stream at ``path``."""

    def __init__(self, client: DaemonClient, path: str) -> None:
        self._client = client
        self._path = path
        self._came = threading.Event()
        self._last = 0.0
        threading.Thread(target=self._follow, daemon=True).start()

    def wait(self) -> None:
        """Wait for an event, and until the last return is long enough ago."""
        self._came.wait(_WITHOUT_SIGNAL_SECONDS)
        time.sleep(max(0.0, self._last + _AGGREGATOR_SECONDS - time.monotonic()))
        self._came.clear()
        self._last = time.monotonic()

    def _follow(self) -> None:
        while True:
            with suppress(StoreUnavailable):
                for line in self._client.follow(self._path):
                    # The first line comes when the stream begins: what changed before is asked for.
                    if line.startswith((b"retry:", b"event:")):
                        self._came.set()
            time.sleep(_AGAIN_SECONDS)


class _Paper:
    """Prints each new state behind the last one."""

    def __init__(self, *, as_json: bool, utc: bool) -> None:
        self._as_json = as_json
        self._utc = utc
        self._shown = b""

    def show(self, state: Output) -> None:
        key = state.key
        if key == self._shown:
            return
        self._shown = key
        if self._as_json:
            print(msgspec.json.encode(state.document).decode(), flush=True)
        else:
            self._print(state.lines(width()))

    def fail(self, why: str) -> None:
        key = why.encode(errors="replace")
        if key == self._shown:
            return
        self._shown = key
        if self._as_json:
            print(msgspec.json.encode({"error": why}).decode(), flush=True)
        else:
            self._print([why])

    def _print(self, lines: Iterable[str]) -> None:
        now = datetime.now(UTC)
        shown = now if self._utc else now.astimezone()
        print_lines([f"{shown:%Y-%m-%d %H:%M:%S}{' UTC' if self._utc else ''}", *lines, ""])
        sys.stdout.flush()


class _Terminal:
    """Draws the newest state on the whole screen; ages in it are drawn again each second."""

    def __init__(self) -> None:
        self._shown = b""
        self._drawn = 0.0

    def show(self, state: Output) -> None:
        key, now = state.key, time.monotonic()
        if key == self._shown and now - self._drawn < _AGAIN_SECONDS:
            return
        self._shown, self._drawn = key, now
        self._draw(list(state.lines(width())))

    def fail(self, why: str) -> None:
        self._shown = b""
        self._draw([why])

    def _draw(self, lines: list[str]) -> None:
        rows = shutil.get_terminal_size().lines - 1
        if len(lines) > rows:
            lines = [*lines[: rows - 1], f"{len(lines) - rows + 1} more lines"]
        print(_CLEAR, end="")
        print_lines(lines)
        sys.stdout.flush()
