"""Requests to a daemon over HTTP, at ``--server URL|unix:PATH``."""

from __future__ import annotations

import http.client
import socket
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import msgspec

from contract.errors import ConfigurationError, Problem, StoreUnavailable, quoted
from contract.names import socket_path_problem
from contract.sentences import sentence
from contract.validation_texts import decode_text
from service.login.client import authorization, login_problem, tls_context, tls_reason
from vigil.options import login_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


OK, NOT_FOUND = 200, 404
# ``/api/v1/nodes`` has 4.5 MB at 10,000 nodes (decision 38); more is another program's answer.
_MAX_BYTES = 256 * 1024 * 1024
_STREAM_SECONDS = 40.0
"""The stream of an aggregator has a comment every 15 s."""
_CONNECT_SECONDS = 1.0

T = TypeVar("T")


_UNAUTHORIZED = 401


class UnknownNode(ConfigurationError):
    """The source that was asked knows no node of this name."""

    def __init__(self, node: str, text: str) -> None:
        super().__init__("command line", [Problem(f"node {node}", text)])


def is_listening(path: Path) -> bool:
    """Return whether a daemon listens on the socket at ``path``.

    A socket that this user may not use counts as well: the request names the reason.
    """
    with closing(socket.socket(socket.AF_UNIX)) as connection:
        # Where all connections of a daemon wait, this one would wait for ever; it counts as well.
        connection.settimeout(_CONNECT_SECONDS)
        try:
            connection.connect(str(path))
        # No file, or a file that a daemon left behind when it was killed.
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError:
            pass
    return True


class OtherNode(UnknownNode):
    """The agent that was asked is of another node; another source may know this one."""


class SocketConnection(http.client.HTTPConnection):
    """A connection to the socket at ``path``; an answer may take ``seconds``."""

    def __init__(self, path: str, seconds: float) -> None:
        # For the header ``Host`` alone; the connection is that of the socket.
        super().__init__("localhost", timeout=seconds)
        self._path = path
        self._seconds = seconds

    def connect(self) -> None:
        """Connect to the socket. Raises ``OSError``."""
        # Checked first: Linux takes 107 bytes of a path, and Python's error does not name that.
        problem = socket_path_problem(self._path)
        if problem is not None:
            raise OSError(problem)
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self._seconds)
        self.sock.connect(self._path)


class DaemonClient:
    """Asks the agent or the aggregator at ``server``, which may take ``seconds`` to answer.

    Each method raises ``ConfigurationError`` for an address that is none and ``StoreUnavailable``
    where no daemon of this project answers.
    """

    def __init__(self, server: str, seconds: float) -> None:
        self.server = server
        self._seconds = seconds

    def get(self, path: str, model: type[T]) -> T:
        """Return the answer at ``path``."""
        status, body = self.fetch(path)
        if status != OK:
            raise self.refused(path, status, body)
        return self.decoded(body, model)

    def find(self, path: str, model: type[T]) -> T | None:
        """Return the answer at ``path``; ``None`` where there is no such thing."""
        status, body = self.fetch(path)
        if status == NOT_FOUND:
            return None
        if status != OK:
            raise self.refused(path, status, body)
        return self.decoded(body, model)

    def fetch(self, path: str) -> tuple[int, bytes]:
        """Return status and body of the answer, whatever the status is."""
        return self.exchange("GET", path, self.headers())

    def exchange(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None = None
    ) -> tuple[int, bytes]:
        """Return status and body of the answer to a request with these ``headers``."""
        with self._answer(path, self._seconds, method, headers, body) as answer:
            content = answer.read(_MAX_BYTES + 1)
            # ``http.client`` returns a short body without an error where the connection broke.
            if answer.length and len(content) <= _MAX_BYTES:
                raise http.client.IncompleteRead(content, answer.length)
            if len(content) > _MAX_BYTES:
                text = sentence(
                    "{server}: the answer at {path} has more than {count} bytes",
                    server=self.server,
                    path=path,
                    count=_MAX_BYTES,
                )
                raise StoreUnavailable(text)
            return answer.status, content

    def follow(self, path: str) -> Iterator[bytes]:
        """Yield each line of an answer that has no end, until the daemon ends it."""
        with self._answer(path, _STREAM_SECONDS, "GET", self.headers(), None) as answer:
            while answer.status == OK and (line := answer.readline(_MAX_BYTES)):
                yield line

    @contextmanager
    def _answer(
        self, path: str, seconds: float, method: str, headers: dict[str, str], body: bytes | None
    ) -> Iterator[http.client.HTTPResponse]:
        connection = self.connect(seconds)
        try:
            connection.request(method, path, body, headers)
            with closing(connection.getresponse()) as answer:
                yield answer
        # Only a Unix socket raises it: its file is gone.
        except FileNotFoundError:
            text = sentence("{server}: no daemon listens there", server=self.server)
            raise StoreUnavailable(text) from None
        except (OSError, http.client.HTTPException) as error:
            reason = tls_reason(error) or quoted(str(error) or type(error).__name__)
            text = sentence("{server} gives no answer: {reason}", server=self.server, reason=reason)
            raise StoreUnavailable(text) from None
        finally:
            connection.close()

    def decoded(self, body: bytes, model: type[T]) -> T:
        """Return the value in ``body``."""
        try:
            return msgspec.json.decode(body, type=model)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            text = sentence(
                "{server}: its answer is not that of a daemon of this version: {reason}",
                server=self.server,
                reason=decode_text(error),
            )
            raise StoreUnavailable(text) from None

    def refused(self, path: str, status: int, body: bytes) -> StoreUnavailable:
        """Return the error for an answer with another status than 200."""
        text = quoted(body.decode(errors="replace"))
        if status == _UNAUTHORIZED:
            problem = login_problem(login_files())
            refusal = sentence(
                "{server}: {problem}: {answer}", server=self.server, problem=problem, answer=text
            )
            return StoreUnavailable(refusal)
        refusal = sentence(
            "{server}: {path} answered {status}: {answer}",
            server=self.server,
            path=path,
            status=status,
            answer=text,
        )
        return StoreUnavailable(refusal)

    def close(self) -> None:
        """Give back what the client keeps: nothing, each request has its own connection."""

    def headers(self) -> dict[str, str]:
        """Return what is sent with each request."""
        # A socket needs no login. Over HTTP others on the way would read it; ``connect`` refuses.
        if not self.server.startswith("https://"):
            return {}
        login = authorization(login_files())
        return {} if login is None else {"Authorization": login}

    def connect(self, seconds: float) -> http.client.HTTPConnection:
        """Return a connection for one request, whose answer may take ``seconds``."""
        server = self.server
        if server.startswith("unix:"):
            return SocketConnection(server.removeprefix("unix:"), seconds)
        try:
            parts = urlsplit(server)
            # ``port`` raises for a text that is not a number, so it is read inside the block.
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        # A path, a query or a user would be dropped silently.
        if host is None or parts.scheme not in ("http", "https") or parts.path not in ("", "/"):
            text = sentence(
                "{server} is neither http://HOST:PORT, https://HOST:PORT nor unix:PATH",
                server=repr(server),
            )
            raise ConfigurationError("command line", [Problem("--server", text)])
        files = login_files()
        if parts.scheme == "https":
            context = tls_context(files)
            return http.client.HTTPSConnection(host, port, timeout=seconds, context=context)
        if any(files):
            text = sentence(
                "{server} is without TLS; a login and certificates are for https:// only",
                server=server,
            )
            raise ConfigurationError("command line", [Problem("--server", text)])
        return http.client.HTTPConnection(host, port, timeout=seconds)
