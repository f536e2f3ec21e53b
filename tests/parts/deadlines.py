"""How long tests wait: every deadline grows by one factor, and no test sleeps by itself.

A deadline only decides how long a test that fails takes. ``VIGIL_TEST_PATIENCE`` multiplies all of
them where a machine does other work, pytest's own among them. What a test waits for is an event, so
the functions of this module are the only ones that sleep:

``until``, ``wait_until``   wait for an event, in a coroutine and in a thread
``until_succeeds``          repeats what may fail at first, such as a write over a new connection
``nothing_happens_for``     proves that nothing happens before a bound; ``stays`` in a coroutine
``stand_in_takes``          a stub that hangs or answers late; ``stand_in_waits`` in a coroutine
``let_time_pass``           plays a scenario whose moments matter; ``time_passes`` in a coroutine
"""

from __future__ import annotations

import asyncio
import inspect
import math
import os
import time
from typing import TYPE_CHECKING, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

_FIRST_STEP_SECONDS = 0.005
_LAST_STEP_SECONDS = 0.1
_GROWTH = 1.25
_Result = TypeVar("_Result")


class TooLate(AssertionError):
    """The event that a test waits for did not come in time."""


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
    step_seconds: float | None = None,
) -> _Result:
    """Wait until ``reached`` returns a true value, and return that.

    Raises ``TooLate`` after ``seconds``, with the name of the event or with what ``event`` returns
    then. It looks every ``step_seconds``; without them soon at first, and later less often.
    """
    give_up = time.monotonic() + patience(seconds)
    steps = _steps(step_seconds)
    while not (result := reached()):
        if time.monotonic() >= give_up:
            raise TooLate(_late(event, seconds))
        time.sleep(next(steps))
    return result


@overload
async def until(
    reached: Callable[[], Awaitable[_Result]],
    event: str | Callable[[], object] = ...,
    seconds: float = ...,
    step_seconds: float | None = ...,
) -> _Result: ...
@overload
async def until(
    reached: Callable[[], _Result],
    event: str | Callable[[], object] = ...,
    seconds: float = ...,
    step_seconds: float | None = ...,
) -> _Result: ...
async def until(
    reached: Callable[[], Awaitable[_Result] | _Result],
    event: str | Callable[[], object] = "what the test waits for",
    seconds: float = 20.0,
    step_seconds: float | None = None,
) -> _Result:
    """Wait in a coroutine until ``reached`` returns, or is awaited to, a true value; return that.

    Fails like ``wait_until``. Time is that of the event loop, which may be virtual.
    """
    clock = asyncio.get_running_loop().time
    give_up = clock() + patience(seconds)
    steps = _steps(step_seconds)
    while True:
        answer = reached()
        result: _Result = await answer if inspect.isawaitable(answer) else answer
        if result:
            return result
        if clock() >= give_up:
            raise TooLate(_late(event, seconds))
        await asyncio.sleep(next(steps))


async def until_succeeds(
    work: Callable[[], Awaitable[_Result]],
    *passing: type[Exception],
    seconds: float = 20.0,
) -> _Result:
    """Repeat work until it raises none of the errors that pass; return its result."""
    clock = asyncio.get_running_loop().time
    give_up = clock() + patience(seconds)
    steps = _steps(None)
    while True:
        try:
            return await work()
        except passing:
            if clock() >= give_up:
                raise
        await asyncio.sleep(next(steps))


def _steps(seconds: float | None) -> Iterator[float]:
    """Yield the pauses between two looks: a slow machine has no time for many in vain."""
    step = _FIRST_STEP_SECONDS if seconds is None else seconds
    while True:
        yield step
        if seconds is None:
            step = min(step * _GROWTH, _LAST_STEP_SECONDS)


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


def let_time_pass(seconds: float) -> None:
    """Let a scenario come to its next moment: faults in a rhythm, a kill at a random time.

    What is tested depends on that time. It is not for waiting until something is reached.
    """
    time.sleep(max(0.0, seconds))


async def time_passes(seconds: float) -> None:
    """Do the same as ``let_time_pass`` in a coroutine."""
    await asyncio.sleep(max(0.0, seconds))
