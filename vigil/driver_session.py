"""A vendor library at work in its child process, for a verb that asks it once."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from typing import Any

    from dcmi_shim.driver import Driver
    from dcmi_shim.switch.driver import SwitchDriver

T = TypeVar("T")


@asynccontextmanager
async def driver_session(driver: Driver | SwitchDriver) -> AsyncIterator[asyncio.Task[None]]:
    """Have ``driver`` work, and close it behind the block.

    Yield the task that ends where it can never work.
    """
    work = asyncio.create_task(driver.run(), name="driver")
    try:
        yield work
    finally:
        work.cancel()
        # ``wait`` and not ``await``: the end of the task is looked at below, and raises nothing
        # here.
        await asyncio.wait({work})
        if not work.cancelled():
            # Asked for, or asyncio would log it as never retrieved.
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
