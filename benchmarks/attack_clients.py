"""Clients that attack the pages of a daemon, in a process of their own.

``python -m benchmarks.attack_clients requests HOST PORT CONNECTIONS PER_SECOND`` keeps connections
with unfinished requests open, ``handshakes`` with unfinished handshakes of TLS. What the server
closes is opened anew, at most so many in a second. ``passwords`` sends so many requests with wrong
passwords in a second, over kept connections. All run until standard input ends. On every line of
standard input they print how many were opened, closed by the server, and failed so far, and are
open; ``passwords`` how many answers were 401, 429 and others, and how many are awaited.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import itertools
import resource
import select
import socket
import ssl
import sys
import time
from collections import Counter

ADDRESSES = tuple(f"127.0.0.{number}" for number in range(2, 12))
"""None of them counts as the host's own when it connects to 127.0.0.1."""
UNFINISHED = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-Long: "
PASSWORD_ADDRESSES = ADDRESSES[:4]
"""Eight addresses would take all places of logins that wait; fewer show whether turns are fair."""
_SPARE = 64
_STEP_SECONDS = 0.02


class Flood:
    """The connections."""

    def __init__(
        self, place: tuple[str, int], sent: bytes, connections: int, per_second: float
    ) -> None:
        self._place = place
        self._sent = sent
        self._wanted = connections
        self._per_second = per_second
        self._addresses = itertools.cycle(ADDRESSES)
        self._poll = select.epoll()
        self._open: dict[int, socket.socket] = {}
        self.opened = self.closed = self.failed = 0

    def run(self) -> None:
        """Go on until the other end of standard input is closed."""
        self._poll.register(sys.stdin.fileno(), select.EPOLLIN)
        begun = time.monotonic()
        allowed_before = 0
        while True:
            allowed = int((time.monotonic() - begun) * self._per_second)
            for _ in range(allowed - allowed_before):
                if len(self._open) < self._wanted:
                    self._connect()
            allowed_before = allowed
            for descriptor, events in self._poll.poll(_STEP_SECONDS):
                if descriptor != sys.stdin.fileno():
                    self._look(descriptor, events)
                elif sys.stdin.readline():
                    print(self.opened, self.closed, self.failed, len(self._open), flush=True)
                else:
                    return

    def _connect(self) -> None:
        client = socket.socket()
        client.setblocking(False)
        client.bind((next(self._addresses), 0))
        error = client.connect_ex(self._place)
        if error not in (0, errno.EINPROGRESS):
            self.failed += 1
            client.close()
            return
        self._open[client.fileno()] = client
        self._poll.register(client.fileno(), select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP)

    def _look(self, descriptor: int, events: int) -> None:
        client = self._open[descriptor]
        try:
            if events & select.EPOLLOUT:
                client.send(self._sent)
                self.opened += 1
                self._poll.modify(descriptor, select.EPOLLIN | select.EPOLLRDHUP)
            if not events & ~select.EPOLLOUT or client.recv(4096):
                return
        except OSError:
            pass
        self.closed += 1
        self._poll.unregister(descriptor)
        del self._open[descriptor]
        client.close()


def client_hello() -> bytes:
    """Return the first message of a handshake, for which a server of TLS 1.3 computes a signature.

    The client never sends its second one.
    """
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    connection = untrusting().wrap_bio(incoming, outgoing, server_hostname="localhost")
    try:
        connection.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake needs an answer")


def untrusting() -> ssl.SSLContext:
    """Return a context that accepts each certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class WrongPasswords:
    """Requests with wrong passwords, evenly in time, each on a kept connection that is free."""

    def __init__(self, place: tuple[str, int], connections: int, per_second: float) -> None:
        self._place = place
        self._connections = connections
        self._pause_seconds = 1 / per_second
        self._turns = asyncio.Queue[int]()
        self._answers: Counter[str] = Counter()

    async def run(self) -> None:
        """Go on until the other end of standard input is closed."""
        addresses = itertools.cycle(PASSWORD_ADDRESSES)
        tasks = [
            asyncio.create_task(self._client(next(addresses))) for _ in range(self._connections)
        ]
        tasks.append(asyncio.create_task(self._pace()))
        while await asyncio.to_thread(sys.stdin.readline):
            wrong, busy = self._answers["401"], self._answers["429"]
            others = self._answers.total() - wrong - busy
            print(wrong, busy, others, self._turns.qsize(), flush=True)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    async def _pace(self) -> None:
        begun = time.monotonic()
        for number in itertools.count():
            await asyncio.sleep(begun + number * self._pause_seconds - time.monotonic())
            self._turns.put_nowait(number)

    async def _client(self, address: str) -> None:
        context = untrusting()
        while True:
            try:
                reader, writer = await asyncio.open_connection(
                    *self._place, ssl=context, local_addr=(address, 0)
                )
                while True:
                    login = base64.b64encode(b"ops:wrong-%d" % await self._turns.get())
                    head = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic "
                    writer.write(head + login + b"\r\n\r\n")
                    answer = await reader.readuntil(b"\r\n\r\n")
                    length = answer.lower().partition(b"content-length: ")[2]
                    await reader.readexactly(int(length.partition(b"\r\n")[0]))
                    self._answers[answer.split()[1].decode()] += 1
            except (OSError, EOFError) as error:
                self._answers[type(error).__name__] += 1
                await asyncio.sleep(0.1)


def main() -> None:
    """Run the command."""
    attack, host, port, connections, per_second = sys.argv[1:]
    place, number, rate = (host, int(port)), int(connections), float(per_second)
    if attack == "passwords":
        asyncio.run(WrongPasswords(place, number, rate).run())
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = number + _SPARE
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))
    Flood(place, UNFINISHED if attack == "requests" else client_hello(), number, rate).run()


if __name__ == "__main__":
    main()
