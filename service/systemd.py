"""Notifies the service manager of systemd that the daemon is ready, lives, and ends.

``sd_notify(3)``: datagrams of ``NAME=value`` lines to the socket in ``NOTIFY_SOCKET``. Where there
is none (a container, a terminal) nothing is sent.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

log = logging.getLogger("service.notify")

_STARTING_SECONDS = 0.25
_RUNNING_SECONDS = 5.0
_MORE_TIME_US = 30_000_000


class _Manager:
    """The other end of ``NOTIFY_SOCKET``. One that does not listen is logged once."""

    def __init__(self, address: str) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._trouble: str | None = None

    def notify(self, *lines: str) -> None:
        trouble = None
        try:
            self._socket.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            trouble = error.strerror
        if trouble is not None and trouble != self._trouble:
            log.warning("the service manager at NOTIFY_SOCKET does not listen: %s", trouble)
        self._trouble = trouble

    def close(self) -> None:
        self._socket.close()


def _watchdog_seconds(environment: Mapping[str, str]) -> float | None:
    """Return how long the service manager waits for a sign of life; ``None`` when it does not."""
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    text = environment.get("WATCHDOG_USEC", "")
    return int(text) / 1_000_000 if text.isdecimal() and int(text) > 0 else None


async def notify_manager(
    stalled: Callable[[], Mapping[str, float]],
    not_ready: Callable[[], Sequence[str]],
    environment: Mapping[str, str],
) -> NoReturn:
    """Notify the service manager of the daemon's state until cancelled.

    ``READY=1`` once, when ``not_ready`` has no reason any more; until then it is asked for more
    time, as a store may be away for long. ``STATUS`` is what to read in ``systemctl status``.
    ``WATCHDOG=1`` at half of its period only while no task stalls. ``STOPPING=1`` at the end.
    """
    address = environment.get("NOTIFY_SOCKET")
    if not address:
        await asyncio.get_running_loop().create_future()
        raise AssertionError("the wait never ends")
    manager = _Manager(address)
    watchdog = _watchdog_seconds(environment)
    pause = _RUNNING_SECONDS if watchdog is None else min(_RUNNING_SECONDS, watchdog / 2)
    was_ready, sent = False, ""
    try:
        while True:
            stuck, reasons = stalled(), not_ready()
            lines = []
            if not reasons and not was_ready:
                lines.append("READY=1")
                was_ready = True
            if not stuck:
                lines += ["WATCHDOG=1"] if watchdog is not None else []
                lines += [] if was_ready else [f"EXTEND_TIMEOUT_USEC={_MORE_TIME_US}"]
            status = _status(stuck, reasons)
            if status != sent:
                lines.append(f"STATUS={status}")
                sent = status
            if lines:
                manager.notify(*lines)
            await asyncio.sleep(pause if was_ready else min(pause, _STARTING_SECONDS))
    finally:
        manager.notify("STOPPING=1", "STATUS=ending")
        manager.close()


def _status(stalled: Mapping[str, float], reasons: Sequence[str]) -> str:
    """Return one line: what is stuck, else why the daemon is not ready."""
    if stalled:
        return f"stalled: {', '.join(stalled)}"
    return "; ".join(reasons).replace("\n", " ") or "ready"
