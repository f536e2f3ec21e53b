"""The end of a request to a store: the error of one that takes longer names the deadline."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from contract.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def answered_within(seconds: float) -> AsyncIterator[None]:
    """Cancel what is inside after ``seconds``. Raises ``StoreUnavailable`` then."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise StoreUnavailable(f"no answer within {seconds:g} s") from None
