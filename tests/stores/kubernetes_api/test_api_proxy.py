"""The proxy for tests itself: it does to requests what its docstrings describe."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from contract.errors import StoreUnavailable
from stores.base import Changed, Document, DocumentsListed, Selection
from tests.parts.api_proxy import ApiProxy, Direction, Rule
from tests.parts.deadlines import patience, stays, time_passes, until

if TYPE_CHECKING:
    from stores.base import Store, WatchEvent
    from tests.parts.controlplane import ControlPlane

pytestmark = pytest.mark.apiserver

_SPACE = "kube-system"


@pytest.fixture
def store(proxied: Store) -> Store:
    """Open a store that connects through ``proxy``."""
    return proxied


def _document(text: str) -> Document:
    return Document(_SPACE, "one", {"text": text}, {"part": "test"})


async def until_stored(plane: ControlPlane, text: str) -> None:
    """Wait until the API server has this text."""
    path = f"/api/v1/namespaces/{_SPACE}/configmaps/one"
    await until(lambda: plane.request("GET", path)["data"] == {"text": text}, seconds=10)


async def test_it_reads_requests(proxy: ApiProxy, store: Store) -> None:
    await store.put(_document("1"))
    await store.list(Selection(_SPACE))
    assert [(one.verb, one.resource, one.namespace) for one in proxy.requests()] == [
        ("update", "configmaps", _SPACE),
        ("create", "configmaps", _SPACE),
        ("list", "configmaps", _SPACE),
    ]
    assert proxy.connections == 1


async def test_request_over_a_frozen_connection_arrives_when_it_thaws(
    proxy: ApiProxy, store: Store, control_plane: ControlPlane
) -> None:
    await store.put(_document("1"))
    assert proxy.freeze_old(Direction.TO_SERVER) == 1
    late = asyncio.create_task(store.put(_document("2")))
    await time_passes(0.2)
    late.cancel()
    with pytest.raises(asyncio.CancelledError):
        await late
    await stays(0.2, because="a request that passes is stored within milliseconds")
    path = f"/api/v1/namespaces/{_SPACE}/configmaps/one"
    assert control_plane.request("GET", path)["data"] == {"text": "1"}
    proxy.thaw()
    await until_stored(control_plane, "2")


async def test_one_direction(proxy: ApiProxy, store: Store, control_plane: ControlPlane) -> None:
    await store.put(_document("1"))
    proxy.freeze_all(Direction.TO_CLIENT)
    written = asyncio.create_task(store.put(_document("2")))
    await until_stored(control_plane, "2")
    assert not written.done()
    proxy.thaw()
    await written


async def test_delay_refusal_and_cut(proxy: ApiProxy, store: Store) -> None:
    await store.put(_document("1"))
    rule = Rule("update", "configmaps")
    # With this delay, a read would have no answer in time.
    proxy.delay(60, rule)
    await store.get(_SPACE, "one")
    proxy.relent()
    proxy.delay(0.5, rule)
    begin = time.monotonic()
    await store.put(_document("2"))
    assert time.monotonic() - begin >= 0.5
    proxy.relent()
    proxy.refuse(503, rule, {"Retry-After": "1"})
    with pytest.raises(StoreUnavailable, match="refused"):
        await store.put(_document("3"))
    proxy.relent()
    assert proxy.cut() >= 1
    await store.put(_document("4"))


async def test_a_silenced_watch_lives_and_delivers_nothing(proxy: ApiProxy, store: Store) -> None:
    events = store.watch(Selection(_SPACE, label=("part", "test")))
    assert isinstance(await anext(events), DocumentsListed)
    first: asyncio.Future[WatchEvent] = asyncio.ensure_future(anext(events))
    await time_passes(0.3)
    await store.put(_document("1"))
    assert isinstance(await asyncio.wait_for(first, patience(5)), Changed)
    proxy.silence(Rule(resource="configmaps"))
    second: asyncio.Future[WatchEvent] = asyncio.ensure_future(anext(events))
    await store.put(_document("2"))
    done, _ = await asyncio.wait([second], timeout=1)
    assert not done
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second


async def test_connections_refused(proxy: ApiProxy, store: Store) -> None:
    await store.put(_document("1"))
    proxy.refuse_connections()
    with pytest.raises(StoreUnavailable):
        await store.get(_SPACE, "one")
    proxy.accept_connections()
    assert await store.get(_SPACE, "one") is not None
