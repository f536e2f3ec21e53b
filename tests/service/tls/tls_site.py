"""Pages over TLS for tests: a real server, and clients with a login or without one."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import shutil
import ssl
from types import MappingProxyType
from typing import TYPE_CHECKING

import bcrypt

from service.http.connections import ListenerLimits
from service.pages.daemon_pages import application, serving
from service.pages.event_stream import PATH as STREAM_PATH
from service.pages.event_stream import Stream
from service.pages.settings import PagesTlsSection, pages_tls, pages_users
from tests.parts.deadlines import patience
from tests.parts.exposition import OneGauge

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from service.login.tokens import TokenChecks
    from service.tls.files import PagesTls

LARGE = "x" * (1 << 20)
SOCKET = "pages.sock"
ANSWER_SECONDS = 30.0


def private_copy(pki: Path, place: Path) -> Path:
    copy = place / "tls"
    shutil.copytree(pki, copy)
    (copy / "server.key").chmod(0o600)
    return copy


def tls_section(
    place: Path, *, with_ca: bool = False, users: Path | None = None
) -> PagesTlsSection:
    return PagesTlsSection(
        certificate_file=place / "server.crt",
        key_file=place / "server.key",
        client_ca_file=place / "ca.crt" if with_ca else None,
        users_file=users,
    )


def basic(user: str, password: str) -> str:
    """Return the header of a login."""
    text = base64.b64encode(f"{user}:{password}".encode()).decode()
    return f"Authorization: Basic {text}\r\n"


def write_users(path: Path, *lines: bytes) -> Path:
    """Write a users file, as its owner alone may read it."""
    # As a Secret is replaced: by another file.
    new = path.with_suffix(".new")
    new.write_bytes(b"".join(line + b"\n" for line in lines))
    new.chmod(0o600)
    new.replace(path)
    return path


def user_line(user: str, password: str, cost: int = 4) -> bytes:
    """Return a line as ``htpasswd -B`` writes it; the lowest cost keeps tests quick."""
    stored = bcrypt.hashpw(password.encode(), bcrypt.gensalt(cost, b"2b"))
    return b"%s:$2y%s" % (user.encode(), stored.removeprefix(b"$2b"))


def client_context(place: Path, user: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=place / "ca.crt")
    if user is not None:
        context.load_cert_chain(place / f"{user}.crt", place / f"{user}.key")
    return context


class Site:
    """Pages that are served over TLS."""

    def __init__(self, place: Path, tls: PagesTls, stream: Stream) -> None:
        self.place = place
        self.tls = tls
        self.stream = stream

    @property
    def port(self) -> int:
        scheme, _, address = (self.place / "listen").read_text().strip().partition("://")
        assert scheme == "https"
        return int(address.rpartition(":")[2])

    async def get(
        self, path: str, context: ssl.SSLContext | None, headers: str = "", source: str = ""
    ) -> tuple[int, bytes]:
        """Return the status and the body of a page; ``source`` is the address of the client."""
        async with asyncio.timeout(patience(ANSWER_SECONDS)):
            here = (source, 0) if source else None
            opened = await asyncio.open_connection(
                "127.0.0.1", self.port, ssl=context, local_addr=here
            )
            return await read_answer(path, *opened, headers)

    async def get_from_socket(self, path: str) -> tuple[int, bytes]:
        """Return the status and the body of a page on the socket."""
        return await read_answer(path, *await asyncio.open_unix_connection(self.place / SOCKET))


async def read_answer(
    path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, headers: str = ""
) -> tuple[int, bytes]:
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n"
    writer.write(head.encode())
    try:
        answer, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return int(answer.split()[1]), body


@contextlib.asynccontextmanager
async def tls_site(
    place: Path,
    files: Path,
    *,
    with_ca: bool = False,
    users: Path | None = None,
    tokens: TokenChecks | None = None,
    more: Mapping[str, Callable[[], object]] = MappingProxyType({}),
    host: str = "127.0.0.1",
    limits: ListenerLimits = ListenerLimits(),  # noqa: B008
) -> AsyncIterator[Site]:
    section = tls_section(files, with_ca=with_ca, users=users)
    tls = pages_tls(section)
    assert tls is not None
    pages = application(
        dict,
        lambda: ["the store is away"],
        lambda encode: encode(OneGauge()),
        {"/hello": lambda: "hello", "/large": lambda: LARGE, **more},
    )
    stream = Stream("epoch")
    pages.router.add_get(STREAM_PATH, stream.serve)
    async with serving(
        pages,
        f"{host}:0",
        place,
        socket_name=SOCKET,
        limits=limits,
        tls=tls,
        users=pages_users(section),
        tokens=tokens,
    ):
        yield Site(place, tls, stream)
