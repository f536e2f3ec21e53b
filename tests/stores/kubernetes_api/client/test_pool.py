"""When a request is made once more, in virtual time, at servers that are played."""

from __future__ import annotations

import asyncio
import math

import pytest

from contract.errors import StoreUnavailable
from stores.kubernetes_api.client.attempts import ApiAnswer, Attempts, RequestKind
from stores.kubernetes_api.client.pool import ConnectionPool

pytestmark = pytest.mark.looptime

GOOD = ApiAnswer(200, b"")


class Server:
    """Takes ``old`` seconds over an old connection and ``new`` ones over a new one."""

    def __init__(self, old: float, new: float) -> None:
        self.old = old
        self.new = new
        self.refuses_new = False
        self.begun: list[tuple[float, bool]] = []
        self.open = self.most = 0

    async def __call__(self, is_new: bool) -> ApiAnswer:
        self.begun.append((round(_now(), 2), is_new))
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            is_late = len(self.begun) > 1
            if is_late and self.refuses_new:
                raise StoreUnavailable("connection refused")
            seconds = self.new if is_late else self.old
            await asyncio.sleep(min(seconds, 36))
            if seconds > 36:
                raise StoreUnavailable("no answer in time")
            return GOOD
        finally:
            self.open -= 1


def _now() -> float:
    return asyncio.get_running_loop().time()


async def test_a_dead_connection() -> None:
    pool = ConnectionPool()
    attempts = Attempts(pool)
    server = Server(math.inf, 0.01)
    answer = await attempts.answer(server, RequestKind.READ)
    assert answer == GOOD._replace(was_repeated=True)
    assert server.begun == [(0, False), (2, True)]
    assert pool.dead_before == 2
    await asyncio.sleep(0.1)
    assert server.open == 0
    # The next dead connection is found as soon.
    server = Server(math.inf, 0.01)
    await attempts.answer(server, RequestKind.READ)
    assert _now() == pytest.approx(4.12, abs=0.01)


async def test_a_slow_server_is_not_taken_for_dead() -> None:
    pool = ConnectionPool()
    attempts = Attempts(pool)
    server = Server(5.0, 5.0)
    answer = await attempts.answer(server, RequestKind.WRITE)
    assert (_now(), answer.was_repeated) == (5, True)
    assert pool.dead_before == -math.inf
    # The second attempt is answered, too, so its connection lives.
    await asyncio.sleep(2.5)
    assert server.open == 0
    again = [Server(5.0, 5.0) for _ in range(4)]
    await asyncio.gather(*(attempts.answer(one, RequestKind.WRITE) for one in again))
    assert sum(len(one.begun) for one in again) == 4
    # Reads have their own time.
    server = Server(math.inf, 0.01)
    began = _now()
    await attempts.answer(server, RequestKind.READ)
    assert _now() - began == pytest.approx(2.01)


async def test_a_new_connection_that_is_slow_as_well_may_answer_first() -> None:
    pool = ConnectionPool()
    server = Server(math.inf, 5.0)
    answer = await Attempts(pool).answer(server, RequestKind.WRITE)
    assert (_now(), answer.status) == (7, GOOD.status)
    assert pool.dead_before == -math.inf
    assert server.open == 1, "its answer would tell that it is slow, not dead"
    await asyncio.sleep(60)
    assert (server.open, server.most) == (0, 2)


async def test_a_second_attempt_that_fails_is_followed_by_others_after_pauses() -> None:
    server = Server(math.inf, 0.0)
    server.refuses_new = True
    with pytest.raises(StoreUnavailable, match="no answer in time"):
        await Attempts(ConnectionPool()).answer(server, RequestKind.WRITE)
    assert [at for at, _ in server.begun] == [0, 2, 12, 22, 32]
    assert server.most == 2


async def test_one_request_asks_for_all() -> None:
    pool = ConnectionPool()
    attempts = Attempts(pool)
    servers = [Server(math.inf, 0.5) for _ in range(5)]
    await asyncio.gather(*(attempts.answer(one, RequestKind.READ) for one in servers))
    assert _now() == pytest.approx(3.0)
    assert sum(is_new for one in servers for _, is_new in one.begun) == 1


async def test_others_that_fail_after_that_are_not_repeated_without_a_pause() -> None:
    attempts = Attempts(ConnectionPool())
    first, second = Server(math.inf, 0.5), Server(math.inf, 0.0)
    second.refuses_new = True
    tasks = [
        asyncio.create_task(attempts.answer(one, RequestKind.WRITE)) for one in (first, second)
    ]
    await asyncio.sleep(9)
    assert [at for at, _ in second.begun] == [0, 2.5, 4.5, 6.5, 8.5]
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
