"""Clients that keep connections with unfinished requests open, in a process of their own.

``python -m benchmarks.attack_clients HOST PORT CONNECTIONS PER_SECOND`` runs until standard input
ends. What the server closes is opened anew, at most so many in a second. On every line of standard
input it prints how many were opened, closed by the server, and failed so far, and are open.
"""

from __future__ import annotations

import errno
import itertools
import resource
import select
import socket
import sys
import time

ADDRESSES = tuple(f"127.0.0.{number}" for number in range(2, 12))
"""None of them counts as the host's own when it connects to 127.0.0.1."""
UNFINISHED = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-Long: "
_SPARE = 64
_STEP_SECONDS = 0.02


class Flood:
    """The connections."""

    def __init__(self, place: tuple[str, int], connections: int, per_second: float) -> None:
        self._place = place
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
                client.send(UNFINISHED)
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


def main() -> None:
    """Run the command."""
    host, port, connections, per_second = sys.argv[1:]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = int(connections) + _SPARE
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))
    Flood((host, int(port)), int(connections), float(per_second)).run()


if __name__ == "__main__":
    main()
