"""Time as it is passed in: the wall clock for what is written, the steady one for waiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple, TypeAlias


class Instant(NamedTuple):
    """Now. ``wall_ms`` is Unix epoch milliseconds and may be set back; ``steady_ms`` never is."""

    wall_ms: int
    steady_ms: int


Clock: TypeAlias = Callable[[], Instant]


def system_clock() -> Instant:
    """Return the host's clock and the event loop's."""
    return Instant(time.time_ns() // 1_000_000, int(asyncio.get_running_loop().time() * 1000))


def shown_time(at_ms: int) -> str:
    """Return a wall time as people read it."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"
