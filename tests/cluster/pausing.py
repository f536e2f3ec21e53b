"""Stops what belongs to one program on a loop that others share: what SIGSTOP does to a process.

A program is what runs in a context in which ``who`` names it. While it is paused none of its
callbacks and tasks runs; time goes on without it. When it goes on, everything is due at once, in
the order in which it would have been. What it had sent and was not answered yet is still on its
way: it reaches the server then.
"""

from __future__ import annotations

import asyncio
from contextvars import Context, ContextVar, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    import pytest


class _Held:
    """A callback whose turn came while its program was paused."""

    def __init__(self, run: Callable[[], object], context: Context) -> None:
        self.handle: asyncio.Handle | None = None
        self.run = run
        self.context = context


class Pauses:
    """Programs on the running loop, identified by the value of ``who``."""

    def __init__(self, who: ContextVar[Any], patch: pytest.MonkeyPatch) -> None:
        self._who = who
        self._held: dict[Hashable, list[_Held]] = {}
        self._loop = asyncio.get_running_loop()
        self._call_soon = self._loop.call_soon
        self._call_at = self._loop.call_at
        patch.setattr(self._loop, "call_soon", self._soon)
        patch.setattr(self._loop, "call_at", self._at)

    def pause(self, program: Hashable) -> None:
        """Pause a program: none of its callbacks runs."""
        self._held.setdefault(program, [])

    def go_on(self, program: Hashable) -> None:
        """Continue a paused program: schedule the callbacks that were held."""
        for one in self._held.pop(program, []):
            assert one.handle is not None, "whoever may cancel it has it"
            if not one.handle.cancelled():
                again = partial(self._unless_cancelled, one)
                self._call_soon(again, context=one.context)

    def _unless_cancelled(self, one: _Held) -> None:
        assert one.handle is not None
        if not one.handle.cancelled():
            self._turn(one)

    def _soon(
        self, callback: Callable[..., object], *arguments: Any, context: Context | None = None
    ) -> asyncio.Handle:
        one = _Held(partial(callback, *arguments), context or copy_context())
        one.handle = self._call_soon(self._turn, one, context=one.context)
        return one.handle

    def _at(
        self,
        when: float,
        callback: Callable[..., object],
        *arguments: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        one = _Held(partial(callback, *arguments), context or copy_context())
        handle = self._call_at(when, self._turn, one, context=one.context)
        one.handle = handle
        return handle

    def _turn(self, one: _Held) -> None:
        held = self._held.get(one.context.get(self._who))
        if held is None:
            one.run()
        else:
            held.append(one)
