"""HTTP over the socket of a daemon on this host."""

from __future__ import annotations

import http.client
import socket


class SocketConnection(http.client.HTTPConnection):
    """A connection to the socket at ``path``; an answer may take ``seconds``."""

    def __init__(self, path: str, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds)
        self._path = path
        self._seconds = seconds

    def connect(self) -> None:
        """Connect to the socket. Raises ``OSError``."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self._seconds)
        self.sock.connect(self._path)
