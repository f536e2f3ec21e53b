"""``GET /api/v1/history``: what happened to faults, newest last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator.notify.history_file import Asked
from contract.errors import StoreError
from service.pages import json_response

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import web

    from aggregator.notify.history import ClusterHistory

PATH = "/api/v1/history"
_MOST = 10_000
_LARGEST = (1 << 63) - 1
_NUMBERS = {"since_ms": (0, _LARGEST), "after": (0, _LARGEST), "limit": (1, _MOST)}


class WrongQuery(ValueError):
    """The query cannot be understood."""


def asked_of(query: dict[str, str]) -> Asked:
    """What a query asks for. Raises ``WrongQuery``."""
    if query.keys() - _NUMBERS.keys() - {"node"}:
        raise WrongQuery(f"that is no parameter; known are {', '.join(['node', *_NUMBERS])}")
    values = {name: _number(name, query[name]) for name in _NUMBERS.keys() & query.keys()}
    return Asked(node=query.get("node") or None, **values)


def _number(name: str, text: str) -> int:
    least, most = _NUMBERS[name]
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(_LARGEST))
    if not is_number or not least <= int(text) <= most:
        raise WrongQuery(f"{name} is no number from {least} to {most}")
    return int(text)


def history_page(history: ClusterHistory) -> Callable[[web.Request], Awaitable[web.Response]]:
    """The page."""

    async def show(request: web.Request) -> web.Response:
        try:
            page = await history.page(asked_of(dict(request.query)))
        except WrongQuery as error:
            return json_response({"error": str(error)}, 400)
        except StoreError as error:
            return json_response({"error": str(error)}, 503)
        return json_response(page)

    return show
