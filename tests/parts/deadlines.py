"""How long tests wait: every deadline grows by one factor, and no test sleeps by itself.

A deadline only decides how long a test that fails takes. ``VIGIL_TEST_PATIENCE`` multiplies all of
them where a machine does other work, pytest's own among them. What a test waits for is an event, so
the functions of this module are the only ones that sleep:

``until``, ``wait_until``   wait for an event, in a coroutine and in a thread
``nothing_happens_for``     proves that nothing happens before a bound; ``stays`` in a coroutine
``stand_in_takes``          a stub that hangs or answers late; ``stand_in_waits`` in a coroutine
"""

from __future__ import annotations

import asyncio
import inspect
import math
import os
import time
from typing import TYPE_CHECKING, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_STEP_SECONDS = 0.02
_Result = TypeVar("_Result")


def patience_factor(text: str) -> float:
    """Return the factor in ``VIGIL_TEST_PATIENCE``; raises ``ValueError`` if it is not one."""
    factor = float(text)
    if not (math.isfinite(factor) and factor > 0):
        raise ValueError(f"VIGIL_TEST_PATIENCE is {text}, which is not a positive number")
    return factor


_FACTOR = patience_factor(os.environ.get("VIGIL_TEST_PATIENCE") or "1")


def patience(seconds: float) -> float:
    """Return how many seconds a test waits where a quiet machine needs at most ``seconds``."""
    return seconds * _FACTOR


def wait_until(
    reached: Callable[[], _Result],
    event: str | Callable[[], object] = "what the test waits for",
    seconds: float = 20.0,
    step_seconds: float = _STEP_SECONDS,
) -> _Result:
    """Wait until ``reached`` returns a true value, and return that.

    Fails after ``seconds`` with the name of the event, or with what ``event`` returns then.
    """
    give_up = time.monotonic() + patience(seconds)
    while not (result := reached()):
        assert time.monotonic() < give_up, _late(event, seconds)
        time.sleep(step_seconds)
    return result


@overload
async def until(
    reached: Callable[[], Awaitable[_Result]],
    event: str | Callable[[], object] = ...,
    seconds: float = ...,
    step_seconds: float = ...,
) -> _Result: ...
@overload
async def until(
    reached: Callable[[], _Result],
    event: str | Callable[[], object] = ...,
    seconds: float = ...,
    step_seconds: float = ...,
) -> _Result: ...
async def until(
    reached: Callable[[], Awaitable[_Result] | _Result],
    event: str | Callable[[], object] = "what the test waits for",
    seconds: float = 20.0,
    step_seconds: float = _STEP_SECONDS,
) -> _Result:
    """Wait in a coroutine until ``reached`` returns, or is awaited to, a true value; return that.

    Fails like ``wait_until``. Time is that of the event loop, which may be virtual.
    """
    clock = asyncio.get_running_loop().time
    give_up = clock() + patience(seconds)
    while True:
        answer = reached()
        result: _Result = await answer if inspect.isawaitable(answer) else answer
        if result:
            return result
        assert clock() < give_up, _late(event, seconds)
        await asyncio.sleep(step_seconds)


def _late(event: str | Callable[[], object], seconds: float) -> str:
    text = event if isinstance(event, str) else str(event())
    return f"not within {patience(seconds):g} s: {text}"


def nothing_happens_for(seconds: float, *, because: str) -> None:
    """Let time pass in which something wrong would happen.

    ``because`` cites the bound: how soon the product would do it.
    """
    assert because
    time.sleep(seconds)


async def stays(seconds: float, *, because: str) -> None:
    """Do the same as ``nothing_happens_for`` in a coroutine."""
    assert because
    await asyncio.sleep(seconds)


def stand_in_takes(seconds: float) -> None:
    """Let a part that stands in for a program or a person take its time, or hang on purpose."""
    time.sleep(max(0.0, seconds))


async def stand_in_waits(seconds: float) -> None:
    """Do the same as ``stand_in_takes`` in a coroutine."""
    await asyncio.sleep(max(0.0, seconds))
