"""When whole requests begin, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from service.http.connections import RateLimits, RequestRate, Turns

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


async def test_an_address_without_a_turn_lately_comes_before_all_that_had_one() -> None:
    rate = RequestRate(RateLimits(per_second=20, burst=1, at_once=2))
    many = [Request(f"a{number % 40}", rate) for number in range(400)]
    for request in many:
        rate.enqueue(request)
    await asyncio.sleep(3)
    late = Request("b", rate)
    rate.enqueue(late)
    await asyncio.sleep(0.1)
    assert late.began_at is not None
    assert rate.rank("b") > rate.rank("a39")


async def test_new_addresses_without_end_keep_no_older_one_from_its_turn() -> None:
    rate = RequestRate(RateLimits(per_second=20, burst=1, at_once=2))
    rate.enqueue(Request("scraper", rate))
    await asyncio.sleep(0.1)
    again = Request("scraper", rate)
    for second in range(15):
        for number in range(25):
            rate.enqueue(Request(f"{second}.{number}", rate))
        if second == 0:
            rate.enqueue(again)
        await asyncio.sleep(1)
    assert again.began_at is not None


async def test_a_client_that_returns_waits_no_longer_than_a_new_one() -> None:
    """Probes and scrapes of a client come a few seconds apart, among ever new addresses."""
    rate = RequestRate(RateLimits(per_second=20, burst=1, at_once=2))
    rate.enqueue(Request("kubelet", rate))
    for tenth in range(50):
        for number in range(2 + tenth % 2):
            rate.enqueue(Request(f"{tenth}.{number}", rate))
        await asyncio.sleep(0.1)
    new, again = Request("new", rate), Request("kubelet", rate)
    rate.enqueue(new)
    rate.enqueue(again)
    for tenth in range(50, 150):
        for number in range(2 + tenth % 2):
            rate.enqueue(Request(f"{tenth}.{number}", rate))
        await asyncio.sleep(0.1)
    assert new.began_at is not None
    assert again.began_at is not None
    assert again.began_at - new.began_at < 0.1


@pytest.mark.slow
async def test_a_new_address_waits_beside_more_busy_addresses_than_there_are_places() -> None:
    turns = Turns(RateLimits(per_second=10, burst=1, at_once=1), max_waiting=8)

    async def attack(address: str) -> None:
        while True:
            if await turns.take(address):
                turns.done()
            await asyncio.sleep(0.01)

    attackers = [asyncio.create_task(attack(f"a{number}")) for number in range(30)]
    # Until each of them had a turn, all are as new as the next address. Not at the time of a turn.
    await asyncio.sleep(5.05)
    begun = asyncio.get_running_loop().time()
    assert await turns.take("b")
    assert asyncio.get_running_loop().time() - begun < 0.25
    turns.done()
    for attacker in attackers:
        attacker.cancel()


async def test_a_client_that_leaves_in_the_iteration_of_its_turn_keeps_no_place() -> None:
    turns = Turns(RateLimits(per_second=100, burst=5, at_once=1), max_waiting=2)
    assert await turns.take("a")
    left = asyncio.create_task(turns.take("b"))
    await asyncio.sleep(0)
    # The task of the client runs in the next iteration of the loop.
    left.cancel()
    turns.done()
    with pytest.raises(asyncio.CancelledError):
        await left
    async with asyncio.timeout(5):
        assert await turns.take("c")


async def test_a_client_that_left_may_lose_its_place_to_a_new_address() -> None:
    turns = Turns(RateLimits(per_second=1, burst=1, at_once=1), max_waiting=2)
    assert await turns.take("a")
    waiting = [asyncio.create_task(turns.take("a")) for _ in range(2)]
    await asyncio.sleep(0)
    # The first step of the new one comes before the task of the client that left.
    new = asyncio.create_task(turns.take("b"))
    waiting[1].cancel()
    results = await asyncio.gather(waiting[1], return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    turns.done()
    async with asyncio.timeout(5):
        assert await new
    waiting[0].cancel()


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
    # Another connection of the address has its next request.
    rate.enqueue(Request("a", rate))
    rate.leave(requests[5])
    rate.done()
    await asyncio.sleep(1)
    assert [request.began_at for request in requests[4:]] == [None, None]
