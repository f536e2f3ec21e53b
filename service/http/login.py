"""Who may read the pages: a client with a certificate, or a user with a password.

``/healthz`` and ``/readyz`` stay open, because probes of a kubelet have no login; without one they
state only the status. Who may use the socket in the state directory has the rights of the daemon.
"""

from __future__ import annotations

import base64
import binascii
import os
import resource
import socket
import struct
from typing import TYPE_CHECKING, NoReturn

import msgspec
from aiohttp import hdrs, web

from service.http.connection import free_place
from service.http.counts import LoginResult

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

    from service.http.counts import Counts
    from service.http.tls_context import PagesTls
    from service.http.users import PasswordChecks, UsersFile

_OPEN_PAGES = {"/healthz": "healthy", "/readyz": "ready"}
_CERTIFICATE = "a client certificate of an authority in pages.client_ca_file"
_PASSWORD = "a user of pages.users_file with the password"
_CHALLENGE = 'Basic realm="NPU Vigil", charset="UTF-8"'
_BUSY = "too many logins are being compared; try again in a second"
_WRONG = "the user or the password is wrong"
_FOREIGN_UID = "this socket is for root and the user of the daemon"
# ``struct ucred`` of unix(7): the process, the user and the group of the peer.
_UCRED = struct.Struct("iII")


class Login:
    """The check of each request, where the pages need a login."""

    def __init__(self, tls: PagesTls | None, users: UsersFile | None, counts: Counts) -> None:
        self._takes_certificates = tls is not None and tls.demands_certificate
        self._users = users
        self._counts = counts
        self._passwords: PasswordChecks | None = None
        self._open: dict[int, tuple[web.Request, bytes, bytes]] = {}
        """Requests that are being answered, with user and hash, by identity: they have no hash."""
        if users is not None:
            # Imported late: most daemons serve their pages without passwords.
            from service.http.users import PasswordChecks

            self._passwords = PasswordChecks(users)
            _forbid_cores()

    async def keep_current(self, users: UsersFile) -> NoReturn:
        """Take up replaced users for ever; end what their old lines permitted."""
        await users.keep_current(self._end_replaced)

    def close(self) -> None:
        """Compare no more passwords."""
        if self._passwords is not None:
            self._passwords.close()

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer clients with a login; others get only the status of the daemon."""
        # The name of a socket is a path, and that of a lost connection is not known.
        if isinstance(request.get_extra_info("sockname"), str):
            if not _is_own_user(request):
                return _refusal(403, _FOREIGN_UID)
            return await handler(request)
        if self._takes_certificates and request.get_extra_info("peercert"):
            return await handler(request)
        login = _basic(request)
        result = None
        if login is not None and self._users is not None:
            stored = self._users.content.get(login[0])
            result = await self._result(request, *login, stored)
            self._counts.logins[result] += 1
            if result is LoginResult.RIGHT and stored is not None:
                return await self._answer(request, handler, login[0], stored)
        member = _OPEN_PAGES.get(request.path)
        if member is None:
            return self._refused(result)
        status = (await handler(request)).status
        return _json({member: status == 200}, status)

    async def _result(
        self, request: web.Request, name: bytes, password: bytes, stored: bytes | None
    ) -> LoginResult:
        assert self._passwords is not None, "there are users"
        if self._passwords.remembers(name, password, stored):
            return LoginResult.RIGHT
        # While it waits for its turn, it keeps no page from being computed.
        free_place(request)
        return await self._passwords.compare(name, password, stored, request.remote or "")

    async def _answer(
        self, request: web.Request, handler: Handler, name: bytes, stored: bytes
    ) -> web.StreamResponse:
        self._open[id(request)] = (request, name, stored)
        try:
            return await handler(request)
        finally:
            del self._open[id(request)]

    def _end_replaced(self) -> None:
        assert self._users is not None, "they were replaced"
        assert self._passwords is not None, "users have passwords"
        self._passwords.forget_replaced()
        for request, name, stored in tuple(self._open.values()):
            if self._users.content.get(name) != stored and request.transport is not None:
                request.transport.abort()

    def _refused(self, result: LoginResult | None) -> web.Response:
        if result is LoginResult.BUSY:
            return _refusal(429, _BUSY, {hdrs.RETRY_AFTER: "1"})
        kinds = []
        if self._users is not None:
            kinds.append(_PASSWORD)
        if self._takes_certificates:
            kinds.append(_CERTIFICATE)
        reason = f"this page needs {' or '.join(kinds)}"
        if result is LoginResult.WRONG:
            reason = f"{_WRONG}; {reason}"
        headers: dict[str, str] = {}
        if self._users is not None:
            headers[hdrs.WWW_AUTHENTICATE] = _CHALLENGE
        return _refusal(401, reason, headers)


def _basic(request: web.Request) -> tuple[bytes, bytes] | None:
    """Return user and password of a request (RFC 7617); ``None`` without valid ones."""
    scheme, _, text = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        decoded = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None
    name, colon, password = decoded.partition(b":")
    return (name, password) if colon else None


def _is_own_user(request: web.Request) -> bool:
    """Return whether root or the user of this process connected; the kernel has recorded it."""
    peer = request.get_extra_info("socket")
    if peer is None:
        return False
    _, uid, _ = _UCRED.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return uid in (0, os.geteuid())


def _forbid_cores() -> None:
    """Let the kernel write no core of this process, because passwords pass through its memory."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def _refusal(status: int, reason: str, headers: dict[str, str] | None = None) -> web.Response:
    response = _json({"error": reason}, status)
    response.headers.update(headers or {})
    return response


def _json(value: object, status: int) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(value) + b"\n", status=status, content_type="application/json"
    )
