"""The pages of a daemon as data: their paths, parameters and answers.

The checks of requests (``parameters.py``) and the OpenAPI document (``GET /api/v1/openapi.json``,
OpenAPI 3.1) are made of it.
"""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from service.pages.compression import compressing
from service.pages.daemon_pages import json_response
from service.pages.parameters import Parameter, Refusal, parameter_check

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


PATH = "/api/v1/openapi.json"


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

    known = {one.path: one.parameters for one in operations} | {PATH: ()}
    pages.router.add_get("/", index)
    pages.router.add_get(PATH, show)
    pages.middlewares.extend((compressing(), parameter_check(known)))


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
