"""The receiving end of a service manager's socket: what systemd would have read."""

from __future__ import annotations

import asyncio
import contextlib
import socket

from tests.parts.deadlines import patience


class Manager:
    """A datagram socket at ``address``; one that begins with a NUL byte is abstract."""

    def __init__(self, address: str) -> None:
        self.environment = {"NOTIFY_SOCKET": address.replace("\0", "@")}
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(address)
        self.received: list[list[str]] = []

    async def receives(self, line: str) -> list[str]:
        """Return the next message with ``line``; raises ``TimeoutError`` after 15 s."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(patience(15)):
            while True:
                message = (await loop.sock_recv(self._socket, 4096)).decode().split("\n")
                self.received.append(message)
                if line in message:
                    return message

    def lines_with(self, word: str) -> list[str]:
        """Return all lines so far that begin with ``word``; reads the waiting messages first."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self.received.append(self._socket.recv(4096).decode().split("\n"))
        return [line for message in self.received for line in message if line.startswith(word)]

    def close(self) -> None:
        self._socket.close()
