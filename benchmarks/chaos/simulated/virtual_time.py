"""An event loop whose time passes at once when nothing is due, and programs that stop on it.

Pipes work as on a real loop: what a program of this process wrote is read before time passes. A
wait without an end and without an open pipe can never end, so it is an error. A program is what
runs in a context in which ``PROGRAM`` names it. While it is paused none of its callbacks runs.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import selectors
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any

from typing_extensions import override

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

_MAX_CANCELLED = 1000
"""So many cancelled timers are kept, where they are not the most of all."""
_MAX_EVENTS = 64
"""More pipes are never open: a poll for fewer events than there are changes their order."""

PROGRAM: ContextVar[str] = ContextVar("program", default="")
"""The program to which a callback belongs; empty for the platform itself."""


class Deadlock(RuntimeError):
    """Nothing is due, now or later."""


class _Handle(asyncio.Handle):
    """A handle that is made without calls of Python code: a virtual day makes millions."""

    __slots__ = ()

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], loop: Any, context: Any
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop, self._callback, self._args = loop, callback, args
        self._cancelled, self._repr, self._source_traceback = False, None, None


class _TimerHandle(asyncio.TimerHandle):
    """A timer of the loop's heap, made and cancelled without further calls."""

    __slots__ = ()

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: Any,
        context: Any,
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop, self._callback, self._args = loop, callback, args
        self._cancelled, self._repr, self._source_traceback = False, None, None
        self._when, self._scheduled = when, True

    @override
    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._callback = self._args = None  # type: ignore[assignment]
            if self._scheduled:
                self._loop.count_cancelled()


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """See the module. ``time`` begins at 0. What is due at the same time runs in order."""

    # asyncio's own members, which its type stubs do not have.
    _ready: deque[Any]
    _stopping: bool
    _clock_resolution: float

    def __init__(self) -> None:
        self._now = 0.0
        self._timers: list[tuple[float, int, _TimerHandle]] = []
        """A heap by time and number: tuples are compared without a call of Python code."""
        self._numbers = itertools.count()
        self._cancelled = 0
        """How many timers of the heap are cancelled."""
        self._held: dict[str, list[asyncio.Handle]] = {}
        self._hanging: dict[str, tuple[str, list[asyncio.Handle]]] = {}
        """By program the task that hangs, and its steps that are held."""
        self.count_step: Callable[[str], None] | None = None
        """Called with the program before each of its callbacks."""
        self._readable = _ReadableSelector(self)
        self._poll = self._readable.poll
        super().__init__(self._readable)
        # Each handle and each future asks for it, and a builtin answers faster.
        self.get_debug = bool  # type: ignore[method-assign]

    def time(self) -> float:
        """Return the virtual time (seconds)."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += seconds
        # asyncio runs what is due within this resolution. A program that waits for a rest shorter
        # than the resolution would wait for ever.
        self._clock_resolution = math.ulp(self._now)

    @property
    def is_any_paused(self) -> bool:
        """Whether a program is paused."""
        return bool(self._held)

    def is_paused(self, handle: asyncio.Handle) -> bool:
        """Return whether the program of ``handle`` is paused."""
        return _program_of(handle) in self._held

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

    @override
    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        timer = _TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    @override
    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        timer = _TimerHandle(self._now + delay, callback, args, self, context)
        heapq.heappush(self._timers, (timer._when, next(self._numbers), timer))
        return timer

    @override
    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def count_cancelled(self) -> None:
        """Count a timer of the heap that was cancelled; drop them where they are too many."""
        self._cancelled += 1
        if self._cancelled > _MAX_CANCELLED and self._cancelled > len(self._timers) // 2:
            self._timers = [item for item in self._timers if not item[2]._cancelled]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def _run_once(self) -> None:
        """Do what asyncio's loop does in a round, with a cheaper heap."""
        timers, ready = self._timers, self._ready
        if not ready and not self._stopping:
            self._wait()
        end = self._now + self._clock_resolution
        while timers and timers[0][0] < end:
            timer = heapq.heappop(timers)[2]
            timer._scheduled = False
            if timer._cancelled:
                self._cancelled -= 1
            else:
                ready.append(timer)
        if self._held or self._hanging or self.count_step is not None:
            self._filter()
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                try:
                    handle._context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    text = f"Exception in callback {handle._callback!r}"
                    context = {"message": text, "exception": error, "handle": handle}
                    self.call_exception_handler(context)

    def _wait(self) -> None:
        """Read pipes, or let time pass until the next timer where no pipe has anything."""
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
            self._cancelled -= 1
        timeout = timers[0][0] - self._now if timers else None
        if timeout is not None and timeout <= 0:
            return
        # Mostly no pipe has anything, which the system call shows by itself.
        events = self._poll(0, _MAX_EVENTS) and self._readable.select(0)
        if events:
            self._process_events(events)  # type: ignore[attr-defined]
        elif timeout is None:
            raise Deadlock("all programs wait for something that never comes")
        else:
            self.advance(timeout)

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


class _ReadableSelector(selectors.EpollSelector):
    """The pipes of the loop; ``poll`` is the system call itself."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop
        self.poll = self._selector.poll  # type: ignore[attr-defined]

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(timeout)
        # A paused program reads no pipe, and what is in it must not hold up time.
        if self._loop.is_any_paused:
            ready = [item for item in ready if not self._is_held(item[0])]
        return ready

    def _is_held(self, key: selectors.SelectorKey) -> bool:
        return any(handle is not None and self._loop.is_paused(handle) for handle in key.data)


def _program_of(handle: asyncio.Handle) -> str:
    context = handle._context  # type: ignore[attr-defined]
    program: str = context.get(PROGRAM, "")
    return program


def _task_of(handle: asyncio.Handle) -> str:
    """Return the name of the task whose step ``handle`` is; empty for another callback."""
    owner = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]
    return owner.get_name() if isinstance(owner, asyncio.Task) else ""
