"""Requests over connections that are dead without a sign, and at a server that is slow."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from contract.errors import StoreConflict
from stores.address import open_store
from stores.base import Beat, Changed, Deleted, Document, LeaderElectionRecord, Selection
from stores.kubernetes_api.client import attempts
from tests.parts.api_proxy import ApiProxy, Direction, Rule
from tests.parts.controlplane import LEASES
from tests.parts.deadlines import let_time_pass, patience, stays, time_passes, until
from tests.parts.watching import watching

if TYPE_CHECKING:
    from stores.base import Store
    from tests.parts.controlplane import ControlPlane

pytestmark = pytest.mark.apiserver

_SPACE = "mindx-dl"
_PATH = f"/api/v1/namespaces/{_SPACE}/configmaps/one"
_LEASE = f"{LEASES}/npu-vigil-node-1"
_SOON_SECONDS = 3.0
"""2 s until a request is made once more, and what a busy machine adds."""


@pytest.fixture
def store(proxied: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Open a store that connects through ``proxy``."""
    # A new connection takes longer on a busy machine; the slow server of a test takes 3.5 s.
    monkeypatch.setattr(attempts, "_QUICK_SECONDS", min(patience(1.0), 3.0))
    return proxied


def _document(text: str) -> Document:
    return Document(_SPACE, "one", {"text": text}, {"part": "test"})


def _beat(at_ms: int, holder: str = "host-a", interval_seconds: float = 5.0) -> Beat:
    return Beat("node-1", holder, interval_seconds, at_ms)


async def test_dead_connections_cost_one_request_two_seconds(proxy: ApiProxy, store: Store) -> None:
    await asyncio.gather(*(store.put(_document(str(n))) for n in range(5)))
    async with watching(store, Selection(_SPACE, label=("part", "test"))) as seen:
        await store.put(_document("5"))
        await seen.until(lambda seen: seen.documents[_SPACE, "one"].data == {"text": "5"})
        assert proxy.freeze_old() > 2
        frozen = began = time.monotonic()
        await store.put(_document("6"))
        assert time.monotonic() - began < patience(_SOON_SECONDS)
        began = time.monotonic()
        await asyncio.gather(*(store.get(_SPACE, "one") for _ in range(5)))
        assert time.monotonic() - began < patience(1)
        # The watch was asked anew from where it was, without a list.
        await seen.until(lambda seen: seen.documents[_SPACE, "one"].data == {"text": "6"})
        assert proxy.requests(Rule("list", "configmaps"), frozen) == []


@pytest.mark.parametrize("direction", [Direction.TO_SERVER, Direction.TO_CLIENT, Direction.BOTH])
async def test_a_write_whose_answer_never_comes_is_no_conflict(
    proxy: ApiProxy, store: Store, control_plane: ControlPlane, direction: Direction
) -> None:
    lease = store.leader_lease
    assert lease is not None
    version, other, record, _ = await asyncio.gather(
        store.put(_document("1")),
        store.put(Document(_SPACE, "other", {})),
        lease.write(LeaderElectionRecord("one", 10)),
        store.beat(_beat(1_000)),
    )
    assert proxy.freeze_old(direction) >= 4
    began = time.monotonic()
    newer, _, renewed, _ = await asyncio.gather(
        store.put(_document("2"), expected=version),
        store.delete(_SPACE, "other", expected=other),
        lease.write(LeaderElectionRecord("one", 10, 1, record.version)),
        store.beat(_beat(2_000)),
        return_exceptions=True,
    )
    assert time.monotonic() - began < patience(_SOON_SECONDS)
    assert control_plane.request("GET", _PATH)["metadata"]["resourceVersion"] == newer
    assert await store.get(_SPACE, "other") is None
    assert await store.beats("node-1") == (_beat(2_000),)
    # Who leads asks after a conflict whether it is its own.
    assert isinstance(renewed, LeaderElectionRecord) or direction is Direction.TO_CLIENT
    assert (await lease.read()).holder == "one"
    with pytest.raises(StoreConflict):
        await store.put(_document("3"), expected=version)


async def test_late_write_undoes_nothing_newer(
    proxy: ApiProxy, store: Store, control_plane: ControlPlane
) -> None:
    version = await store.put(_document("1"))
    await store.beat(_beat(1_000))
    control_plane.request("POST", "/api/v1/nodes", {"metadata": {"name": "node-1"}})
    assert store.objects is not None
    seen = await store.objects.get_node("node-1")
    proxy.freeze_old(Direction.TO_SERVER)
    late = [
        asyncio.create_task(store.put(_document("late"), expected=version)),
        asyncio.create_task(store.beat(_beat(2_000))),
        asyncio.create_task(store.touch(_SPACE, "one", expected=version)),
        asyncio.create_task(
            store.objects.set_node("node-1", {"a": "late"}, {}, expected=seen.version)
        ),
    ]
    await time_passes(0.3)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    other = open_store("kubernetes:", control_plane.kubeconfig)
    await other.put(_document("2"))
    await other.beat(_beat(3_000, "host-b"))
    await other.beat(_beat(4_000, "host-b", 300.0))
    assert other.objects is not None
    await other.objects.set_node("node-1", {"a": "2"}, {})
    await other.close()
    proxy.thaw()
    late_ones = Rule(name="one")
    await until(
        lambda: {one.verb for one in proxy.requests(late_ones)} >= {"update", "patch"}, seconds=10
    )
    await stays(0.5, because="the API server has refused them by then")
    assert control_plane.request("GET", "/api/v1/nodes/node-1")["metadata"]["labels"]["a"] == "2"
    assert "annotations" not in control_plane.request("GET", _PATH)["metadata"]
    assert control_plane.request("GET", _PATH)["data"] == {"text": "2"}
    lease = control_plane.request("GET", _LEASE)
    assert lease["spec"]["holderIdentity"] == "host-b"
    assert lease["spec"]["leaseDurationSeconds"] == 900


async def test_a_slow_server_is_not_asked_twice_all_the_time(proxy: ApiProxy, store: Store) -> None:
    await store.put(_document("1"))
    reads = Rule("get", "configmaps", "one")
    # A busy machine may be late with what begins after 2 s.
    proxy.delay(3.5, reads)
    opened, began = proxy.connections, time.monotonic()
    await asyncio.gather(*(store.get(_SPACE, "one") for _ in range(4)))
    assert time.monotonic() - began < patience(5)
    assert len(proxy.requests(reads)) == 5
    # The first connection served one of them, the fifth attempt had a new one.
    assert proxy.connections - opened == 4
    # The answer to the fifth attempt comes 2 s after the first ones.
    await stays(patience(2.2), because="attempts that were given up would come back")
    await asyncio.gather(*(store.get(_SPACE, "one") for _ in range(5)))
    assert len(proxy.requests(reads)) == 10
    # That of the fifth attempt was kept.
    assert proxy.connections - opened == 4


async def test_many_requests_ask_once_whether_their_connections_are_dead(
    proxy: ApiProxy, store: Store
) -> None:
    await store.put(_document("1"))
    await asyncio.gather(*(store.get(_SPACE, "one") for _ in range(6)))
    proxy.freeze_old()
    since = time.monotonic()
    await asyncio.gather(*(store.get(_SPACE, "one") for _ in range(6)))
    assert time.monotonic() - since < patience(_SOON_SECONDS)
    assert len(proxy.requests(Rule("get", "configmaps", "one"), since)) == 12


async def test_a_repaired_document_is_created_once_although_the_answer_is_lost(
    proxy: ApiProxy, store: Store, control_plane: ControlPlane
) -> None:
    await store.put(_document("1"))
    control_plane.request("PATCH", _PATH, {"immutable": True})
    other = open_store("kubernetes:", control_plane.kubeconfig)
    async with watching(other, Selection(_SPACE, name="one")) as seen:
        proxy.freeze_old(Direction.TO_CLIENT)
        version = await store.put(_document("2"))
        await seen.until(lambda seen: (_SPACE, "one") in seen.documents)
        await seen.until(lambda seen: seen.documents[_SPACE, "one"].version == version)
    await other.close()
    assert [type(event) for event in seen.events].count(Deleted) == 1
    assert [type(event) for event in seen.events][-1] is Changed


async def test_a_process_that_stood_still_reads_what_was_answered(
    proxy: ApiProxy, store: Store
) -> None:
    await store.put(_document("1"))
    proxy.delay(0.5, Rule("get", "configmaps", "one"))
    read = asyncio.create_task(store.get(_SPACE, "one"))
    await time_passes(0.1)
    let_time_pass(4)
    await read
    assert len(proxy.requests(Rule("get", "configmaps", "one"))) == 1
