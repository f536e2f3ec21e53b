"""Logins on pages over TLS: passwords, certificates, open pages, the socket and streams."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from service.pages.event_stream import PATH as STREAM_PATH
from service.pages.settings import PagesTlsSection
from tests.parts.deadlines import patience
from tests.service.tls.tls_site import (
    SOCKET,
    Site,
    basic,
    client_context,
    private_copy,
    tls_site,
    user_line,
    write_users,
)
from tests.tiers import only_root

if TYPE_CHECKING:
    from collections.abc import Iterator

# The certificates are made by ``openssl``.
pytestmark = pytest.mark.server

_RIGHT = basic("ops", "secret")
_HELLO = (200, b'"hello"\n')


@pytest.fixture
def users(tmp_path: Path) -> Path:
    return write_users(tmp_path / "users", user_line("ops", "secret"), user_line("sre", "secret"))


@pytest.fixture(autouse=True)
def _core_limit() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_CORE)
    yield
    resource.setrlimit(resource.RLIMIT_CORE, limits)


async def test_pages_need_a_password_and_probes_need_none(
    tmp_path: Path, pki: Path, users: Path
) -> None:
    context = client_context(pki)
    async with tls_site(tmp_path, private_copy(pki, tmp_path), users=users) as site:
        for path in ("/hello", "/metrics", "/nothing", STREAM_PATH):
            status, body = await site.get(path, context)
            assert (status, b"a user of pages.users_file" in body) == (401, True)
        assert await site.get("/hello", context, _RIGHT) == _HELLO
        for wrong in (basic("ops", "other"), basic("nobody", "secret")):
            status, body = await site.get("/hello", context, wrong)
            assert (status, b"the user or the password is wrong" in body) == (401, True)
        for broken in ("Basic", "Basic ?", "Basic b3Bz", "Bearer secret", "Digest a=b"):
            assert (await site.get("/hello", context, f"Authorization: {broken}\r\n"))[0] == 401
        assert await site.get("/healthz", context) == (200, b'{"healthy":true}\n')
        for headers in ("", basic("ops", "other")):
            assert await site.get("/readyz", context, headers) == (503, b'{"ready":false}\n')
        status, body = await site.get("/readyz", context, _RIGHT)
        assert (status, b"the store is away" in body) == (503, True)
        metrics = (await site.get("/metrics", context, _RIGHT))[1].decode()
        assert 'npu_vigil_http_logins_total{result="right"} 3.0' in metrics
        assert 'npu_vigil_http_logins_total{result="wrong"} 3.0' in metrics


async def test_a_browser_is_asked_for_a_password_and_no_core_is_written(
    tmp_path: Path, pki: Path, users: Path
) -> None:
    async with tls_site(tmp_path, private_copy(pki, tmp_path), users=users) as site:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", site.port, ssl=client_context(pki)
        )
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        assert 'WWW-Authenticate: Basic realm="NPU Vigil", charset="UTF-8"' in head
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        assert resource.getrlimit(resource.RLIMIT_CORE)[0] == 0


async def test_a_certificate_or_a_password_suffices(tmp_path: Path, pki: Path, users: Path) -> None:
    files = private_copy(pki, tmp_path)
    async with tls_site(tmp_path, files, users=users, with_ca=True) as site:
        assert await site.get("/hello", client_context(pki, "reader")) == _HELLO
        assert await site.get("/hello", client_context(pki), _RIGHT) == _HELLO
        status, body = await site.get("/hello", client_context(pki))
        assert (status, b"pages.users_file with the password or a client" in body) == (401, True)


async def test_the_socket_needs_no_login(tmp_path: Path, pki: Path, users: Path) -> None:
    async with tls_site(tmp_path, private_copy(pki, tmp_path), users=users) as site:
        assert await site.get_from_socket("/hello") == _HELLO


@only_root("only root starts a program of another user")
async def test_the_socket_is_for_no_other_user_who_got_in(
    tmp_path: Path, pki: Path, users: Path
) -> None:
    # Other users must reach it, which they cannot in the directories of pytest.
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        async with tls_site(place, private_copy(pki, tmp_path), users=users):
            place.chmod(0o755)
            (place / SOCKET).chmod(0o666)
            status, output = await _asked_as(65534, place / SOCKET)
    assert (status, output.split()[1]) == (0, b"403")
    assert b"this socket is for root and the user of the daemon" in output


async def _asked_as(uid: int, path: Path) -> tuple[int | None, bytes]:
    """Return status and output of a program of another user that asks the socket."""
    script = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
        "s.sendall(b'GET /hello HTTP/1.1\\r\\nHost: localhost\\r\\n'); "
        "s.sendall(b'Connection: close\\r\\n\\r\\n'); "
        "sys.stdout.buffer.write(b''.join(iter(lambda: s.recv(4096), b'')))"
    )
    child = await asyncio.create_subprocess_exec(
        "/usr/bin/python3", "-c", script, str(path), user=uid, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await child.communicate()
    return child.returncode, output


async def _opened_stream(
    site: Site, headers: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", site.port, ssl=client_context(site.place / "tls")
    )
    writer.write(f"GET {STREAM_PATH} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode())
    await reader.readuntil(b"retry: 1000\n\n")
    return reader, writer


@pytest.mark.slow
async def test_a_changed_or_removed_line_ends_its_streams_and_no_other(
    tmp_path: Path, pki: Path, users: Path
) -> None:
    write_users(users, *users.read_bytes().splitlines(), user_line("dev", "secret"))
    async with tls_site(tmp_path, private_copy(pki, tmp_path), users=users) as site:
        of_ops, of_ops_writer = await _opened_stream(site, _RIGHT)
        of_dev, of_dev_writer = await _opened_stream(site, basic("dev", "secret"))
        of_sre, of_sre_writer = await _opened_stream(site, basic("sre", "secret"))
        assert site.stream.clients == 3
        # A line that was written again has a new salt.
        write_users(users, users.read_bytes().splitlines()[1], user_line("ops", "secret"))
        async with asyncio.timeout(patience(10.0)):
            for reader in (of_ops, of_dev):
                with contextlib.suppress(ConnectionError):
                    await reader.read(-1)
        assert site.stream.clients == 1
        assert not of_sre.at_eof()
        assert await site.get("/hello", client_context(pki), _RIGHT) == _HELLO
        dev = basic("dev", "secret")
        assert (await site.get("/hello", client_context(pki), dev))[0] == 401
        for writer in (of_ops_writer, of_dev_writer, of_sre_writer):
            writer.close()


def test_users_without_tls_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="users_file needs TLS on the pages"):
        PagesTlsSection(users_file=tmp_path / "users")
