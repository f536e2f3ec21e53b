"""Parameters of pages: a wrong value, or a parameter that a page does not have, is answered 400."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from service.pages.daemon_pages import json_response

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiohttp.typedefs import Handler, Middleware

MAX_INT64 = (1 << 63) - 1


class Refusal(msgspec.Struct, frozen=True):
    """Why there is no answer."""

    error: str


class Parameter(msgspec.Struct, frozen=True):
    """One parameter of a page; ``place`` is ``query``, ``path`` or ``header``.

    A number is from ``least`` to ``most``. ``values`` are all that there are; none: any text.
    """

    name: str
    about: str
    is_number: bool = False
    place: str = "query"
    is_repeatable: bool = False
    least: int = 0
    most: int = MAX_INT64
    values: tuple[str, ...] = ()

    @property
    def schema(self) -> dict[str, Any]:
        """Return what it may be, as JSON schema."""
        single: dict[str, Any] = {"type": "string"}
        if self.is_number:
            single = {"type": "integer", "minimum": self.least, "maximum": self.most}
        elif self.values:
            single["enum"] = list(self.values)
        return {"type": "array", "items": single} if self.is_repeatable else single

    def problem(self, texts: Sequence[str]) -> str | None:
        """Return why these values of it are wrong; ``None`` where they are right."""
        if len(texts) > 1 and not self.is_repeatable:
            return f"{self.name} is given more than once"
        for text in texts:
            if self.is_number and not self._is_in_range(text):
                return f"{self.name} is no number from {self.least} to {self.most}"
            if self.values and text not in self.values:
                return f"{self.name} has no such value; known are {', '.join(self.values)}"
        return None

    def _is_in_range(self, text: str) -> bool:
        is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_INT64))
        return is_number and self.least <= int(text) <= self.most


def refused(reason: str, status: int) -> web.Response:
    """Return the answer that there is none."""
    return json_response(Refusal(reason), status)


def parameter_check(pages: Mapping[str, Sequence[Parameter]]) -> Middleware:
    """Answer 400 to a parameter that a page does not have, or to a wrong value of one.

    ``pages`` has the parameters of each path; other paths are not checked.
    """
    parameters = {
        path: {parameter.name: parameter for parameter in all_known if parameter.place == "query"}
        for path, all_known in pages.items()
    }

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        resource = request.match_info.route.resource
        allowed = None if resource is None else parameters.get(resource.canonical)
        if allowed is None:
            return await handler(request)
        if request.query.keys() - allowed.keys():
            these = f"known are {', '.join(sorted(allowed))}" if allowed else "this page takes none"
            return refused(f"that is no parameter; {these}", 400)
        for name in sorted(allowed):
            problem = allowed[name].problem(request.query.getall(name, ()))
            if problem is not None:
                return refused(problem, 400)
        return await handler(request)

    return check
