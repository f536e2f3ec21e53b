"""Requests to a daemon over HTTP, at ``--server URL|unix:PATH``."""

from __future__ import annotations

import base64
import http.client
import socket
import ssl
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import msgspec

from contract.errors import ConfigurationError, Problem, StoreUnavailable, quoted
from contract.names import socket_path_problem
from contract.validation_texts import decode_text
from service.files.private import rights_problems
from vigil.options import login_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vigil.options import LoginFiles

OK, NOT_FOUND = 200, 404
# ``/api/v1/nodes`` has 4.5 MB at 10,000 nodes (decision 38); more is another program's answer.
_MAX_BYTES = 256 * 1024 * 1024
_STREAM_SECONDS = 40.0
"""The stream of an aggregator has a comment every 15 s."""
_CONNECT_SECONDS = 1.0
_NO_DAEMON = "no daemon listens there"

T = TypeVar("T")


# Of OpenSSL's ``x509_vfy.h``; Python has no names for them.
_OTHER_NAMES = frozenset((62, 63, 64))
"""The certificate is for another host name, mail address or IP address."""
_PLAIN_REASONS = frozenset(("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"))
"""What a client reads as TLS is something else, such as an answer over HTTP."""
_EXPIRED = 10
_REFUSED_REASONS = frozenset(
    (
        *("TLSV1_ALERT_UNKNOWN_CA", "SSLV3_ALERT_CERTIFICATE_EXPIRED"),
        *("SSLV3_ALERT_BAD_CERTIFICATE", "SSLV3_ALERT_CERTIFICATE_UNKNOWN"),
    )
)
"""Alerts of a server that accepts no such certificate of a client."""
_UNAUTHORIZED = 401
_MAX_LOGIN_BYTES = 64 << 10


def _tls_reason(error: Exception) -> str | None:
    """Return why a connection over TLS failed and what helps; ``None`` for other errors."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _OTHER_NAMES:
            return f"{error.verify_message.rstrip('.')}; use a name that the certificate has"
        if error.verify_code == _EXPIRED:
            return "its certificate has expired; renew pages.certificate_file there"
        return (
            f"its certificate is not trusted: {error.verify_message}; --ca-file names the file "
            "of another authority"
        )
    if isinstance(error, ssl.SSLError) and error.reason in _PLAIN_REASONS:
        return "it does not use TLS; use http://"
    if isinstance(error, ssl.SSLError) and error.reason in _REFUSED_REASONS:
        alert = error.reason.lower().rpartition("alert_")[2].replace("_", " ")
        return f"it refuses the certificate of --certificate-file: {alert}"
    return None


def _tls_context(files: LoginFiles) -> ssl.SSLContext:
    """Return the authorities and the own certificate of a connection.

    Raises ``ConfigurationError`` for files that cannot be used.
    """
    try:
        context = ssl.create_default_context(cafile=files.ca_file)
    except OSError as error:
        text = f"{files.ca_file} is not a valid PEM file of an authority: {_reason_of(error)}"
        raise ConfigurationError("command line", [Problem("--ca-file", text)]) from None
    if files.certificate_file is None:
        return context
    if files.key_file is not None:
        _refuse_open_file("--key-file", files.key_file)
    try:
        # An encrypted key would ask for its password at the terminal, or in a pipeline for ever.
        context.load_cert_chain(files.certificate_file, files.key_file, password=b"")
    except (OSError, ValueError) as error:
        text = f"{files.certificate_file} is not a valid certificate with its key (PEM)"
        problem = Problem("--certificate-file", f"{text}, or --key-file: {_reason_of(error)}")
        raise ConfigurationError("command line", [problem]) from None
    if files.key_file is not None:
        _refuse_open_file("--key-file", files.key_file)
    return context


def _reason_of(error: Exception) -> str:
    return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)


def _authorization(files: LoginFiles) -> str | None:
    """Return the header of a login. Raises ``ConfigurationError`` for files that cannot be used."""
    if files.password_file is not None and files.token_file is not None:
        problem = Problem("--password-file, --token-file", "give one of them, and not both")
        raise ConfigurationError("command line", [problem])
    if files.token_file is not None:
        token = _line("--token-file", files.token_file)
        return f"Bearer {token.decode('ascii', 'replace')}"
    if files.password_file is None:
        return None
    login = _line("--password-file", files.password_file)
    _refuse_open_file("--password-file", files.password_file)
    if b":" not in login:
        text = f"{files.password_file} does not begin with a line USER:PASSWORD"
        raise ConfigurationError("command line", [Problem("--password-file", text)])
    return f"Basic {base64.b64encode(login).decode('ascii')}"


def _line(option: str, path: Path) -> bytes:
    """Return the first line of a file."""
    try:
        with path.open("rb") as file:
            line = file.readline(_MAX_LOGIN_BYTES).rstrip(b"\r\n")
    except OSError as error:
        text = f"{path} cannot be read: {error.strerror}"
        raise ConfigurationError("command line", [Problem(option, text)]) from None
    if not line:
        text = f"{path} begins with an empty line"
        raise ConfigurationError("command line", [Problem(option, text)])
    return line


def _refuse_open_file(option: str, path: Path) -> None:
    problems = rights_problems(option, path)
    if problems:
        raise ConfigurationError("command line", problems)


class UnknownNode(ConfigurationError):
    """The source that was asked knows no node of this name."""

    def __init__(self, node: str, text: str) -> None:
        super().__init__("command line", [Problem(f"node {node}", text)])


def is_listening(path: Path) -> bool:
    """Return whether a daemon listens on the socket at ``path``.

    A socket that this user may not use counts as well: the request names the reason.
    """
    with closing(socket.socket(socket.AF_UNIX)) as connection:
        # A daemon that accepts nothing any more is one as well.
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
                raise StoreUnavailable(
                    f"{self.server}: the answer at {path} has more than {_MAX_BYTES} bytes"
                )
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
            raise StoreUnavailable(f"{self.server}: {_NO_DAEMON}") from None
        except (OSError, http.client.HTTPException) as error:
            reason = _tls_reason(error) or str(error) or type(error).__name__
            raise StoreUnavailable(f"{self.server} gives no answer: {quoted(reason)}") from None
        finally:
            connection.close()

    def decoded(self, body: bytes, model: type[T]) -> T:
        """Return the value in ``body``."""
        try:
            return msgspec.json.decode(body, type=model)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise StoreUnavailable(
                f"{self.server}: its answer is not that of a daemon of this version: "
                f"{decode_text(error)}"
            ) from None

    def refused(self, path: str, status: int, body: bytes) -> StoreUnavailable:
        """Return the error for an answer with another status than 200."""
        text = quoted(body.decode(errors="replace"))
        if status == _UNAUTHORIZED:
            return StoreUnavailable(f"{self.server}: {self._login_problem()}: {text}")
        return StoreUnavailable(f"{self.server}: {path} answered {status}: {text}")

    def _login_problem(self) -> str:
        """Return why there was no right login."""
        files = login_files()
        given = files.password_file or files.token_file or files.certificate_file
        if given is None:
            return "it needs a login; give --password-file, --token-file or --certificate-file"
        return f"it does not accept the login of {given}"

    def close(self) -> None:
        """Give back what the client keeps: nothing, each request has its own connection."""

    def headers(self) -> dict[str, str]:
        """Return what is sent with each request."""
        # A socket needs no login. Over HTTP others on the way would read it; ``connect`` refuses.
        if not self.server.startswith("https://"):
            return {}
        authorization = _authorization(login_files())
        return {} if authorization is None else {"Authorization": authorization}

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
            text = f"{server!r} is neither http://HOST:PORT, https://HOST:PORT nor unix:PATH"
            raise ConfigurationError("command line", [Problem("--server", text)])
        files = login_files()
        if parts.scheme == "https":
            context = _tls_context(files)
            return http.client.HTTPSConnection(host, port, timeout=seconds, context=context)
        if any(files):
            text = f"{server} is without TLS; a login and certificates are for https:// only"
            raise ConfigurationError("command line", [Problem("--server", text)])
        return http.client.HTTPConnection(host, port, timeout=seconds)
