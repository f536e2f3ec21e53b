"""The description of the API is the API."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import msgspec
import pytest

from agent.pages.routes import OPERATIONS as AGENT_OPERATIONS
from aggregator.api.operations import OPERATIONS
from aggregator.api.routes import application
from contract.pages.readiness import ReadinessPage
from service.pages.browser_page import FILE_PATH
from service.pages.event_stream import Stream
from service.pages.operations import PATH, description

if TYPE_CHECKING:
    from aiohttp import web


def pages() -> web.Application:
    return application(MagicMock(stream=Stream("x")))


def test_every_page_is_described_and_can_only_be_read() -> None:
    described = {one.path for one in OPERATIONS} | {PATH, "/", "/healthz", "/readyz", "/metrics"}
    described.add(FILE_PATH)
    routes = list(pages().router.routes())
    assert {route.resource.canonical for route in routes if route.resource} == described
    assert {route.method for route in routes} == {"GET", "HEAD"}


def test_messages_are_the_last_member_of_a_page() -> None:
    pages = {operation.answer for operation in (*OPERATIONS, *AGENT_OPERATIONS)} | {ReadinessPage}
    fields = [[field.name for field in msgspec.structs.fields(page)] for page in pages]
    with_messages = [names for names in fields if "messages" in names]
    assert len(with_messages) >= 6
    assert {names[-1] for names in with_messages} == {"messages"}


@pytest.mark.slow
def test_what_only_options_need_is_not_loaded_without_them() -> None:
    code = "import aggregator.process, sys; "
    code += "wanted = ('advisor.advise', 'advisor.what_if', 'aggregator.advising.advice', "
    code += "'aggregator.scheduler_signals.service'); "
    code += "print(*(one for one in sys.modules if one.startswith(wanted)))"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.split() == []


def _references(value: Any) -> set[str]:
    if isinstance(value, dict):
        mine = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return mine.union(*(_references(one) for one in value.values()))
    if isinstance(value, list):
        return set().union(*(_references(one) for one in value))
    return set()


def test_every_reference_leads_somewhere() -> None:
    document = description("x", "1", OPERATIONS)
    schemas = document["components"]["schemas"]
    wanted = {one.removeprefix("#/components/schemas/") for one in _references(document)}
    assert wanted
    assert wanted <= schemas.keys()
    for path, operation in document["paths"].items():
        placed = {one["name"] for one in operation["get"]["parameters"] if one["in"] == "path"}
        assert placed == {part[1:-1] for part in path.split("/") if part.startswith("{")}
