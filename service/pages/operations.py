"""The pages of a daemon as data: their paths, parameters and answers.

From it come the checks of each request and the OpenAPI document (``GET /api/v1/openapi.json``,
OpenAPI 3.1).
"""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from service.pages.compression import compressing
from service.pages.daemon_pages import json_response

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from aiohttp.typedefs import Handler, Middleware

PATH = "/api/v1/openapi.json"
LARGEST_NUMBER = (1 << 63) - 1


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
    most: int = LARGEST_NUMBER
    values: tuple[str, ...] = ()

    @property
    def schema(self) -> dict[str, Any]:
        """Return what it may be, as JSON schema."""
        one: dict[str, Any] = {"type": "string"}
        if self.is_number:
            one = {"type": "integer", "minimum": self.least, "maximum": self.most}
        elif self.values:
            one["enum"] = list(self.values)
        return {"type": "array", "items": one} if self.is_repeatable else one

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
        is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(LARGEST_NUMBER))
        return is_number and self.least <= int(text) <= self.most


class Operation(msgspec.Struct, frozen=True):
    """One page. ``refusals`` are the statuses of a ``Refusal``; 400 is one everywhere."""

    path: str
    about: str
    answer: Any
    parameters: tuple[Parameter, ...] = ()
    refusals: tuple[int, ...] = ()
    content: str = "application/json"
    or_else: tuple[Any, ...] = ()
    """What else an answer may be; with several events of a stream, one of them."""


def serve(
    pages: web.Application, title: str, version: str, operations: Sequence[Operation]
) -> None:
    """Serve the OpenAPI document of ``operations``, and refuse what they do not describe.

    ``/`` lists all pages for people.
    """
    list_of_pages = "\n".join(_lines(title, version, operations))

    @cache
    def document() -> msgspec.Raw:
        return msgspec.Raw(msgspec.json.encode(description(title, version, operations)))

    async def show(_: web.Request) -> web.Response:
        # It takes as long as many other answers together, and few ask for it.
        return json_response(await asyncio.to_thread(document))

    async def index(_: web.Request) -> web.Response:
        return web.Response(text=list_of_pages)

    pages.router.add_get("/", index)
    pages.router.add_get(PATH, show)
    pages.middlewares.extend((compressing(), _refusing(operations)))


def _lines(title: str, version: str, operations: Iterable[Operation]) -> Iterator[str]:
    """Yield the list of pages, one in a line."""
    listed = {
        "/healthz": "Whether a task of this daemon stalls",
        "/readyz": "Whether this daemon is ready, and why not",
        "/metrics": "Metrics for Prometheus",
        PATH: "Parameters and answers of the pages below, as OpenAPI 3.1",
        **{one.path: one.about for one in operations},
    }
    yield f"{title} {version}"
    yield "For people: vigil status, vigil faults, vigil explain, vigil timeline"
    yield ""
    width = max(map(len, listed))
    for path, about in listed.items():
        yield f"{path:{width}}  {about}"
    yield ""


def _refusing(operations: Iterable[Operation]) -> Middleware:
    """Answer 400 to a parameter that a page does not have, or to a wrong value of one."""
    parameters: Mapping[str, Mapping[str, Parameter]] = {
        one.path: {known.name: known for known in one.parameters if known.place == "query"}
        for one in operations
    } | {PATH: {}}

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        resource = request.match_info.route.resource
        known = None if resource is None else parameters.get(resource.canonical)
        if known is None:
            return await handler(request)
        if request.query.keys() - known.keys():
            these = f"known are {', '.join(sorted(known))}" if known else "this page takes none"
            return refused(f"that is no parameter; {these}", 400)
        for name in sorted(known):
            problem = known[name].problem(request.query.getall(name, ()))
            if problem is not None:
                return refused(problem, 400)
        return await handler(request)

    return check


def refused(why: str, status: int) -> web.Response:
    """Return the answer that there is none."""
    return json_response(Refusal(why), status)


def description(title: str, version: str, operations: Iterable[Operation]) -> dict[str, Any]:
    """Return the OpenAPI document of ``operations``."""
    operations = tuple(operations)
    types = {one.answer for one in operations} | {Refusal}
    types |= {other for one in operations for other in one.or_else}
    listed = sorted(types, key=lambda one: str(one.__name__))
    schemas, components = msgspec.json.schema_components(
        listed, ref_template="#/components/schemas/{name}"
    )
    found = dict(zip(listed, schemas, strict=True))
    refusal = found[Refusal]
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "paths": {
            one.path: {"get": _operation(one, _answer(one, found), refusal)} for one in operations
        },
        "components": {"schemas": components},
    }


def _answer(one: Operation, schemas: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    if not one.or_else:
        return schemas[one.answer]
    return {"anyOf": [schemas[kind] for kind in (one.answer, *one.or_else)]}


def _operation(one: Operation, answer: object, refusal: object) -> dict[str, Any]:
    statuses: dict[str, Any] = {
        "200": {"description": one.about, "content": {one.content: {"schema": answer}}}
    }
    for status in sorted({400, *one.refusals}):
        statuses[str(status)] = {
            "description": "Refused; the answer has the reason",
            "content": {"application/json": {"schema": refusal}},
        }
    return {
        "summary": one.about,
        "parameters": [
            {
                "name": parameter.name,
                "in": parameter.place,
                "required": parameter.place == "path",
                "description": parameter.about,
                "schema": parameter.schema,
            }
            for parameter in one.parameters
        ],
        "responses": statuses,
    }
