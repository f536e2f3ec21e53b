"""Answers with many rows: filtered, page by page, made in slices, and not sent twice.

``ETag`` is of the rows without what passes with time alone, so a client that sends it as
``If-None-Match`` gets 304 while nothing changed. ``stream`` is the id of the newest event of the
stream that the rows contain: it is taken before the first of them is made.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec
from aiohttp import hdrs, web

from contract.validation_texts import decode_text
from service.pages.daemon_pages import is_kept
from service.pages.parameters import Parameter, refused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from service.pages.event_stream import Stream

T = TypeVar("T", bound=msgspec.Struct)

PAGING = (
    Parameter("limit", "At most so many rows", is_number=True, least=1, most=10_000),
    Parameter("continue", "What comes behind the answer before: its continue"),
)
SLICE_ROWS = 200
"""About 2 ms for the most expensive rows, those of nodes."""


class PageRows(Generic[T]):
    """The rows of a page: ``name`` of their list, and what orders them.

    ``passing`` are values for the members that time alone changes. ``filters`` are parameters of
    the page, each with the values of a row that one of those asked for must equal.
    """

    def __init__(
        self,
        name: str,
        key: Callable[[T], tuple[str, ...]],
        filters: Mapping[str, Callable[[T], tuple[str | None, ...]]],
        passing: Mapping[str, None] | None = None,
    ) -> None:
        self.name = name
        self.key = key
        self._filters = filters
        self._passing = passing or {}

    async def chosen(self, rows: Iterable[T], request: web.Request) -> AsyncIterator[T]:
        """Yield the rows that ``request`` asks for; other tasks run after each slice of rows."""
        filters = [
            (values, frozenset(request.query.getall(name)))
            for name, values in self._filters.items()
            if name in request.query
        ]
        for number, row in enumerate(rows):
            if number % SLICE_ROWS == SLICE_ROWS - 1:
                await asyncio.sleep(0)
            if all(not wanted.isdisjoint(values(row)) for values, wanted in filters):
                yield row

    def lasting(self, row: T) -> T:
        """Return ``row`` without what passes with time alone."""
        return msgspec.structs.replace(row, **self._passing) if self._passing else row


async def snapshot(
    request: web.Request,
    rows: Iterable[T],
    about: PageRows[T],
    stream: Stream,
    at_ms: int,
    **head: object,
) -> web.Response:
    """Return the page of those of ``rows`` that are asked for; they come in the order of keys."""
    query = request.query
    try:
        after = _key_of(query["continue"]) if "continue" in query else None
    except ValueError:
        return refused("continue is not that of an answer", 400)
    limit = int(query["limit"]) if "limit" in query else None
    start = msgspec.json.encode({"at_ms": at_ms, "stream": stream.last_id, **head})
    digest = hashlib.blake2b(digest_size=12)
    parts: list[bytes] = []
    last: tuple[str, ...] | None = None
    more = b"null"
    async for row in about.chosen(rows, request):
        if after is not None and about.key(row) <= after:
            continue
        # Rows with one key stay together, so that none is lost between two pages.
        if limit is not None and len(parts) >= limit and about.key(row) != last:
            assert last is not None, "the limit is at least 1"
            more = msgspec.json.encode(base64.urlsafe_b64encode(msgspec.json.encode(last)).decode())
            break
        if limit is not None:
            last = about.key(row)
        text = msgspec.json.encode(row)
        lasting = about.lasting(row)
        digest.update(text if lasting is row else msgspec.json.encode(lasting))
        parts.append(text)
    digest.update(more)
    tag = f'W/"{digest.hexdigest()}"'
    if is_kept(request, digest.hexdigest()):
        return web.Response(status=304, headers={hdrs.ETAG: tag})
    body = b'%s,"%s":[%s],"continue":%s}\n' % (
        start[:-1],
        about.name.encode(),
        b",".join(parts),
        more,
    )
    headers = {hdrs.ETAG: tag, hdrs.CONTENT_TYPE: "application/json"}
    return web.Response(body=body, headers=headers)


def _key_of(token: str) -> tuple[str, ...]:
    """Return the key in a token. Raises ``ValueError``."""
    try:
        text = base64.b64decode(token.encode(), altchars=b"-_", validate=True)
        return msgspec.json.decode(text, type=tuple[str, ...])
    except (binascii.Error, msgspec.MsgspecError, UnicodeError) as error:
        raise ValueError(decode_text(error)) from None
