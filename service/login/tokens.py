"""Bearer tokens of Kubernetes as logins of the pages, as the API server reviews them.

The API server states whose token it is (TokenReview), and whether that user may get the page
(SubjectAccessReview). At most five reviews begin in a second, and answers are remembered, so a
flood of tokens does not reach the API server.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import secrets
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from contract.errors import StoreError
from service.http.connections import RateLimits, Turns
from service.http.counts import LoginResult
from service.log.ongoing_failure import OngoingFailure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from stores.kubernetes_api.access import TokenReviews, TokenUser

_log = logging.getLogger(__name__)

# RFC 6750, section 2.1.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_GRANTED_SECONDS = 60.0
_REFUSED_SECONDS = 10.0
# The kubelet and ``vigil`` give an answer 5 to 10 s.
_REVIEW_TIMEOUT_SECONDS = 4.0
_MAX_WAITING = 8
_LIMITS = RateLimits(per_second=5.0, burst=1, at_once=4)

K = TypeVar("K")
T = TypeVar("T")


class TokenResult(NamedTuple):
    """What came of a token; ``reason`` is for the client, and empty for a right one."""

    result: LoginResult
    reason: str = ""


class _Kept(NamedTuple, Generic[T]):
    value: T
    until: float


class TokenChecks:
    """Checks tokens for ``audience`` by ``reviews``, which its owner closes."""

    def __init__(self, reviews: TokenReviews, audience: str) -> None:
        self._reviews = reviews
        self._audience = audience
        self._loop = asyncio.get_running_loop()
        self._turns = Turns(_LIMITS, _MAX_WAITING)
        # A hash without it shows nothing of a token, and it ends with the process.
        self._key = secrets.token_bytes(32)
        self._users: dict[bytes, _Kept[TokenUser | None]] = {}
        self._rights: dict[tuple[bytes, str], _Kept[bool]] = {}
        self._failure = OngoingFailure(
            _log,
            "tokens of clients of the pages cannot be reviewed: %s",
            "tokens of clients of the pages can be reviewed again",
        )

    def remembered(self, token: str, path: str) -> TokenResult | None:
        """Return what came of this token and path lately; ``None`` where it must be reviewed."""
        digest = self._digest(token)
        user = self._current(self._users, digest)
        if user is None:
            return None
        if user.value is None:
            return self._wrong()
        may_get = self._current(self._rights, (digest, path))
        return None if may_get is None else _of_user(user.value, path, may_get=may_get.value)

    async def check(self, token: str, path: str, address: str) -> TokenResult:
        """Return whether the client at ``address`` may get the page at ``path``."""
        if not _TOKEN.fullmatch(token):
            return self._wrong()
        digest = self._digest(token)
        try:
            user = await self._answer(
                self._users,
                digest,
                lambda: self._reviews.authenticate(token, self._audience),
                address,
            )
            if user is None:
                return self._wrong()
            may_get = await self._answer(
                self._rights,
                (digest, path),
                lambda: self._reviews.may_get(user, path),
                address,
            )
        except _BusyError:
            return TokenResult(LoginResult.BUSY)
        except (StoreError, TimeoutError) as error:
            reason = str(error) or f"no answer within {_REVIEW_TIMEOUT_SECONDS:g} s"
            self._failure.record_failure(reason)
            return TokenResult(LoginResult.UNREVIEWED, f"the token cannot be reviewed: {reason}")
        return _of_user(user, path, may_get=may_get)

    def close(self) -> None:
        """Review nothing more."""
        self._turns.close()

    async def _answer(
        self,
        cache: dict[K, _Kept[T]],
        key: K,
        review: Callable[[], Awaitable[T]],
        address: str,
    ) -> T:
        """Return what is kept, or else what ``review`` returns in its turn."""
        if (answer := self._current(cache, key)) is not None:
            return answer.value
        if not await self._turns.take(address):
            raise _BusyError
        try:
            # Another request with the same token may have been reviewed meanwhile.
            if (answer := self._current(cache, key)) is not None:
                return answer.value
            async with asyncio.timeout(_REVIEW_TIMEOUT_SECONDS):
                value = await review()
        finally:
            self._turns.done()
        self._failure.end()
        now = self._loop.time()
        # Five reviews a second are 300 values at most.
        for ended in [other for other, answer in cache.items() if answer.until <= now]:
            del cache[ended]
        cache[key] = _Kept(value, now + (_GRANTED_SECONDS if value else _REFUSED_SECONDS))
        return value

    def _digest(self, token: str) -> bytes:
        # A header is text with surrogates where it is no UTF-8.
        text = token.encode(errors="surrogateescape")
        return hashlib.blake2b(text, key=self._key, digest_size=32).digest()

    def _wrong(self) -> TokenResult:
        reason = f"the token is not valid, or not for the audience {self._audience}"
        return TokenResult(LoginResult.WRONG, reason)

    def _current(self, cache: dict[K, _Kept[T]], key: K) -> _Kept[T] | None:
        answer = cache.get(key)
        return answer if answer is not None and self._loop.time() < answer.until else None


class _BusyError(Exception):
    """Too many reviews wait for their turns."""


def _of_user(user: TokenUser, path: str, *, may_get: bool) -> TokenResult:
    if may_get:
        return TokenResult(LoginResult.RIGHT)
    reason = f"{user.username} may not get the path {path}; grant it by nonResourceURLs"
    return TokenResult(LoginResult.FORBIDDEN, reason)
