"""An event loop whose time passes at once when nothing is due, and programs that stop on it.

Pipes work as on a real loop: what a program of this process wrote is ready before time passes. A
wait without an end and without an open pipe can never end, so it is an error. A program is what
runs in a context in which ``PROGRAM`` names it. While it is paused none of its callbacks runs.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import selectors
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

PROGRAM: ContextVar[str] = ContextVar("program", default="")
"""The program to which a callback belongs; empty for the platform itself."""


class Deadlock(RuntimeError):
    """Nothing is due, now or later."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """See the module. ``time`` begins at 0."""

    # asyncio's own members, which its type stubs do not have.
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _clock_resolution: float

    def __init__(self) -> None:
        self._now = 0.0
        self._held: dict[str, list[asyncio.Handle]] = {}
        self._hanging: dict[str, tuple[str, list[asyncio.Handle]]] = {}
        """By program the task that hangs, and its steps that are held."""
        self.count_step: Callable[[str], None] | None = None
        """Called with the program before each of its callbacks."""
        super().__init__(_VirtualSelector(self))

    def time(self) -> float:
        """Return the virtual time (seconds)."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += seconds
        # asyncio runs what is due within this resolution. A program that waits for a rest shorter
        # than the resolution would wait for ever.
        self._clock_resolution = math.ulp(self._now)

    def is_paused(self, handle: asyncio.Handle) -> bool:
        """Return whether the program of ``handle`` is paused."""
        return bool(self._held) and _program_of(handle) in self._held

    def pause(self, program: str) -> None:
        """Run none of the callbacks of ``program`` until ``go_on``, as SIGSTOP does."""
        self._held.setdefault(program, [])

    def hang(self, program: str, task: str) -> None:
        """Run no step of the task of this name in ``program`` until ``release``."""
        self._hanging[program] = task, []

    def release(self, program: str) -> None:
        """Run the step that was held."""
        _, handles = self._hanging.pop(program, ("", []))
        self._ready.extend(handle for handle in handles if not handle.cancelled())

    def go_on(self, program: str) -> None:
        """Run what was held, in the order in which it was due."""
        self._ready.extend(
            handle for handle in self._held.pop(program, []) if not handle.cancelled()
        )

    def _process_events(self, event_list: list[Any]) -> None:
        # asyncio's loop has selected and will now run what is ready or due.
        super()._process_events(event_list)  # type: ignore[misc]
        if self._held or self._hanging or self.count_step is not None:
            self._ready_those_due()
            self._filter()

    def _ready_those_due(self) -> None:
        end = self._now + self._clock_resolution
        while self._scheduled and self._scheduled[0].when() < end:
            handle = heapq.heappop(self._scheduled)
            handle._scheduled = False  # type: ignore[attr-defined]
            self._ready.append(handle)

    def _filter(self) -> None:
        ready, count = tuple(self._ready), self.count_step
        self._ready.clear()
        for handle in ready:
            program = _program_of(handle)
            held = self._held.get(program)
            if held is not None:
                held.append(handle)
                continue
            hanging = self._hanging.get(program)
            if hanging is not None and _task_of(handle) == hanging[0]:
                hanging[1].append(handle)
                continue
            if count is not None and program and not handle.cancelled():
                # The step itself is a callback, so that it comes between those before and after.
                self._ready.append(asyncio.Handle(count, (program,), self))
            self._ready.append(handle)


class _VirtualSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # A paused program reads no pipe, and what is in it must not hold up time.
        ready = [
            item
            for item in super().select(0)
            if not any(
                handle is not None and self._loop.is_paused(handle) for handle in item[0].data
            )
        ]
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise Deadlock("all programs wait for something that never comes")
        self._loop.advance(timeout)
        return []


def _program_of(handle: asyncio.Handle) -> str:
    context = handle._context  # type: ignore[attr-defined]
    program: str = context.get(PROGRAM, "")
    return program


def _task_of(handle: asyncio.Handle) -> str:
    """Return the name of the task whose step ``handle`` is; empty for another callback."""
    owner = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]
    return owner.get_name() if isinstance(owner, asyncio.Task) else ""
