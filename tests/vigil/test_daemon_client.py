"""A daemon that is asked over TLS: each way in which that fails has a message of its own."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import socket
import ssl
import threading
from typing import TYPE_CHECKING

import pytest

from contract.errors import StoreUnavailable
from tests.parts.certificates import let_expire, make_pki
from tests.parts.verbs import run_verb
from tests.service.tls.tls_site import private_copy, tls_site, user_line, write_users
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
    make_pki(place)
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
    text = "certificate is not trusted: .*; --ca-file names the file of another authority"
    with _server(_over_tls(pki)) as port, pytest.raises(StoreUnavailable, match=text):
        DaemonClient(f"https://127.0.0.1:{port}", _SECONDS).fetch("/")


def test_another_name(pki: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(pki / "ca.crt"))
    text = "not valid for '127.0.0.2'; use a name that the certificate has"
    with _server(_over_tls(pki)) as port, pytest.raises(StoreUnavailable, match=text):
        DaemonClient(f"https://127.0.0.2:{port}", _SECONDS).fetch("/")


def test_a_long_reason_of_tls_is_cut(pki: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(pki / "ca.crt"))
    resolve, name = socket.getaddrinfo, ".".join(["a" * 60] * 4)
    # No name server has this name.
    monkeypatch.setattr(socket, "getaddrinfo", lambda _, *rest: resolve("127.0.0.1", *rest))
    text = re.escape(" ...; use a name that the certificate has")
    with _server(_over_tls(pki)) as port, pytest.raises(StoreUnavailable, match=text) as error:
        DaemonClient(f"https://{name}:{port}", _SECONDS).fetch("/")
    assert str(error.value).count("a" * 60) == 6, (
        "four in the address, two whole ones in the reason"
    )


def test_a_port_without_tls() -> None:
    text = "it does not use TLS; use http://"
    with _server(_plain) as port, pytest.raises(StoreUnavailable, match=text):
        DaemonClient(f"https://127.0.0.1:{port}", _SECONDS).fetch("/")


@pytest.fixture
def password(tmp_path: Path) -> Path:
    file = tmp_path / "password"
    file.write_text("ops:secret\n")
    file.chmod(0o600)
    return file


def test_a_certificate_that_has_expired(pki: Path, tmp_path: Path) -> None:
    files = private_copy(pki, tmp_path)
    let_expire(files, "server")
    with _server(_over_tls(files)) as port:
        url = f"https://127.0.0.1:{port}"
        status, _, errors = run_verb("status", "--server", url, "--ca-file", str(pki / "ca.crt"))
    assert (status, "its certificate has expired; renew" in errors) == (3, True)


async def _asked(url: str, *options: str) -> tuple[int, str]:
    """Return exit status and errors of a verb; the site answers in the loop of the test."""
    arguments = ("status", "--server", url, *options)
    status, _, errors = await asyncio.to_thread(run_verb, *arguments)
    return status, errors


async def test_logins_that_the_pages_accept_or_refuse(
    pki: Path, tmp_path: Path, password: Path
) -> None:
    users = write_users(tmp_path / "users", user_line("ops", "secret"))
    files = private_copy(pki, tmp_path)
    async with tls_site(tmp_path, files, users=users, with_ca=True) as site:
        url, authority = f"https://127.0.0.1:{site.port}", ("--ca-file", str(pki / "ca.crt"))
        status, errors = await _asked(url, *authority)
        assert (status, "it needs a login; give --password-file" in errors) == (3, True)
        # The site has no such page, which only a client with a login learns.
        status, errors = await _asked(url, *authority, "--password-file", str(password))
        assert (status, "answered 404" in errors) == (3, True)
        reader = ("--certificate-file", str(pki / "reader.crt"))
        key = ("--key-file", str(pki / "reader.key"))
        status, errors = await _asked(url, *authority, *reader, *key)
        assert (status, "answered 404" in errors) == (3, True)
        password.write_text("ops:other\n")
        status, errors = await _asked(url, *authority, "--password-file", str(password))
        assert (status, f"it does not accept the login of {password}" in errors) == (3, True)
        plain = f"http://127.0.0.1:{site.port}"
        status, errors = await _asked(plain)
        assert (status, "this address takes HTTPS only" in errors) == (3, True)
        status, errors = await _asked(plain, "--password-file", str(password))
        assert (status, "a login and certificates are for https:// only" in errors) == (2, True)


async def test_a_client_certificate_that_has_expired_is_named(pki: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    shutil.copytree(pki, own)
    let_expire(own, "reader")
    async with tls_site(tmp_path, private_copy(pki, tmp_path), with_ca=True) as site:
        url = f"https://127.0.0.1:{site.port}"
        certificate = ("--certificate-file", str(own / "reader.crt"))
        key = ("--key-file", str(own / "reader.key"))
        authority = ("--ca-file", str(pki / "ca.crt"))
        status, errors = await _asked(url, *authority, *certificate, *key)
        assert status == 3
        # The alert is lost where the kernel resets the connection before it is read.
        assert "refuses the certificate of --certificate-file" in errors


@pytest.mark.parametrize(
    ("option", "content", "mode", "text"),
    [
        ("--password-file", None, 0o600, "cannot be read: No such file"),
        ("--password-file", "ops:secret\n", 0o604, "is open to every user; .*chmod o="),
        ("--password-file", "secret\n", 0o600, "does not begin with a line USER:PASSWORD"),
        ("--password-file", "\n", 0o600, "begins with an empty line"),
        ("--token-file", None, 0o600, "cannot be read: No such file"),
        ("--ca-file", "no PEM\n", 0o600, "is not a valid PEM file of an authority"),
        ("--certificate-file", "no PEM\n", 0o600, "is not a valid certificate with its key"),
    ],
)
def test_a_file_that_cannot_be_used(
    tmp_path: Path, option: str, content: str | None, mode: int, text: str
) -> None:
    file = tmp_path / "file"
    if content is not None:
        file.write_text(content)
        file.chmod(mode)
    # The address for documentation: nothing is asked there before the files are read.
    status, _, errors = run_verb("status", "--server", "https://192.0.2.1:1", option, str(file))
    assert status == 2
    assert re.search(f"{option}: {re.escape(str(file))} {text}", errors), errors
    assert "secret" not in errors
