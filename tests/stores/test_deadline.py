"""A request that a store does not answer in time fails as if the store could not be reached."""

from __future__ import annotations

import asyncio

import pytest

from contract.errors import StoreRefused, StoreUnavailable
from stores.deadline import answered_within
from tests.parts.deadlines import stand_in_waits


async def test_late_answer_is_store_unavailable() -> None:
    with pytest.raises(StoreUnavailable, match=r"^no answer within 0\.01 s$"):
        async with answered_within(0.01):
            await stand_in_waits(60)


async def test_timeout_of_the_store_itself_has_the_same_text() -> None:
    with pytest.raises(StoreUnavailable, match=r"^no answer within 5 s$"):
        async with answered_within(5.0):
            raise TimeoutError


async def test_other_errors_pass() -> None:
    with pytest.raises(StoreRefused, match="no"):
        async with answered_within(5.0):
            raise StoreRefused("no")


async def test_cancellation_from_outside_is_no_late_answer() -> None:
    async def ask() -> None:
        async with answered_within(60.0):
            await stand_in_waits(60)

    asking = asyncio.create_task(ask())
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
