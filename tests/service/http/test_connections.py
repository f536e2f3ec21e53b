"""Which connection is closed for a new one."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from service.http.connections import Connections, ListenerLimits, RateLimits, RequestRate
from service.http.counts import ConnectionEnd, Counts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LIMITS = ListenerLimits(connections=8, host_places=2, unfinished_per_address=3)
HOST = "10.0.0.1"


class Client:
    """A connection over a real pair of sockets; ``far`` is the end of its client."""

    def __init__(self, address: str) -> None:
        self.near, self.far = socket.socketpair()
        self.address = address
        self.is_loopback = address == "127.0.0.1"
        self.is_of_host = address in ("127.0.0.1", HOST)
        self.has_request = False
        self.is_in_turn = False
        self.unfinished_since: float | None = asyncio.get_running_loop().time()
        self.unsent_since: float | None = None
        self.is_open = True

    def proceed(self) -> None:
        self.is_in_turn = True

    def fileno(self) -> int:
        return self.near.fileno()

    def abort(self) -> None:
        self.is_open = False


class Server:
    """What is tested, and all its clients."""

    def __init__(self) -> None:
        self.counts = Counts()
        # Nothing begins to be answered, unless a test does it.
        rate = RequestRate(RateLimits(per_second=0.001, burst=0))
        self.connections = Connections(LIMITS, rate, self.counts)
        self.clients: list[Client] = []

    def add(self, address: str) -> Client:
        client = Client(address)
        self.clients.append(client)
        self.connections.add(client)
        return client

    def ask(self, client: Client) -> None:
        client.has_request, client.unfinished_since = True, None
        self.connections.add_request(client)

    def closed(self) -> list[Client]:
        return [client for client in self.clients if not client.is_open]


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    yield made
    made.connections.rate.close()
    made.connections.close()
    for client in made.clients:
        client.near.close()
        client.far.close()


async def test_the_one_that_waited_longest_goes_and_not_the_new_one(server: Server) -> None:
    others = [server.add(f"10.1.0.{number}") for number in range(6)]
    server.ask(others[0])
    new = server.add("10.1.0.9")
    assert server.closed() == [others[1]]
    assert new.is_open
    assert server.counts.closed[ConnectionEnd.CROWDED] == 1
    assert server.counts.connections == 6


async def test_none_goes_whose_bytes_were_not_looked_at(server: Server) -> None:
    others = [server.add(f"10.1.0.{number}") for number in range(6)]
    for client in others[:3]:
        client.far.send(b"GET")
    server.add("10.1.0.9")
    assert server.closed() == [others[3]]


async def test_one_between_two_requests_goes_when_it_waited_longest(server: Server) -> None:
    others = [server.add(f"10.1.0.{number}") for number in range(6)]
    server.ask(others[0])
    server.connections.rate.leave(others[0])
    others[0].has_request = False
    server.connections.waits(others[0])
    for number in range(5):
        server.add(f"10.2.0.{number}")
    assert server.closed() == others[1:]
    server.add("10.2.0.9")
    assert others[0] in server.closed()


async def test_the_address_with_the_most_loses_its_oldest(server: Server) -> None:
    one = server.add("10.1.0.1")
    other = server.add("10.1.0.2")
    busiest = [server.add("10.1.0.3") for _ in range(3)]
    server.add("10.1.0.4")
    server.add("10.1.0.5")
    assert server.closed() == [busiest[0]]
    server.add("10.1.0.6")
    assert server.closed() == busiest[:2]
    # Now each address has as many.
    server.add("10.1.0.7")
    assert server.closed() == [one, *busiest[:2]]
    assert other.is_open


async def test_an_address_has_so_many_unfinished_requests(server: Server) -> None:
    first = [server.add("10.1.0.1") for _ in range(3)]
    other = server.add("10.1.0.2")
    new = server.add("10.1.0.1")
    assert server.closed() == [first[0]]
    assert other.is_open
    assert new.is_open
    assert server.counts.closed[ConnectionEnd.ADDRESS] == 1
    server.ask(first[1])
    server.add("10.1.0.1")
    assert server.closed() == [first[0]], "a whole request is no unfinished one"


async def test_loopback_has_no_such_limit(server: Server) -> None:
    for _ in range(8):
        server.add("127.0.0.1")
    assert server.closed() == []
    server.add("127.0.0.1")
    assert server.closed() == server.clients[:1]


async def test_others_leave_the_host_its_places(server: Server) -> None:
    own = [server.add(HOST), server.add("127.0.0.1")]
    for number in range(50):
        server.add(f"10.1.0.{number}")
    assert all(client.is_open for client in own)
    assert server.counts.connections == 8
    server.add(HOST)
    assert not own[0].is_open, "beyond its places the host waits like others"


async def test_an_answer_that_its_client_does_not_take_goes_before_a_request(
    server: Server,
) -> None:
    others = [server.add(f"10.1.0.{number}") for number in range(6)]
    for client in others:
        server.ask(client)
    others[4].unsent_since = asyncio.get_running_loop().time() - 5
    others[5].unsent_since = asyncio.get_running_loop().time()
    server.add("10.1.0.9")
    assert server.closed() == [others[4]]
    assert server.counts.closed[ConnectionEnd.UNSENT] == 1


async def test_an_address_with_many_whole_requests_loses_its_newest(server: Server) -> None:
    many = [server.add("10.1.0.1") for _ in range(3)]
    for client in many:
        server.ask(client)
    many += [server.add("10.1.0.1") for _ in range(2)]
    for client in many[3:]:
        server.ask(client)
    one = server.add("10.1.0.2")
    server.ask(one)
    new = server.add("10.1.0.3")
    assert server.closed() == [many[4]]
    server.ask(new)
    again = server.add("10.1.0.1")
    assert not again.is_open, "its address has the most"
    assert server.counts.closed[ConnectionEnd.REFUSED] == 2
    assert server.counts.connections == 6


async def test_all_but_those_that_are_being_answered_end_with_the_server(server: Server) -> None:
    silent, waiting, answered = (server.add(f"10.1.0.{number}") for number in range(3))
    server.ask(waiting)
    server.ask(answered)
    server.connections.rate.leave(answered)
    answered.proceed()
    server.connections.close()
    assert server.closed() == [silent, waiting]
    assert server.counts.connections == 1
