"""A server that asks for a pause gets it, but for what must not wait."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from contract.errors import StoreUnavailable
from stores.base import Beat, Document, Selection
from stores.kubernetes_api.client.connection import Pauses, seconds_of
from tests.parts.api_proxy import Rule
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from stores.base import Store
    from tests.parts.api_proxy import ApiProxy

NOW = datetime(2026, 11, 22, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        (" 7 ", 7.0),
        ("1000000000", 60.0),
        ("9" * 10_000, 60.0),
        ("Sun, 22 Nov 2026 12:00:30 GMT", 30.0),
        ("Sun, 22 Nov 2026 11:00:30 GMT", 0.0),
        ("Sun, 22 Nov 2026 12:00:30", 30.0),
        ("-1", None),
        ("1.5", None),
        ("", None),
        ("soon", None),
        ("²", None),
        ("Sun, 22 Nov 99999999999 12:00:30 GMT", None),
    ],
)
def test_seconds_of_retry_after(text: str, seconds: float | None) -> None:
    assert seconds_of(text, NOW) == seconds


@pytest.mark.looptime
@pytest.mark.parametrize(("text", "least", "most"), [("20", 18, 22), ("1000000000", 54, 60)])
async def test_others_fail_and_what_is_urgent_has_a_turn_every_5_s(
    text: str, least: float, most: float
) -> None:
    pauses = Pauses()
    await pauses.turn(None)
    pauses.answered("https://h", "GET /one", 429, text)
    began = asyncio.get_running_loop().time()

    def passed() -> float:
        return asyncio.get_running_loop().time() - began

    for number in (1, 2, 3):
        with pytest.raises(StoreUnavailable, match="h answered 429 and asked for a pause"):
            await pauses.turn(None)
        await pauses.turn("GET /one")
        assert passed() == pytest.approx(5 * number)
    await pauses.turn("GET /other")
    assert passed() == pytest.approx(15)
    while True:
        try:
            await pauses.turn(None)
            break
        except StoreUnavailable:
            await asyncio.sleep(0.1)
    assert least <= passed() <= most + 0.2
    await pauses.turn("GET /one")
    assert passed() <= most + 0.2


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("status", "text"), [(429, None), (503, "soon"), (500, "20"), (200, "20"), (429, "0")]
)
async def test_answer_that_asks_for_no_pause(status: int, text: str | None) -> None:
    pauses = Pauses()
    pauses.answered("https://h", None, status, text)
    await pauses.turn(None)


@pytest.mark.apiserver
async def test_a_server_that_is_overloaded_is_left_alone(proxy: ApiProxy, proxied: Store) -> None:
    document = Document("mindx-dl", "one", {"text": "1"})
    await proxied.put(document)
    proxy.refuse(429, headers={"Retry-After": "100"})
    began = time.monotonic()
    watch = aiter(proxied.watch(Selection("mindx-dl")))
    for _ in range(20):
        with pytest.raises(StoreUnavailable):
            await proxied.list(Selection("mindx-dl"))
        with pytest.raises(StoreUnavailable):
            await proxied.touch("mindx-dl", "one")
    await anext(watch)
    assert len(proxy.requests(since=began)) == 1
    # A document and a heartbeat are tried all the same, and get through when they can.
    with pytest.raises(StoreUnavailable):
        await proxied.put(document)
    with pytest.raises(StoreUnavailable):
        await proxied.beat(Beat("node-1", "host", 5.0, 1))
    assert time.monotonic() - began < patience(4)
    proxy.relent()
    await asyncio.gather(proxied.put(document), proxied.beat(Beat("node-1", "host", 5.0, 2)))
    assert 4 < time.monotonic() - began < patience(8)
    assert proxy.requests(Rule("update", "configmaps"), began + 4)
