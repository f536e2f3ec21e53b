"""Server-sent events over a real connection."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING
from unittest.mock import AsyncMock

import msgspec
import pytest
from aiohttp import ClientSession, TCPConnector, web
from aiohttp.test_utils import TestClient, TestServer

from advisor.options import Profile
from advisor.report import Action, JobDecision, WorkloadKind
from aggregator.advising.status import AdviceChange
from contract.pages.changes import FaultChange, JobChange
from contract.sentences import sentence
from service.pages.event_stream import PATH, Stream
from tests.parts.deadlines import patience, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiohttp import ClientResponse


def send(stream: Stream, *changes: FaultChange) -> None:
    for one in changes:
        stream.send("change", one, {one.node})


def change(number: int, node: str = "n1") -> FaultChange:
    return FaultChange(node, number, "Ascend910-3", "80E01801", None, "RestartNPU")


@pytest.fixture
def stream() -> Stream:
    return Stream("run")


@pytest.fixture
async def client(stream: Stream) -> AsyncIterator[TestClient[web.Request, web.Application]]:
    pages = web.Application()
    pages.router.add_get(PATH, stream.serve)
    connector = TCPConnector(limit=0)
    async with TestClient(TestServer(pages), connector=connector) as opened:
        yield opened


class Listening:
    """Reads events from an answer."""

    def __init__(self, answer: ClientResponse) -> None:
        self._answer = answer

    async def event(self) -> tuple[str, str, dict[str, object]]:
        """Return id, name and data of the next event."""
        fields: dict[str, str] = {}
        while True:
            line = (await asyncio.wait_for(self._answer.content.readline(), patience(10))).decode()
            if line == "\n" and "event" in fields:
                return fields.get("id", ""), fields["event"], json.loads(fields["data"])
            name, _, value = line.strip().partition(": ")
            if name:
                fields[name] = value

    async def ended(self) -> None:
        """Wait until the server has ended the answer."""
        async with asyncio.timeout(patience(30)):
            while await self._answer.content.readline():
                pass


async def listening(
    client: TestClient[web.Request, web.Application], stream: Stream, last: str = "", **query: str
) -> Listening:
    before = stream.clients
    headers = {"Last-Event-ID": last} if last else {}
    answer = await client.get(PATH, params=query, headers=headers)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/event-stream"
    assert stream.clients == before + 1
    return Listening(answer)


async def test_changes_arrive_in_order(
    client: TestClient[web.Request, web.Application], stream: Stream
) -> None:
    everything = await listening(client, stream)
    one_node = await listening(client, stream, node="n2")
    send(stream, change(1), change(2, "n2"))
    assert await everything.event() == (
        "run-1",
        "change",
        {
            "node": "n1",
            "at_ms": 1,
            "subject": "Ascend910-3",
            "code": "80E01801",
            "was": None,
            "level": "RestartNPU",
            "severity": None,
            "device_fault": None,
            "severity_source": None,
        },
    )
    assert (await everything.event())[0] == "run-2"
    assert (await one_node.event())[0] == "run-2"


async def test_a_sentence_is_sent_in_english(
    client: TestClient[web.Request, web.Application], stream: Stream
) -> None:
    reader = await listening(client, stream)
    hit = sentence("rank 0, {pod}, is hit", pod="a")
    decision = JobDecision("ns", "ns/j", WorkloadKind.VCJOB, Action.NONE, "D10", (), hit)
    stream.send("advice", AdviceChange("n1", 1, Profile.UPSTREAM, "ns/j", decision), {"n1"})
    _, name, data = await reader.event()
    assert name == "advice"
    assert msgspec.convert(data["decision"], JobDecision).why == "rank 0, a, is hit"


async def test_reconnected_client_gets_missed_events(
    client: TestClient[web.Request, web.Application], stream: Stream
) -> None:
    send(stream, *(change(number) for number in range(5)))
    back = await listening(client, stream, last="run-3")
    assert [(await back.event())[0] for _ in range(2)] == ["run-4", "run-5"]


@pytest.mark.parametrize(("came", "last"), [(350, 120), (350, 299), (350, 300), (10_150, 150)])
async def test_missed_events_come_in_order_from_long_ago(
    client: TestClient[web.Request, web.Application], stream: Stream, came: int, last: int
) -> None:
    send(stream, *(change(number, f"n{number % 50}") for number in range(1, came + 1)))
    back = await listening(client, stream, last=f"run-{last}", node="n7")
    expected = [number for number in range(last + 1, came + 1) if number % 50 == 7]
    events = [await back.event() for _ in expected[:100]]
    assert [data["at_ms"] for _, _, data in events] == expected[:100]


@pytest.mark.slow
def test_the_events_of_days_take_less_than_a_megabyte(stream: Stream) -> None:
    tracemalloc.start()
    try:
        send(stream, *(change(number, f"n{number % 50}") for number in range(10_000)))
        assert tracemalloc.get_traced_memory()[0] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("last", ["other-3", "run-10001", "run--1", "run-", "run-6x", "run-1"])
async def test_last_event_id_that_is_not_known_any_more_is_a_gap(
    client: TestClient[web.Request, web.Application], stream: Stream, last: str
) -> None:
    send(stream, *(change(number) for number in range(10_000)))
    if last == "run-1":
        send(stream, *(change(number) for number in range(100)))
    back = await listening(client, stream, last=last)
    assert (await back.event())[1] == "gap"
    send(stream, change(7))
    assert (await back.event())[1] == "change"


async def test_a_slow_client_is_informed_and_blocks_no_other(
    client: TestClient[web.Request, web.Application], stream: Stream
) -> None:
    slow = await listening(client, stream)
    send(stream, *(change(number) for number in range(3_500)))
    assert (await slow.event())[1] == "gap"
    number, kind, _ = await slow.event()
    assert (number, kind) == ("run-3000", "change") or int(number.partition("-")[2]) > 2_000


async def test_head_request_takes_no_place(
    stream: Stream, client: TestClient[web.Request, web.Application]
) -> None:
    async with asyncio.timeout(patience(10)):
        answer = await client.head(PATH)
        assert answer.status == 200
        assert answer.content_type == "text/event-stream"
        assert await answer.read() == b""
    assert stream.clients == 0


@pytest.mark.slow
async def test_silent_clients_keep_no_other_out_of_a_quiet_stream(stream: Stream) -> None:
    pages = web.Application()
    pages.router.add_get(PATH, stream.serve)
    async with TestServer(pages) as server, AsyncExitStack() as opened:

        async def listen(address: str, *, displaces: bool = True) -> Listening:
            connector = TCPConnector(limit=0, local_addr=(address, 0))
            client = await opened.enter_async_context(ClientSession(connector=connector))
            before = stream.clients
            answer = await client.get(server.make_url(PATH))
            opened.callback(answer.close)
            assert answer.status == 200
            assert stream.clients == before + (not displaces)
            return Listening(answer)

        first = await listen("127.0.0.3", displaces=False)
        many = [await listen("127.0.0.2", displaces=False) for _ in range(99)]
        new = [await listen(f"127.0.1.{number}") for number in range(1, 6)]
        assert stream.status().displaced == 5
        for displaced in many[:5]:
            await displaced.ended()
        await listen("127.0.0.2")
        await many[5].ended()
        send(stream, change(1))
        for kept in (first, many[6], *new):
            assert (await kept.event())[0] == "run-1"


async def test_client_that_leaves_frees_its_place(
    client: TestClient[web.Request, web.Application], stream: Stream
) -> None:
    answer = await client.get(PATH)
    assert stream.clients == 1
    answer.close()

    def is_free() -> bool:
        send(stream, change(1))
        return stream.clients == 0

    await until(is_free, "its place is free")


@pytest.mark.slow
async def test_rows_of_changes_are_made_once_for_all_clients_that_ask_for_them(
    client: TestClient[web.Request, web.Application], stream: Stream
) -> None:
    made: list[frozenset[str]] = []

    async def rows(nodes: frozenset[str]) -> JobChange:
        made.append(nodes)
        return JobChange(1, "j", "default", "one", "Healthy", tuple(sorted(nodes)))

    stream.serve_rows(rows)
    asking = [await listening(client, stream, rows="true") for _ in range(3)]
    other = await listening(client, stream)
    send(stream, change(1), change(2, "n2"))
    for page in asking:
        assert [(await page.event())[1] for _ in range(2)] == ["change", "change"]
        number, name, data = await page.event()
        assert (number, name, data["nodes"]) == ("", "rows", ["n1", "n2"])
    assert made == [{"n1", "n2"}]
    # More than are worth single rows: clients read all of them.
    send(stream, *(change(number, f"n{number}") for number in range(101)))
    await until(lambda: not stream._changed, "they are gathered")
    send(stream, change(3))
    for page in asking:
        assert [(await page.event())[1] for _ in range(102)] == ["change"] * 102
        assert (await page.event())[2]["nodes"] == ["n1"]
    assert [(await other.event())[0] for _ in range(104)][-1] == "run-104"
    assert made == [{"n1", "n2"}, {"n1"}]


async def test_no_rows_are_made_without_a_client_that_asks_for_them(
    client: TestClient[web.Request, web.Application], stream: Stream
) -> None:
    stream.serve_rows(AsyncMock(side_effect=AssertionError))
    await listening(client, stream)
    send(stream, change(1))
    assert not stream._changed
    assert stream._sending_rows is None
