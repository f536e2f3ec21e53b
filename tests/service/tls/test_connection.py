"""Pages over TLS: clients with and without a certificate, and handshakes that never end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import shutil
import socket
import ssl
import threading
from typing import TYPE_CHECKING

import pytest

from contract.errors import ConfigurationError
from service.pages.settings import PagesTlsSection, pages_tls
from service.tls import connection as tls_connection
from tests.parts.certificates import make_authority, make_client, make_server
from tests.parts.deadlines import patience, stays, time_passes, until
from tests.service.tls.tls_site import (
    ANSWER_SECONDS,
    LARGE,
    client_context,
    private_copy,
    read_answer,
    tls_section,
    tls_site,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# The certificates are made by ``openssl``.
pytestmark = pytest.mark.server


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_pages_are_read_over_tls(tmp_path: Path, pki: Path, version: ssl.TLSVersion) -> None:
    context = client_context(pki)
    context.minimum_version = context.maximum_version = version
    async with tls_site(tmp_path, private_copy(pki, tmp_path)) as site:
        assert await site.get("/hello", context) == (200, b'"hello"\n')
        status, large = await site.get("/large", context)
        assert (status, len(large)) == (200, len(LARGE) + 3)


async def test_one_connection_answers_several_requests(tmp_path: Path, pki: Path) -> None:
    async with tls_site(tmp_path, private_copy(pki, tmp_path)) as site:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", site.port, ssl=client_context(pki)
        )
        for _ in range(3):
            writer.write(b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            assert await reader.readexactly(8) == b'"hello"\n'
        writer.close()
        await writer.wait_closed()


async def test_tls_1_1_is_refused_and_no_session_is_resumed(tmp_path: Path, pki: Path) -> None:
    old = client_context(pki)
    old.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSVersion"):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    async with tls_site(tmp_path, private_copy(pki, tmp_path)) as site:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await site.get("/hello", old)
        context = client_context(pki)
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port, ssl=context)
        tls = writer.get_extra_info("ssl_object")
        assert (await read_answer("/hello", reader, writer))[0] == 200
        session = tls.session
        assert session is None or not session.has_ticket


async def test_a_client_without_tls_reads_why_it_is_refused(tmp_path: Path, pki: Path) -> None:
    async with tls_site(tmp_path, private_copy(pki, tmp_path)) as site:
        assert await site.get("/hello", None) == (400, b"this address takes HTTPS only\n")


async def test_pages_need_a_client_certificate_and_probes_need_none(
    tmp_path: Path, pki: Path
) -> None:
    async with tls_site(tmp_path, private_copy(pki, tmp_path), with_ca=True) as site:
        stranger, reader = client_context(pki), client_context(pki, "reader")
        for path in ("/hello", "/metrics", "/nothing"):
            status, body = await site.get(path, stranger)
            assert (status, b"pages.client_ca_file" in body) == (401, True)
        assert await site.get("/hello", reader) == (200, b'"hello"\n')
        assert await site.get("/healthz", stranger) == (200, b'{"healthy":true}\n')
        assert await site.get("/readyz", stranger) == (503, b'{"ready":false}\n')
        status, body = await site.get("/readyz", reader)
        assert (status, b"the store is away" in body) == (503, True)
        assert await site.get_from_socket("/hello") == (200, b'"hello"\n')


async def test_a_certificate_of_another_authority_is_refused(tmp_path: Path, pki: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    make_authority(other)
    make_client(other, "reader", "readers")
    context = client_context(pki)
    context.load_cert_chain(other / "reader.crt", other / "reader.key")
    async with tls_site(tmp_path, private_copy(pki, tmp_path), with_ca=True) as site:
        with pytest.raises((ssl.SSLError, ConnectionError, IndexError)):
            await site.get("/healthz", context)
        assert await site.get("/hello", client_context(pki, "reader")) == (200, b'"hello"\n')


async def test_replaced_files_count_from_the_next_connection_on(
    tmp_path: Path, pki: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = private_copy(pki, tmp_path)
    async with tls_site(tmp_path, files) as site:
        other = tmp_path / "other"
        other.mkdir()
        make_authority(other)
        make_server(other)
        # Half replaced: the key is that of the earlier certificate.
        (other / "server.crt").replace(files / "server.crt")
        site.tls.refresh()
        assert "new certificates of the pages are not used" in caplog.text
        assert await site.get("/hello", client_context(pki)) == (200, b'"hello"\n')
        (other / "server.key").chmod(0o440)
        (other / "server.key").replace(files / "server.key")
        with caplog.at_level(logging.INFO):
            site.tls.refresh()
        assert "the certificates of the pages were replaced" in caplog.text
        assert await site.get("/hello", client_context(other)) == (200, b'"hello"\n')
        with pytest.raises(ssl.SSLCertVerificationError):
            await site.get("/hello", client_context(pki))


def _client_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(
        ssl.MemoryBIO(), outgoing, server_hostname="localhost"
    )
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


async def test_a_client_is_answered_among_handshakes_that_never_end(
    tmp_path: Path, pki: Path
) -> None:
    hello = _client_hello()
    async with tls_site(tmp_path, private_copy(pki, tmp_path)) as site:
        opened = []
        # Each address has its turn, so one address with many handshakes delays no other.
        for number in range(40):
            attacker = socket.create_connection(
                ("127.0.0.1", site.port), source_address=(f"127.0.0.{2 + number % 4}", 0)
            )
            attacker.sendall(hello)
            opened.append(attacker)
        try:
            began = asyncio.get_running_loop().time()
            assert (await site.get("/hello", client_context(pki)))[0] == 200
            # Without turns it would be behind 40 handshakes, which take 2 s.
            assert asyncio.get_running_loop().time() - began < patience(1.0)
        finally:
            for attacker in opened:
                attacker.close()


async def test_an_unfinished_handshake_ends(
    tmp_path: Path, pki: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_connection, "_HANDSHAKE_SECONDS", 0.3)
    async with tls_site(tmp_path, private_copy(pki, tmp_path)) as site:
        for sent in (b"", b"\x16", _client_hello()[:-1], _client_hello()):
            reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
            writer.write(sent)
            async with asyncio.timeout(patience(ANSWER_SECONDS)):
                with contextlib.suppress(ConnectionError):
                    await reader.read(-1)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        metrics = (await site.get_from_socket("/metrics"))[1].decode()
        assert 'npu_vigil_http_closed_connections_total{reason="handshake"} 4.0' in metrics


async def test_a_handshake_that_fails_after_its_client_left_is_not_logged(
    tmp_path: Path, pki: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    is_computing, may_fail = threading.Event(), threading.Event()

    def failing(tls: ssl.SSLObject) -> bool:
        is_computing.set()
        may_fail.wait()
        raise ssl.SSLError("the client refused the certificate")

    monkeypatch.setattr(tls_connection, "_is_finished", failing)
    async with tls_site(tmp_path, private_copy(pki, tmp_path)) as site:
        _, writer = await asyncio.open_connection("127.0.0.1", site.port)
        writer.write(_client_hello())
        await asyncio.to_thread(is_computing.wait)
        # A reset is seen at once.
        writer.transport.abort()
        await time_passes(0.1)
        may_fail.set()
        await stays(0.1, because="the thread ends, and asyncio logs an error that nobody awaits")
    gc.collect()
    assert "never retrieved" not in caplog.text


async def test_what_is_not_a_handshake_ends_the_connection(tmp_path: Path, pki: Path) -> None:
    async with tls_site(tmp_path, private_copy(pki, tmp_path)) as site:
        for sent in (b"\x16\x03\x01\x00\x05hello", b"\x16" + bytes(70_000)):
            reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
            writer.write(sent)
            async with asyncio.timeout(patience(ANSWER_SECONDS)):
                with contextlib.suppress(ConnectionError):
                    await reader.read(-1)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

        async def none_is_left() -> bool:
            metrics = (await site.get_from_socket("/metrics"))[1]
            return b"npu_vigil_http_connections 1.0" in metrics

        await until(none_is_left)
        assert await site.get("/hello", client_context(pki)) == (200, b'"hello"\n')


def _without_key(place: Path) -> None:
    (place / "server.key").unlink()


def _open_to_all(place: Path) -> None:
    (place / "server.key").chmod(0o644)


def _of_another(place: Path) -> None:
    shutil.copy(place / "reader.key", place / "server.key")
    (place / "server.key").chmod(0o600)


def _without_certificate(place: Path) -> None:
    (place / "server.crt").write_text("no PEM\n")


def _empty_authority(place: Path) -> None:
    (place / "ca.crt").write_text("")


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (_without_key, "pages.key_file: .*server.key cannot be read: No such file"),
        (_open_to_all, "pages.key_file: .*server.key is open to every user; .*chmod o="),
        (_of_another, "pages.certificate_file: .*are not a valid certificate"),
        (_without_certificate, "pages.certificate_file: .*are not a valid certificate"),
        (_empty_authority, "pages.client_ca_file: .*is not a valid PEM file of an authority"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    tmp_path: Path, pki: Path, spoil: Callable[[Path], None], text: str
) -> None:
    files = private_copy(pki, tmp_path)
    pages_tls(tls_section(files, with_ca=True))
    spoil(files)
    with pytest.raises(ConfigurationError, match=text):
        pages_tls(tls_section(files, with_ca=True))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (("certificate_file",), "key_file is missing"),
        (("key_file",), "certificate_file is missing"),
        (("client_ca_file",), "client_ca_file needs TLS"),
    ],
)
def test_settings_that_lack_a_file_are_refused(
    tmp_path: Path, given: tuple[str, ...], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        PagesTlsSection(**dict.fromkeys(given, tmp_path / "file"))
