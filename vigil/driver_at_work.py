"""The driver at work in a child process, for a verb that asks it once."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from dcmi_shim.driver import Driver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from typing import Any

    from dcmi_shim.library.discovery import FoundLibrary
    from dcmi_shim.worker.supervisor import DriverSettings

T = TypeVar("T")


@asynccontextmanager
async def driver_at_work(
    library: FoundLibrary, settings: DriverSettings | None = None
) -> AsyncIterator[tuple[Driver, asyncio.Task[None]]]:
    """Yield the driver at work, and the task that ends where it can never work."""
    driver = Driver(library, lambda: time.time_ns() // 1_000_000, settings)
    work = asyncio.create_task(driver.run(), name="driver")
    try:
        yield driver, work
    finally:
        work.cancel()
        await asyncio.wait({work})
        if not work.cancelled():
            work.exception()
        driver.close()


async def first_answer(
    question: Coroutine[Any, Any, T], ended: asyncio.Task[None], seconds: float
) -> T | None:
    """Return the answer to ``question``; ``None`` where none came or the driver's task ended."""
    asking = asyncio.ensure_future(question)
    try:
        await asyncio.wait({asking, ended}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return asking.result() if asking.done() else None
    finally:
        asking.cancel()
