"""Answers that are rendered once for all requests of a second."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

_FRESH_SECONDS = 1.0


class SharedRendering(Generic[T]):
    """What ``render`` returns, for all requests within a second of its end.

    A later request gets the same one while ``is_current`` returns that nothing has changed. Without
    ``is_current`` it is rendered again. An error is raised to the requests that waited for it.
    """

    def __init__(
        self,
        name: str,
        render: Callable[[], Awaitable[T]],
        is_current: Callable[[T], bool] = lambda _: False,
    ) -> None:
        self._name = name
        self._render = render
        self._is_current = is_current
        self._task: asyncio.Task[T] | None = None
        self._good_until = 0.0

    async def get(self) -> T:
        """Return the rendering; a request that is cancelled ends it for no other one."""
        if self._task is None or (self._task.done() and not self._is_good(self._task)):
            self._task = asyncio.create_task(self._rendered(), name=self._name)
        return await asyncio.shield(self._task)

    def _is_good(self, task: asyncio.Task[T]) -> bool:
        if task.cancelled() or task.exception() is not None:
            return False
        return self._now() < self._good_until or self._is_current(task.result())

    async def _rendered(self) -> T:
        rendering = await self._render()
        self._good_until = self._now() + _FRESH_SECONDS
        return rendering

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
