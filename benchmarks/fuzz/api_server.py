"""An API server that answers one list and one watch with given bytes, without a network."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TypeVar, cast

from stores.interruption import Interrupted
from stores.kubernetes_api.client.attempts import ApiAnswer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from stores.kubernetes_api.client.connection import ApiConnection

Event = TypeVar("Event")


class _Once:
    """One chunk. No generator, which would wait for its loop to be closed."""

    def __init__(self, chunk: bytes) -> None:
        self._left = [chunk]

    def __aiter__(self) -> _Once:
        return self

    async def __anext__(self) -> bytes:
        if not self._left:
            raise StopAsyncIteration
        return self._left.pop()


class Answers:
    """Replaces ``ApiConnection``: ``listed`` is the body of every list, ``frames`` of a watch."""

    def __init__(self, listed: bytes, frames: bytes) -> None:
        self._listed = listed
        self._frames = frames
        self.status = 200
        self.content = self

    @property
    def connection(self) -> ApiConnection:
        """Return this, for callers that need a connection."""
        return cast("ApiConnection", self)

    async def request(self, *_: object, **__: object) -> ApiAnswer:
        """Answer with the list, whatever the request."""
        return ApiAnswer(200, self._listed)

    list = request

    @contextlib.asynccontextmanager
    async def stream(self, *_: object, **__: object) -> AsyncIterator[Answers]:
        """Yield a watch that ends behind its frames."""
        yield self

    def iter_any(self) -> _Once:
        """Return the frames of the watch."""
        return _Once(self._frames + b"\n")


async def events_of(events: AsyncIterator[Event | Interrupted]) -> list[Event]:
    """Return all events until the first interruption."""
    found: list[Event] = []
    async with contextlib.aclosing(cast("AsyncGenerator[Event | Interrupted, None]", events)):
        async for event in events:
            if isinstance(event, Interrupted):
                break
            found.append(event)
    return found
