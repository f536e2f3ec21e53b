"""What strangers send to the pages: the head of a request, its parameters; and the files of users
and certificates.
"""

from __future__ import annotations

import asyncio
import atexit
from base64 import b64encode
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from typing_extensions import override

from contract.errors import VigilError
from service.http.connection import MAX_HEAD_BYTES, HttpConnection
from service.http.connections import Connections, ListenerLimits, RateLimits, RequestRate
from service.http.counts import Counts
from service.login.users import parsed
from service.pages.parameters import Parameter, parameter_check
from service.tls.files import PagesTls

if TYPE_CHECKING:
    from collections.abc import Callable

_HEADS = (
    "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic b3BzOnNlY3JldA==\r\n\r\n",
    "\r\n\r\nHEAD /api/v1/faults?limit=7 HTTP/1.0\r\nAccept-Encoding: gzip, br;q=0.1\r\n\r\n",
    "POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabcGET /",
)
_QUERIES = (
    "limit=20&node=node-1&node=node-2&severity=major",
    "since_ms=1800000000000&limit=1",
    "node=%E4%B8%AD&severity=minor&limit=00009",
)
_STORED = "$2y$04$2gG8Q7Uo8JdjDvPVzWsq2.iM2nZvyWMFTMlaJpIrjMUbFUiIKqtnG"
_USERS = (
    f"# people\n\nops:{_STORED}\nsre:{_STORED}\r\n",
    f"\u4e2d\u6587:{_STORED.replace('$04$', '$12$')}\n",
)
_PKCS8_OF_ED25519 = bytes.fromhex("302e020100300506032b657004220420")
_KEY = b64encode(_PKCS8_OF_ED25519 + bytes(range(32))).decode()
_KEY_FILE = f"-----BEGIN PRIVATE KEY-----\n{_KEY}\n-----END PRIVATE KEY-----\n"
_CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBLjCB4aADAgECAhROVOM3x0PhYCqJ8j6DwJLmlVOKHzAFBgMrZXAwDDEKMAgG
A1UEAwwBYTAgFw0yNjExMzAwNDEzMjVaGA8yMTI2MTEwNjA0MTMyNVowDDEKMAgG
A1UEAwwBYTAqMAUGAytlcAMhAAOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQS
VTG4o1MwUTAdBgNVHQ4EFgQU/YGm22TW+vf3AsB5cagsJcHcPJAwHwYDVR0jBBgw
FoAU/YGm22TW+vf3AsB5cagsJcHcPJAwDwYDVR0TAQH/BAUwAwEB/zAFBgMrZXAD
QQBkyuR3dIUVhIr4rOYCte4FwlJrxXy+Yohwor+CHvZlmkkViGH1W0+g3d+ugWe1
nb3HFOyEXRJsMawTCF1fb7EE
-----END CERTIFICATE-----
"""
"""Of the key above, as a server and as an authority."""
_FILES = (
    f"{_CERTIFICATE}\0{_KEY_FILE}\0{_CERTIFICATE}",
    f"{_CERTIFICATE * 2}\0# a key\n{_KEY_FILE}\0{_CERTIFICATE * 2}",
)
_PARAMETERS = (
    Parameter("limit", "", is_number=True, least=1, most=1000),
    Parameter("since_ms", "", is_number=True),
    Parameter("node", "", is_repeatable=True),
    Parameter("severity", "", values=("minor", "major")),
)


@cache
def loop() -> asyncio.AbstractEventLoop:
    """Return one loop for all inputs: to begin with a new one costs more than most of them."""
    result = asyncio.new_event_loop()
    atexit.register(result.close)
    return result


class _Transport(asyncio.Transport):
    """Records what is written; nothing is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self._is_closing = False

    @override
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.1", 1) if name in ("peername", "sockname") else default

    @override
    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    @override
    def close(self) -> None:
        self._is_closing = True

    abort = close

    @override
    def is_closing(self) -> bool:
        return self._is_closing

    @override
    def pause_reading(self) -> None:
        pass

    @override
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


async def _received(*parts: bytes) -> tuple[bool, bytes]:
    """Return whether these parts are a whole request, and what was answered to what is none."""
    rate = RequestRate(RateLimits(per_second=0.001, burst=0))
    connections = Connections(ListenerLimits(), rate, Counts())
    connection = HttpConnection(connections, cast("web.Server", None))
    transport = _Transport()
    connection.connection_made(transport)
    for part in parts:
        if not transport.is_closing():
            connection.data_received(part)
    has_request = connection.has_request
    connection.connection_lost(None)
    rate.close()
    connections.close()
    return has_request, transport.written


def _head(text: str) -> None:
    """Check that a request is whole, or refused, wherever it is cut."""
    data = text.encode("utf-8", "replace")
    has_request, answer = loop().run_until_complete(_received(data))
    for middle in (len(data) // 2, max(0, data.find(b"\r\n\r\n") + 2)):
        again, refusal = loop().run_until_complete(_received(data[:middle], data[middle:]))
        # Its first part alone may be refused, such as one with a bare line feed.
        assert again == has_request or answer or refusal
    if has_request:
        assert not answer
        assert b"\r\n\r\n" in data
        return
    assert answer or len(data) <= MAX_HEAD_BYTES
    assert not answer or answer.startswith(b"HTTP/1.1 4")
    raise VigilError("is no whole request")


@cache
def _site() -> tuple[web.Application, Any]:
    async def page(request: web.Request) -> web.Response:
        if "limit" in request.query:
            assert 1 <= int(request.query["limit"]) <= 1000
        assert request.query.get("severity", "minor") in ("minor", "major")
        return web.Response()

    application = web.Application()
    application.router.add_get("/page", page)
    return application, parameter_check({"/page": _PARAMETERS})


def _query(text: str) -> None:
    application, check = _site()
    # A request line has no such characters: aiohttp's parser refuses them before.
    path = "/page?" + "".join(letter for letter in text if letter.isprintable() and letter != " ")
    request = make_mocked_request("GET", path.encode("utf-8", "replace").decode(), app=application)

    async def answered() -> web.StreamResponse:
        match = await application.router.resolve(request)
        request._match_info = match
        answer: web.StreamResponse = await check(request, match.handler)
        return answer

    answer = loop().run_until_complete(answered())
    assert answer.status in (200, 400)
    if answer.status == 400:
        raise VigilError("is refused")


def _users(text: str) -> None:
    """Check that each line is a user, a comment or a problem that does not repeat it."""
    data = text.encode("utf-8", "replace")
    users, problems = parsed(data)
    assert all(name and len(digest) == len(_STORED) for name, digest in users.items())
    assert len(users) + len(problems) <= data.count(b"\n") + 1
    assert all(_STORED[10:] not in problem for _, problem in problems)
    if problems:
        raise VigilError(problems[0][1])


@cache
def _directory() -> Path:
    directory = TemporaryDirectory()
    atexit.register(directory.cleanup)
    path = Path(directory.name)
    for name in ("certificate", "key", "client_ca"):
        (path / name).touch(0o600)
    return path


def _tls_files(text: str) -> None:
    """Check that an authority is in files that are taken."""
    paths = [_directory() / name for name in ("certificate", "key", "client_ca")]
    data = text.encode("utf-8", "replace").split(b"\0", 2)
    for path, content in zip(paths, [*data, b"", b""], strict=False):
        path.write_bytes(content)
    context = PagesTls(*paths).context()
    assert context.get_ca_certs()


PARSERS: dict[str, tuple[tuple[str, ...], Callable[[str], None]]] = {
    "http-head": (_HEADS, _head),
    "page-parameters": (_QUERIES, _query),
    "users-file": (_USERS, _users),
    "tls-files": (_FILES, _tls_files),
}
"""By name: good inputs, and the function that checks."""
