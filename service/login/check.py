"""Who may read the pages: a client with a certificate, a user with a password, or a token.

``/healthz`` and ``/readyz`` stay open, because probes of a kubelet have no login; without one they
state only the status. Who may use the socket in the state directory has the rights of the daemon.
"""

from __future__ import annotations

import asyncio
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
from service.login.client import PROXIED_AUTHORIZATION

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiohttp.typedefs import Handler

    from service.http.counts import Counts
    from service.login.tokens import TokenChecks, TokenResult
    from service.login.users import PasswordChecks, UsersFile
    from service.tls.files import PagesTls

_OPEN_PAGES = {"/healthz": "healthy", "/readyz": "ready"}
_CERTIFICATE = "a client certificate of an authority in pages.client_ca_file"
_PASSWORD = "a user of pages.users_file with the password"
_TOKEN = "a token of a user who may get its path"
_BASIC_CHALLENGE = 'Basic realm="NPU Vigil", charset="UTF-8"'
_BEARER_CHALLENGE = 'Bearer realm="NPU Vigil"'
_BUSY = "too many logins are being checked; try again in a second"
_WRONG = "the user or the password is wrong"
_FOREIGN_UID = "this socket is for root and the user of the daemon"
# ``struct ucred`` of unix(7): the process, the user and the group of the peer.
_UCRED = struct.Struct("iII")
_TOKEN_PERIOD_SECONDS = 5.0


class Login:
    """The check of each request, where the pages need a login."""

    def __init__(
        self,
        tls: PagesTls | None,
        users: UsersFile | None,
        tokens: TokenChecks | None,
        counts: Counts,
    ) -> None:
        self._takes_certificates = tls is not None and tls.demands_certificate
        self._users = users
        self._tokens = tokens
        self._counts = counts
        self._passwords: PasswordChecks | None = None
        self._open: dict[int, tuple[web.Request, bytes, bytes]] = {}
        """Requests that are being answered, with user and hash, by identity: they have no hash."""
        self._open_by_token: dict[int, tuple[web.Request, str]] = {}
        """The same with their tokens."""
        if users is not None:
            # Imported late: most daemons serve their pages without passwords.
            from service.login.users import PasswordChecks

            self._passwords = PasswordChecks(users)
        if users is not None or tokens is not None:
            _forbid_cores()

    async def keep_current(self, users: UsersFile) -> NoReturn:
        """Take up replaced users for ever; end what their old lines permitted."""
        await users.keep_current(self._end_replaced)

    async def keep_reviewed(self, tokens: TokenChecks) -> NoReturn:
        """End for ever what tokens permitted that are right no longer."""
        while True:
            await asyncio.sleep(_TOKEN_PERIOD_SECONDS)
            for identity, (request, token) in tuple(self._open_by_token.items()):
                result = (await tokens.check(token, request.path, "")).result
                # It may have been answered meanwhile. A busy check is repeated in the next round.
                if result in (LoginResult.RIGHT, LoginResult.BUSY):
                    continue
                if identity in self._open_by_token and request.transport is not None:
                    request.transport.abort()

    def close(self) -> None:
        """Compare no more passwords, and review no more tokens."""
        if self._passwords is not None:
            self._passwords.close()
        if self._tokens is not None:
            self._tokens.close()

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
        login, token = _basic(request), _bearer(request)
        result, reason = None, ""
        if login is not None and self._users is not None:
            stored = self._users.content.get(login[0])
            result = await self._result(request, *login, stored)
            self._counts.logins[result] += 1
            if result is LoginResult.RIGHT and stored is not None:
                return await self._answer(request, handler, login[0], stored)
        elif token is not None and self._tokens is not None:
            result, reason = await _token_result(self._tokens, request, token)
            self._counts.logins[result] += 1
            if result is LoginResult.RIGHT:
                return await self._answer_token(request, handler, token)
        member = _OPEN_PAGES.get(request.path)
        if member is None:
            return self._refused(result, reason)
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

    async def _answer_token(
        self, request: web.Request, handler: Handler, token: str
    ) -> web.StreamResponse:
        self._open_by_token[id(request)] = (request, token)
        try:
            return await handler(request)
        finally:
            del self._open_by_token[id(request)]

    def _end_replaced(self) -> None:
        assert self._users is not None, "they were replaced"
        assert self._passwords is not None, "users have passwords"
        self._passwords.forget_replaced()
        for request, name, stored in tuple(self._open.values()):
            if self._users.content.get(name) != stored and request.transport is not None:
                request.transport.abort()

    def _refused(self, result: LoginResult | None, reason: str) -> web.Response:
        """Return the answer to a client without a right login; ``reason`` is that of its token."""
        if result is LoginResult.BUSY:
            return _refusal(429, _BUSY, [(hdrs.RETRY_AFTER, "1")])
        if result is LoginResult.FORBIDDEN:
            return _refusal(403, reason)
        if result is LoginResult.UNREVIEWED:
            return _refusal(503, reason)
        kinds, challenges = [], []
        if self._users is not None:
            kinds.append(_PASSWORD)
            challenges.append((hdrs.WWW_AUTHENTICATE, _BASIC_CHALLENGE))
        if self._tokens is not None:
            kinds.append(_TOKEN)
            challenges.append((hdrs.WWW_AUTHENTICATE, _BEARER_CHALLENGE))
        if self._takes_certificates:
            kinds.append(_CERTIFICATE)
        needs = f"this page needs {' or '.join(kinds)}"
        if result is LoginResult.WRONG:
            needs = f"{reason or _WRONG}; {needs}"
        return _refusal(401, needs, challenges)


async def _token_result(tokens: TokenChecks, request: web.Request, token: str) -> TokenResult:
    remembered = tokens.remembered(token, request.path)
    if remembered is not None:
        return remembered
    # As for a password that is compared.
    free_place(request)
    return await tokens.check(token, request.path, request.remote or "")


def _basic(request: web.Request) -> tuple[bytes, bytes] | None:
    """Return user and password of a request (RFC 7617); ``None`` without valid ones."""
    scheme, _, text = _authorization(request).partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        decoded = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None
    name, colon, password = decoded.partition(b":")
    return (name, password) if colon else None


def _bearer(request: web.Request) -> str | None:
    """Return the token of a request (RFC 6750); ``None`` without one."""
    scheme, _, token = _authorization(request).partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _authorization(request: web.Request) -> str:
    """Return the header of a login, sent to the daemon itself or through an API server."""
    headers = request.headers
    return headers.get(PROXIED_AUTHORIZATION) or headers.get(hdrs.AUTHORIZATION) or ""


def _is_own_user(request: web.Request) -> bool:
    """Return whether root or the user of this process connected; the kernel has recorded it."""
    peer = request.get_extra_info("socket")
    if peer is None:
        return False
    _, uid, _ = _UCRED.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return uid in (0, os.geteuid())


def _forbid_cores() -> None:
    """Let the kernel write no core of this process, because logins pass through its memory."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def _refusal(status: int, reason: str, headers: Iterable[tuple[str, str]] = ()) -> web.Response:
    response = _json({"error": reason}, status)
    # Not ``update``: a header may be there twice.
    response.headers.extend(headers)
    return response


def _json(value: object, status: int) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(value) + b"\n", status=status, content_type="application/json"
    )
