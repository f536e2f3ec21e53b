"""The Kubernetes store while the API server is away, frozen, or has forgotten."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from typing import TYPE_CHECKING, Any

import aiohttp
import psutil
import pytest

from contract.errors import StoreUnavailable
from stores.address import open_store
from stores.base import Changed, Document, DocumentsListed, Selection
from stores.interruption import Interrupted
from stores.kubernetes_api import watch as kubernetes_watch
from stores.kubernetes_api.client import connection as kubernetes_connection
from tests.parts.deadlines import patience, stays, time_passes, until
from tests.parts.relay import Relay
from tests.parts.watching import watching

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stores.base import Store
    from tests.parts.controlplane import ControlPlane

pytestmark = pytest.mark.apiserver

PLACE = ("mindx-dl", "one")


def a_document(name: str, text: str) -> Document:
    return Document("mindx-dl", name, {"text": text}, {"a": "b"})


@pytest.fixture
async def relay(control_plane: ControlPlane) -> AsyncIterator[Relay]:
    async with Relay(control_plane.port) as relay:
        yield relay


def store_at(control_plane: ControlPlane, port: int) -> Store:
    """Open a store that connects to ``port`` in place of the API server's."""
    config = control_plane.kubeconfig
    path = config.with_name(f"port-{port}.kubeconfig")
    path.write_text(config.read_text().replace(str(control_plane.port), str(port)))
    return open_store("kubernetes:", path)


@pytest.fixture
async def relayed(control_plane: ControlPlane, relay: Relay) -> AsyncIterator[Store]:
    """Open a store that connects through ``relay``."""
    store = store_at(control_plane, relay.port)
    yield store
    await store.close()


async def test_changes_during_an_outage_are_shown_after_it(
    kubernetes: Store, relay: Relay, relayed: Store
) -> None:
    await kubernetes.put(a_document("deleted", "1"))
    await kubernetes.put(a_document("changed", "1"))
    async with watching(relayed, Selection("mindx-dl")) as seen:
        await relay.cut()
        await seen.until(lambda seen: bool(seen.of(Interrupted)))
        with pytest.raises(StoreUnavailable, match="cannot be used"):
            await relayed.put(a_document("changed", "lost"))
        await kubernetes.delete("mindx-dl", "deleted")
        await kubernetes.put(a_document("changed", "2"))
        await kubernetes.put(a_document("new", "1"))
        relay.restore()
        await seen.until(lambda seen: len(seen.of(DocumentsListed)) == 2)
        texts = {name: one.data["text"] for (_, name), one in seen.documents.items()}
        assert texts == {"changed": "2", "new": "1"}
        await relayed.put(a_document("changed", "3"))
        await seen.until(lambda seen: seen.documents["mindx-dl", "changed"].data["text"] == "3")
    assert [type(event) for event in seen.events[:3]] == [
        DocumentsListed,
        Interrupted,
        DocumentsListed,
    ]


async def test_a_server_that_hangs_is_left_without_a_goodbye(relay: Relay, relayed: Store) -> None:
    """It would not answer one, and the socket would stay open for half a minute."""

    def open_connections() -> int:
        known = psutil.Process().net_connections("tcp")
        return sum(bool(one.raddr) and one.raddr.port == relay.port for one in known)

    async with watching(relayed, Selection("mindx-dl")) as seen:
        await seen.until(lambda seen: bool(seen.of(DocumentsListed)))
        await relayed.put(a_document("seen", "1"))
        await seen.until(lambda seen: ("mindx-dl", "seen") in seen.documents)  # the watch began
        assert open_connections() > 0
        relay.freeze()
    await relayed.close()
    assert open_connections() == 0


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_an_api_server_that_comes_back_is_followed_again(
    control_plane: ControlPlane, kubernetes: Store, how: str
) -> None:
    await kubernetes.put(a_document("one", "1"))
    async with watching(kubernetes, Selection("mindx-dl")) as seen:
        end = control_plane.stop_apiserver if how == "stop" else control_plane.kill_apiserver
        await asyncio.to_thread(end)
        await seen.until(lambda seen: bool(seen.of(Interrupted)))
        with pytest.raises(StoreUnavailable):
            await kubernetes.get(*PLACE)
        await asyncio.to_thread(control_plane.start_apiserver)
        await seen.until(lambda seen: len(seen.of(DocumentsListed)) == 2)
        assert seen.documents[PLACE].data == {"text": "1"}
        await kubernetes.put(a_document("one", "2"))
        await seen.until(lambda seen: seen.documents[PLACE].data == {"text": "2"})


async def test_an_api_server_away_at_the_start_is_waited_for(control_plane: ControlPlane) -> None:
    await asyncio.to_thread(control_plane.stop_apiserver)
    store = open_store("kubernetes:", control_plane.kubeconfig)
    events = store.watch(Selection("mindx-dl"))
    first = await anext(aiter(events))
    assert isinstance(first, Interrupted)
    assert control_plane.url in first.reason
    await asyncio.to_thread(control_plane.start_apiserver)
    async with asyncio.timeout(patience(20)):
        while not isinstance(await anext(aiter(events)), DocumentsListed):
            pass
    await store.close()


async def test_a_frozen_api_server_is_unavailable_in_time(
    control_plane: ControlPlane, kubernetes: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await kubernetes.put(a_document("one", "1"))
    control_plane.pause_apiserver()
    try:
        async with asyncio.timeout(patience(15)):
            with monkeypatch.context() as patch:
                patch.setattr(kubernetes_connection, "_ACCEPTED_SECONDS", 4.0)
                with pytest.raises(StoreUnavailable, match="no answer in time"):
                    await kubernetes.put(a_document("one", "2"))
    finally:
        control_plane.resume_apiserver()
    await kubernetes.put(a_document("one", "3"))


async def test_a_server_that_accepts_no_connection_is_unavailable_soon(
    control_plane: ControlPlane,
) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, contextlib.ExitStack() as sent:
        address = full.getsockname()
        # Linux keeps one more connection than the backlog, and answers no further one.
        for _ in range(2):
            client = sent.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(address)
        store = store_at(control_plane, address[1])
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await store.get("kube-system", "any")
        # The second attempt begins after 2 s, and each may take 4 s to connect.
        assert 5.9 < time.monotonic() - began < patience(9)
        await store.close()


async def test_a_silent_connection_is_given_up(
    relay: Relay, relayed: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=1.0, sock_read=1.0)
    monkeypatch.setattr(kubernetes_connection, "_WATCH_TIMEOUT", timeout)
    async with watching(relayed, Selection("mindx-dl")) as seen:
        relay.freeze()
        await seen.until(lambda seen: bool(seen.of(Interrupted)))
        relay.restore()
        await seen.until(lambda seen: len(seen.of(DocumentsListed)) >= 2)
        await relayed.put(a_document("one", "1"))
        await seen.until(lambda seen: PLACE in seen.documents)


async def test_a_watch_of_what_never_changes_is_no_trouble(
    kubernetes: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No bookmark comes while nothing of the kind changes in the whole cluster."""
    silence_seconds = patience(1.1)
    timeout = aiohttp.ClientTimeout(
        total=None, sock_connect=patience(1.0), sock_read=silence_seconds
    )
    monkeypatch.setattr(kubernetes_connection, "_WATCH_TIMEOUT", timeout)
    async with watching(kubernetes, Selection("mindx-dl")) as seen:
        await stays(2 * silence_seconds + 0.3, because="two timeouts of the connection pass")
        await kubernetes.put(a_document("one", "1"))
        await seen.until(lambda seen: PLACE in seen.documents)
    assert [type(event) for event in seen.events] == [DocumentsListed, Changed]


async def test_watches_of_what_never_changes_share_a_connection(
    kubernetes: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one is given up for its silence; the server ends the others before that."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=patience(1.0), sock_read=patience(3.0))
    monkeypatch.setattr(kubernetes_connection, "_WATCH_TIMEOUT", timeout)
    monkeypatch.setattr(kubernetes_watch, "_QUIET_WATCH_SECONDS", (1, 1))
    monkeypatch.setattr(kubernetes_watch, "_MIN_WATCH_SECONDS", 0.5)
    ports: list[int] = []

    def note_port(response: aiohttp.ClientResponse) -> None:
        connection = response.connection
        assert connection is not None
        assert connection.transport is not None
        ports.append(connection.transport.get_extra_info("sockname")[1])

    monkeypatch.setattr(kubernetes_connection, "_notice_dead_peer", note_port)
    async with watching(kubernetes, Selection("mindx-dl")):
        await until(lambda: len(ports) >= 4, "three watches follow the first one", 30.0)
    first, *others = ports[:4]
    assert others == [others[0]] * 3
    assert first != others[0]


async def test_a_watch_that_is_cut_goes_on_without_a_list(
    kubernetes: Store, relay: Relay, relayed: Store
) -> None:
    """As proxies do with what is quiet for a minute."""
    async with watching(relayed, Selection("mindx-dl")) as seen:
        await stays(1.1, because="the watch is quiet for a while")
        await kubernetes.put(a_document("one", "1"))
        await relay.drop()
        await kubernetes.put(a_document("one", "2"))
        await seen.until(lambda seen: bool(seen.of(Changed)))
        await seen.until(lambda seen: seen.documents[PLACE].data == {"text": "2"})
    assert [type(event) for event in seen.events] in (
        [DocumentsListed, Changed, Changed],
        [DocumentsListed, Changed],
    )


async def test_a_watch_that_the_server_ends_goes_on_without_a_list(
    kubernetes: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes_watch, "_WATCH_SECONDS", (2, 2))
    async with watching(kubernetes, Selection("mindx-dl")) as seen:
        for number in range(24):
            await kubernetes.put(a_document("one", str(number)))
            await time_passes(0.2)
        await seen.until(lambda seen: seen.documents[PLACE].data == {"text": "23"})
    changes = [event.document.data["text"] for event in seen.of(Changed)]
    assert changes == [str(number) for number in range(24)]
    assert len(seen.of(DocumentsListed)) == 1


async def test_a_version_that_is_gone_leads_to_a_new_list(
    control_plane: ControlPlane, kubernetes: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await kubernetes.put(a_document("one", "1"))
    control_plane.forget_versions()
    listed = kubernetes_watch._listed_at_once

    async def forgotten_the_first_time(*_: Any, **__: Any) -> tuple[list[Any], str]:
        monkeypatch.setattr(kubernetes_watch, "_listed_at_once", listed)
        return [], "1"

    monkeypatch.setattr(kubernetes_watch, "_listed_at_once", forgotten_the_first_time)
    async with watching(kubernetes, Selection("mindx-dl")) as seen:
        await seen.until(lambda seen: len(seen.of(DocumentsListed)) == 2)
        assert PLACE in seen.documents
    assert "too old resource version" in seen.of(Interrupted)[0].reason


async def test_many_who_create_the_same_document_all_succeed(kubernetes: Store) -> None:
    await asyncio.gather(*(kubernetes.put(a_document("one", str(n))) for n in range(10)))
    assert len(await kubernetes.list(Selection("mindx-dl"))) == 1
