"""A daemon that is asked over TLS: each way in which that fails has a message of its own."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from typing import TYPE_CHECKING

import pytest

from contract.errors import StoreUnavailable
from tests.parts.certificates import make_authority, make_server
from vigil.daemon_client import DaemonClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# The certificates are made by ``openssl``.
pytestmark = pytest.mark.server

_SECONDS = 20.0
_ANSWER = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("pki")
    make_authority(place)
    make_server(place)
    return place


def _plain(accepted: socket.socket) -> None:
    accepted.recv(1024)
    accepted.sendall(_ANSWER)


def _over_tls(place: Path) -> Callable[[socket.socket], None]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(place / "server.crt", place / "server.key")

    def answer(accepted: socket.socket) -> None:
        with context.wrap_socket(accepted, server_side=True) as wrapped:
            _plain(wrapped)

    return answer


@contextlib.contextmanager
def _server(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """Answer one connection to any address of this host; yield the port."""
    with socket.create_server(("0.0.0.0", 0)) as listening:

        def serve() -> None:
            accepted, _ = listening.accept()
            # The client that is tested ends a handshake that it does not like.
            with accepted, contextlib.suppress(OSError):
                answer(accepted)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(_SECONDS)
        assert not thread.is_alive()


def test_an_authority_that_is_trusted(pki: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(pki / "ca.crt"))
    with _server(_over_tls(pki)) as port:
        assert DaemonClient(f"https://127.0.0.1:{port}", _SECONDS).fetch("/")[0] == 400


def test_another_authority(pki: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    text = "certificate is not trusted: .*; SSL_CERT_FILE names the file of another authority"
    with _server(_over_tls(pki)) as port, pytest.raises(StoreUnavailable, match=text):
        DaemonClient(f"https://127.0.0.1:{port}", _SECONDS).fetch("/")


def test_another_name(pki: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(pki / "ca.crt"))
    text = "not valid for '127.0.0.2'; use a name that the certificate has"
    with _server(_over_tls(pki)) as port, pytest.raises(StoreUnavailable, match=text):
        DaemonClient(f"https://127.0.0.2:{port}", _SECONDS).fetch("/")


def test_a_port_without_tls() -> None:
    text = "it does not use TLS; use http://"
    with _server(_plain) as port, pytest.raises(StoreUnavailable, match=text):
        DaemonClient(f"https://127.0.0.1:{port}", _SECONDS).fetch("/")
