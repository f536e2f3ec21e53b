"""Interruptions of watches, of documents as of cluster objects."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import msgspec

from contract.errors import StoreRefused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

E = TypeVar("E")


RETRY_SECONDS = 30.0
"""Pause after a refusal that ends only when an operator changes something."""


class Interrupted(msgspec.Struct, frozen=True):
    """The watch shows nothing until the next ``Listed``, because of ``reason``."""

    reason: str


async def followed(
    watch: Callable[[], AsyncIterator[E]], again_seconds: float = RETRY_SECONDS
) -> AsyncIterator[E | Interrupted]:
    """Yield the events of ``watch`` without an end.

    A watch that is refused is interrupted, and begun again after ``again_seconds``: a right may be
    granted later.
    """
    while True:
        try:
            async for event in watch():
                yield event
        # Only this one ends a watch (``Store.watch``); after
        # all others it connects again by itself.
        except StoreRefused as error:
            yield Interrupted(str(error))
        await asyncio.sleep(again_seconds)
