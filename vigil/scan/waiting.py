"""Waiting with a deadline for what may never come back."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Answer = TypeVar("Answer")


async def in_thread(work: Callable[[], Answer], seconds: float) -> Answer:
    """Return what ``work`` returns or raises. Raises ``TimeoutError`` after ``seconds``.

    The thread is left behind then: a file system or device that hangs in the kernel cannot be
    interrupted, and a thread of a pool would be waited for at the end of the process.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Answer] = loop.create_future()

    def finish(answer: Answer | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(answer)  # type: ignore[arg-type]

    def run() -> None:
        answer, error = None, None
        try:
            answer = work()
        except Exception as raised:
            error = raised
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(finish, answer, error)

    threading.Thread(target=run, name="scan", daemon=True).start()
    async with asyncio.timeout(seconds):
        return await done
