"""How a daemon is stopped, and why it ended."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING, TypeVar

from contract.errors import VigilError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

T = TypeVar("T")

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_THREAD_SECONDS = 2.0


def on_stop(on_signal: Callable[[], object]) -> None:
    """Have the running loop call ``on_signal`` at the first SIGTERM or SIGINT.

    Further ones change nothing, also after the loop was closed: the end that has begun is not cut
    short. ``loop.add_signal_handler`` would give them back their default then.
    """
    loop = asyncio.get_running_loop()
    is_ending = False

    def begin(*_: object) -> None:
        nonlocal is_ending
        if not is_ending and not loop.is_closed():
            is_ending = True
            loop.call_soon_threadsafe(on_signal)

    for number in STOP_SIGNALS:
        signal.signal(number, begin)


def leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    """Yield the errors in ``group``, without the groups."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error


async def in_thread(work: Callable[[], T]) -> T:
    """Return what ``work`` returns in a thread. Raises what it raises.

    One that is cancelled waits for the thread, at most 2 s: no file is closed under the thread
    that writes it.
    """
    task = asyncio.create_task(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task}, timeout=_THREAD_SECONDS)
        raise


async def until_stopped(work: Coroutine[None, None, object]) -> None:
    """Run ``work`` until the first signal to stop.

    Raises the ``VigilError`` of a group by itself, where it has one.
    """
    task = asyncio.ensure_future(work)
    on_stop(task.cancel)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await task
    except BaseExceptionGroup as group:
        for error in leaves(group):
            if isinstance(error, VigilError):
                raise error from group
        raise
