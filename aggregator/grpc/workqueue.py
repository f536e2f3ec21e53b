"""Of whom a subscriber is to be told anew.

Only who changed is kept, each once; what is said of it is looked up when the subscriber takes it.
So one that reads slowly, or never, costs a name per job, and gets the newest state.
"""

from __future__ import annotations

import asyncio
import enum


class Closed(enum.Enum):
    """Why a mailbox gives nothing any more."""

    REPLACED = "a newer registration took its place"
    STOPPING = "this replica does not lead (any more)"


class Mailbox:
    """Names in the order in which they changed first; for one loop."""

    def __init__(self) -> None:
        self.closed: Closed | None = None
        self._waiting: dict[str, None] = {}
        self._woken = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, name: str) -> None:
        """``name`` changed."""
        if self.closed is None:
            self._waiting[name] = None
            self._woken.set()

    def close(self, why: Closed) -> None:
        """Let ``take`` end; what was not taken is dropped. The first reason counts."""
        if self.closed is None:
            self.closed = why
            self._waiting.clear()
            self._woken.set()

    async def take(self) -> str | None:
        """Wait for the next name; ``None`` once it is closed."""
        while self.closed is None:
            if self._waiting:
                name = next(iter(self._waiting))
                del self._waiting[name]
                return name
            self._woken.clear()
            await self._woken.wait()
        return None
