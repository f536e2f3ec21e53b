"""Compresses JSON answers for clients that accept gzip.

A large answer is compressed in a thread, and one at a time: zlib lets the loop run meanwhile, and
many clients cannot take more than one core.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from typing import TYPE_CHECKING

from aiohttp import hdrs, web

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp.typedefs import Handler, Middleware

_MIN_BYTES = 1024
_LARGE_BYTES = 32 << 10
_LEVEL = 1
"""Higher levels take several times as long for answers that are a third smaller."""
_GZIP_WINDOW = 31
_NOT_AT_ALL = re.compile(r"\s*q\s*=\s*0(\.0*)?\s*")


def compressing() -> Middleware:
    """Return what compresses the JSON answers of one application."""
    turn = asyncio.Semaphore()

    @web.middleware
    async def compress(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        if not isinstance(response, web.Response) or response.content_type != "application/json":
            return response
        if hdrs.CONTENT_ENCODING in response.headers:
            return response
        response.headers[hdrs.VARY] = hdrs.ACCEPT_ENCODING
        body = response.body
        if not isinstance(body, bytes) or len(body) < _MIN_BYTES:
            return response
        if accepts_gzip(request.headers.get(hdrs.ACCEPT_ENCODING, "")):
            if len(body) < _LARGE_BYTES:
                response.body = packed(body)
            else:
                async with turn:
                    response.body = await asyncio.to_thread(packed, body)
            response.headers[hdrs.CONTENT_ENCODING] = "gzip"
        return response

    return compress


def accepts_gzip(header: str) -> bool:
    """Return whether a client with this ``Accept-Encoding`` takes gzip (RFC 9110, 12.5.3)."""
    codings = {}
    for part in header.lower().split(","):
        coding, _, weight = part.partition(";")
        codings[coding.strip()] = _NOT_AT_ALL.fullmatch(weight) is None
    return codings.get("gzip", codings.get("*", False))


def packed_answer(
    request: web.Request, plain: bytes, packed_body: bytes, headers: Mapping[str, str]
) -> web.Response:
    """Answer with ``headers`` and the form of a body, kept in both, that the client takes."""
    if accepts_gzip(request.headers.get(hdrs.ACCEPT_ENCODING, "")):
        headers = {**headers, hdrs.CONTENT_ENCODING: "gzip"}
        return web.Response(body=packed_body, headers=headers)
    return web.Response(body=plain, headers=headers)


def packed(body: bytes, level: int = _LEVEL) -> bytes:
    """Return ``body`` as gzip, at a ``level`` of zlib."""
    packer = zlib.compressobj(level, zlib.DEFLATED, _GZIP_WINDOW)
    return packer.compress(body) + packer.flush()
