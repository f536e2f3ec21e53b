"""Waits that have an end."""

from __future__ import annotations

import asyncio


async def is_set_within(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait for ``event``, at most so long; return whether it is set. ``None``: without an end."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False
