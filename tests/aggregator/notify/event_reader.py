"""A client of the event stream with a small receive window."""

from __future__ import annotations

import json
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, NamedTuple
from urllib.parse import urlsplit

from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.aggregator.daemon import Daemon

ANSWER_SECONDS = patience(20.0)
_RECEIVE_BYTES = 4096


class Event(NamedTuple):
    """One event of the stream."""

    id: str
    kind: str
    data: dict[str, object]

    @property
    def received(self) -> tuple[object, ...]:
        """Return node, chip, code, and the level before and after."""
        names = ("node", "subject", "code", "was", "level")
        return tuple(self.data.get(name) for name in names)


@contextmanager
def listening(daemon: Daemon, last: str = "", query: str = "") -> Iterator[BinaryIO]:
    """Yield a client with a small receive window."""
    url = urlsplit(daemon.url)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
        client.settimeout(ANSWER_SECONDS)
        client.connect((url.hostname, url.port))
        head = f"Last-Event-ID: {last}\r\n" if last else ""
        request = f"GET /api/v1/stream{query} HTTP/1.1\r\nHost: localhost\r\n{head}\r\n"
        client.sendall(request.encode())
        with client.makefile("rb") as answer:
            assert answer.readline().split()[1] == b"200"
            while answer.readline() != b"\r\n":
                pass
            yield answer


def next_event(answer: BinaryIO) -> Event:
    """Return the next event about nodes; lines of chunks between and comments are left out."""
    fields: dict[str, str] = {}
    while True:
        line = answer.readline()
        assert line, "the stream ended"
        name, colon, value = line.decode().strip().partition(": ")
        if colon and name:
            fields[name] = value
        if name == "data" and fields["event"] != "leader":
            return Event(fields.get("id", ""), fields["event"], json.loads(fields["data"]))
