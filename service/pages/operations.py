"""The pages of a daemon as data: their paths, parameters and answers.

The checks of requests (``parameters.py``) and the OpenAPI document (``GET /api/v1/openapi.json``,
OpenAPI 3.1) are made of it.
"""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import hdrs, web

from service.pages.browser_page import FILE_PATH, asks_for_html
from service.pages.compression import compressing
from service.pages.daemon_pages import json_response
from service.pages.parameters import Parameter, Refusal, parameter_check

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from service.pages.browser_page import BrowserPage


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
    pages: web.Application,
    title: str,
    version: str,
    operations: Sequence[Operation],
    browser: BrowserPage,
) -> None:
    """Serve the OpenAPI document of ``operations``, and refuse what they do not describe.

    ``/`` lists all pages, and is the page of ``browser`` for browsers.
    """
    list_of_pages = "\n".join(_lines(title, version, operations))

    @cache
    def document() -> msgspec.Raw:
        return msgspec.Raw(msgspec.json.encode(description(title, version, operations)))

    async def show(_: web.Request) -> web.Response:
        # It takes as long as many other answers together, and few ask for it.
        return json_response(await asyncio.to_thread(document))

    async def index(request: web.Request) -> web.Response:
        if asks_for_html(request):
            return browser.index(request)
        return web.Response(text=list_of_pages, headers={hdrs.VARY: hdrs.ACCEPT})

    parameters = {operation.path: operation.parameters for operation in operations} | {PATH: ()}
    pages.router.add_get("/", index)
    pages.router.add_get(FILE_PATH, browser.file)
    pages.router.add_get(PATH, show)
    pages.middlewares.extend((compressing(), parameter_check(parameters)))


def _lines(title: str, version: str, operations: Iterable[Operation]) -> Iterator[str]:
    """Yield the list of pages, one in a line."""
    listed = {
        "/healthz": "Whether a task of this daemon stalls",
        "/readyz": "Whether this daemon is ready, and why not",
        "/metrics": "Metrics for Prometheus",
        PATH: "Parameters and answers of the pages below, as OpenAPI 3.1",
        **{operation.path: operation.about for operation in operations},
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
    types = {operation.answer for operation in operations} | {Refusal}
    types |= {other for operation in operations for other in operation.or_else}
    listed = sorted(types, key=lambda kind: str(kind.__name__))
    schemas, components = msgspec.json.schema_components(
        listed, ref_template="#/components/schemas/{name}"
    )
    schema_of = dict(zip(listed, schemas, strict=True))
    refusal = schema_of[Refusal]
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "paths": {
            operation.path: {"get": _operation(operation, _answer(operation, schema_of), refusal)}
            for operation in operations
        },
        "components": {"schemas": components},
    }


def _answer(operation: Operation, schemas: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    if not operation.or_else:
        return schemas[operation.answer]
    return {"anyOf": [schemas[kind] for kind in (operation.answer, *operation.or_else)]}


def _operation(operation: Operation, answer: object, refusal: object) -> dict[str, Any]:
    statuses: dict[str, Any] = {
        "200": {"description": operation.about, "content": {operation.content: {"schema": answer}}}
    }
    for status in sorted({400, *operation.refusals}):
        statuses[str(status)] = {
            "description": "Refused; the answer has the reason",
            "content": {"application/json": {"schema": refusal}},
        }
    return {
        "summary": operation.about,
        "parameters": [
            {
                "name": parameter.name,
                "in": parameter.place,
                "required": parameter.place == "path",
                "description": parameter.about,
                "schema": parameter.schema,
            }
            for parameter in operation.parameters
        ],
        "responses": statuses,
    }
