"""When whole requests begin, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from service.http.connections import RateLimits, RequestRate

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
LIMITS = RateLimits(per_second=100, burst=5, at_once=4)


class Request:
    """A request of an address, and when it began."""

    def __init__(self, address: str, rate: RequestRate, *, is_short: bool = True) -> None:
        self.address = address
        self.began_at: float | None = None
        self._rate = rate
        self._is_short = is_short

    def proceed(self) -> None:
        self.began_at = asyncio.get_running_loop().time()
        if self._is_short:
            asyncio.get_running_loop().call_soon(self._rate.done)


async def test_a_hundred_begin_in_a_second_and_more_wait() -> None:
    rate = RequestRate(LIMITS)
    requests = [Request("a", rate) for _ in range(300)]
    for request in requests:
        rate.enqueue(request)
    await asyncio.sleep(1)
    assert sum(request.began_at is not None for request in requests) == pytest.approx(105, abs=2)
    await asyncio.sleep(2)
    assert all(request.began_at is not None for request in requests)


async def test_each_address_has_its_turn_before_one_has_its_second() -> None:
    rate = RequestRate(LIMITS)
    many = [Request("a", rate) for _ in range(200)]
    for request in many:
        rate.enqueue(request)
    await asyncio.sleep(0.5)
    late = Request("b", rate)
    asked_at = asyncio.get_running_loop().time()
    rate.enqueue(late)
    await asyncio.sleep(0.05)
    assert late.began_at is not None
    assert late.began_at - asked_at < 0.03


async def test_so_many_are_computed_at_once_and_the_next_begins_when_one_is_done() -> None:
    rate = RequestRate(LIMITS)
    requests = [Request("a", rate, is_short=False) for _ in range(6)]
    for request in requests:
        rate.enqueue(request)
    await asyncio.sleep(5)
    assert [request.began_at is not None for request in requests] == [True] * 4 + [False] * 2
    rate.leave(requests[4])
    rate.done()
    assert requests[4].began_at is None
    assert requests[5].began_at is not None


async def test_nothing_begins_behind_the_end() -> None:
    rate = RequestRate(LIMITS)
    requests = [Request("a", rate) for _ in range(50)]
    for request in requests:
        rate.enqueue(request)
    rate.close()
    await asyncio.sleep(1)
    assert sum(request.began_at is not None for request in requests) <= LIMITS.burst


async def test_a_connection_that_ends_behind_the_end_leaves_without_an_error() -> None:
    """A daemon that stops closes its rate first, and then its connections."""
    rate = RequestRate(LIMITS)
    requests = [Request("a", rate, is_short=False) for _ in range(6)]
    for request in requests:
        rate.enqueue(request)
    rate.close()
    rate.leave(requests[5])
