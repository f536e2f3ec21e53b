"""A watch that is refused is interrupted, and begun again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.errors import StoreForbidden
from stores.interruption import Interrupted, followed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


async def test_a_refused_watch_is_interrupted_and_begun_again() -> None:
    begun: list[int] = []

    async def watch() -> AsyncIterator[str]:
        begun.append(len(begun))
        yield f"event {len(begun)}"
        raise StoreForbidden("no right to watch")

    seen: list[str | Interrupted] = []
    async for event in followed(watch, 0.0):
        seen.append(event)
        if len(seen) == 4:
            break
    refused = Interrupted("no right to watch")
    assert seen == ["event 1", refused, "event 2", refused]
    assert begun == [0, 1]
