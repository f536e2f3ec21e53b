"""A replica that leads, and the virtual clock of a test."""

from __future__ import annotations

import asyncio

from service.clock import Instant


def clock() -> Instant:
    now_ms = round(asyncio.get_running_loop().time() * 1000)
    return Instant(wall_ms=1_700_000_000_000 + now_ms, steady_ms=now_ms)


class Lead:
    leads = True
