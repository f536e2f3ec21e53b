"""Plays a recording with a daemon of ours in this process, in virtual time and without I/O."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence

_SEED = 5
"""Of jitters, so that a recording always goes the same way."""


class RecordingPlayer:
    """The time of a recording, and the life of the daemon in it.

    A player of one kind of recordings defines what a step does (``do``) and starts lives.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._begin = self._loop.time()
        self._life: asyncio.Task[Any] | None = None
        self._stop: Callable[[], object] = lambda: None

    @property
    def at_ms(self) -> int:
        """Return the time since the first step (ms)."""
        return round((self._loop.time() - self._begin) * 1000)

    async def do(self, step: Mapping[str, Any]) -> None:
        """Do a step of a recording now."""
        raise NotImplementedError

    async def do_all(self, steps: Sequence[Mapping[str, Any]]) -> None:
        """Do the steps at their times."""
        for step in steps:
            await self.until(step["at_ms"] / 1000)
            await self.do(step)

    async def until(self, seconds: float) -> None:
        """Let time pass until so long after the first step.

        A daemon that ends by itself is an error.
        """
        left = seconds - (self._loop.time() - self._begin)
        if left > 0:
            await asyncio.sleep(left)
        if self._life is not None and self._life.done():
            await self._life
            raise AssertionError("the daemon ended")

    @contextlib.contextmanager
    def edges(
        self, on_stop: str, serving: str, jitters: Sequence[str]
    ) -> Iterator[pytest.MonkeyPatch]:
        """Run a daemon of the block without threads, signals and pages, and with constant jitter.

        The names are those of what is replaced: the receiver of the stop, the server of pages, and
        the modules whose ``random`` is a jitter.
        """
        chance = _Chance(_SEED)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(on_stop, self._take_stop)
            patch.setattr(serving, _no_pages)
            patch.setattr("asyncio.to_thread", _at_once)
            for module in jitters:
                patch.setattr(f"{module}.random", chance)
            yield patch

    def _take_stop(self, stop: Callable[[], object]) -> None:
        self._stop = stop


class _Chance(random.Random):
    """Jitter in steps of the clock, so that no pause leaves less than a step."""

    def uniform(self, a: float, b: float) -> float:
        return round(super().uniform(a, b) * 1024) / 1024


async def _at_once(function: Callable[..., object], *arguments: object, **named: object) -> object:
    """Call the function at once, in place of a thread, so that it takes no virtual time."""
    return function(*arguments, **named)


@contextlib.asynccontextmanager
async def _no_pages(*_: object, **__: object) -> AsyncIterator[None]:
    yield


def merged(old: dict[str, str], patch: dict[str, str | None]) -> dict[str, str]:
    """Return ``old`` with a merge patch applied: ``None`` removes a key."""
    merged = {key: value for key, value in old.items() if patch.get(key, "") is not None}
    return merged | {key: value for key, value in patch.items() if value is not None}
