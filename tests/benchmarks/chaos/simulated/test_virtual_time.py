"""The loop of virtual time: order, cancelled timers, errors and pipes, as asyncio has them."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from benchmarks.chaos.simulated.virtual_time import VirtualTimeLoop

MANY = 5000


def run(main: Any) -> Any:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)


def test_timers_run_in_order_and_cancelled_ones_neither_run_nor_stay() -> None:
    async def main() -> tuple[list[str], int]:
        loop, done = asyncio.get_running_loop(), list[str]()
        assert isinstance(loop, VirtualTimeLoop)
        cancelled = [loop.call_later(3.0, done.append, "cancelled") for _ in range(MANY)]
        loop.call_later(2.0, done.append, "second")
        loop.call_at(loop.time() + 2.0, done.append, "third, of the same time")
        loop.call_later(1.0, done.append, "first")
        for timer in cancelled:
            timer.cancel()
            timer.cancel()
        waiting = len(loop._timers)
        await passed(4.0)
        return done, waiting

    done, waiting = run(main())
    assert done == ["first", "second", "third, of the same time"]
    assert waiting < MANY / 2


async def passed(seconds: float) -> None:
    """Wait until so much virtual time has passed."""
    event = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, event.set)
    await event.wait()


def test_an_error_of_a_callback_is_reported_and_the_next_one_runs() -> None:
    async def main() -> tuple[list[object], list[str]]:
        loop, errors, done = asyncio.get_running_loop(), list[object](), list[str]()
        loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))
        loop.call_soon(dict[str, str]().__getitem__, "missing")
        loop.call_soon(done.append, "next")
        await passed(1.0)
        return errors, done

    errors, done = run(main())
    assert [type(error) for error in errors] == [KeyError]
    assert done == ["next"]


def test_a_pipe_is_read_before_time_passes() -> None:
    async def main() -> float:
        loop, read_at = asyncio.get_running_loop(), asyncio.Event()
        reading, writing = os.pipe()
        try:
            loop.add_reader(reading, read_at.set)
            loop.call_later(1.0, os.write, writing, b"x")
            loop.call_later(9.0, read_at.set)
            await read_at.wait()
            loop.remove_reader(reading)
            return loop.time()
        finally:
            os.close(reading)
            os.close(writing)

    assert run(main()) == 1.0
