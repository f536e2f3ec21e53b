"""Waits with a deadline."""

from __future__ import annotations

import asyncio


async def is_set_within(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait for ``event``, at most ``seconds``; return whether it is set. ``None``: no limit."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False
