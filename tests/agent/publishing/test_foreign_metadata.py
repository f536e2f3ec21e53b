"""Finalizers and owner references that others set on a document of ours, on a real API server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from agent.publishing.publisher import DesiredDocument, absent
from contract.errors import StoreRefused
from stores.base import Document
from stores.kubernetes_api.store import KubernetesStore
from tests.agent.publishing.published import LABELS, PLACE, ContentOnApiServer
from tests.parts import deadlines
from tests.parts.deadlines import stays, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.parts.controlplane import ControlPlane

pytestmark = pytest.mark.apiserver

PATH = f"/api/v1/namespaces/{PLACE[0]}/configmaps/{PLACE[1]}"
HOLDER = "example.com/holds"


class HealedNode(ContentOnApiServer):
    """A node whose document is healthy before it is deleted."""

    def desired(self) -> DesiredDocument:
        if not self.content:
            return absent(self.revision, self.healthy)
        return super().desired()

    def healthy(self, stamp: int) -> Document:
        return Document(*PLACE, {"stamp": str(stamp), "content": "healthy"}, LABELS)


@pytest.fixture
async def store(control_plane: ControlPlane) -> AsyncIterator[KubernetesStore]:
    store = KubernetesStore("kubernetes:", str(control_plane.kubeconfig))
    yield store
    if await store.get(*PLACE) is not None:  # the next test needs a place without a finalizer
        await patch(control_plane, finalizers=None)
    await store.close()


@pytest.fixture
async def node(store: KubernetesStore) -> AsyncIterator[HealedNode]:
    """Yield a node whose document is published."""
    node = HealedNode(store)
    task = asyncio.create_task(node.publisher.run())
    await until(lambda: len(node.acknowledged) == 1, "the write", 10)
    yield node
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def patch(control_plane: ControlPlane, **metadata: object) -> None:
    body = {"metadata": metadata}
    await asyncio.to_thread(control_plane.request, "PATCH", PATH, body)


async def shows(store: KubernetesStore, content: str | None, seconds: float = 10) -> Document:
    """Wait until the document has this content."""

    async def document() -> Document | None:
        shown = await store.get(*PLACE)
        return shown if shown is not None and shown.data["content"] == content else None

    shown = await deadlines.until(document, f"the content {content!r}", seconds)
    assert shown is not None
    return shown


async def is_gone(store: KubernetesStore) -> bool:
    async def gone() -> bool:
        return await store.get(*PLACE) is None

    return await deadlines.until(gone, "the document is deleted")


async def test_a_finalizer_survives_and_is_no_foreign_change(
    control_plane: ControlPlane, store: KubernetesStore, node: HealedNode
) -> None:
    await patch(control_plane, finalizers=[HOLDER])
    await stays(1, because="the publisher waits _WATCH_SECONDS, 0.5, before it repairs")
    node.render("worse")
    assert (await shows(store, "worse")).finalizers == (HOLDER,)
    assert node.publisher.record.foreign.total == 0


async def test_what_a_finalizer_holds_is_healthy_before_it_is_deleted_and_named(
    control_plane: ControlPlane,
    store: KubernetesStore,
    node: HealedNode,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await patch(control_plane, finalizers=[HOLDER])
    await stays(1, because="the publisher waits _WATCH_SECONDS, 0.5, before it repairs")
    node.render("")
    seen: list[str] = []
    while len(seen) < 5:
        shown = await store.get(*PLACE)
        assert shown is not None
        if shown.is_deleting:
            seen.append(shown.data["content"])
    assert set(seen) == {"healthy"}
    await until(lambda: node.acknowledged[-1:] == [None], "the deletion", 10)
    assert f"finalizers of others hold it: {HOLDER}" in caplog.text
    await stays(2, because="the publisher waits _WATCH_SECONDS, 0.5, before it deletes again")
    assert node.publisher.record.foreign.total == 0
    assert len(node.acknowledged) == 2, "it is not deleted again and again"
    await patch(control_plane, finalizers=None)
    assert await is_gone(store)
    await stays(1, because="the publisher waits _WATCH_SECONDS, 0.5, before it repairs")
    assert node.publisher.record.foreign.total == 0


async def test_a_fault_while_it_is_held_is_shown_and_outlives_the_finalizer(
    control_plane: ControlPlane, store: KubernetesStore, node: HealedNode
) -> None:
    await patch(control_plane, finalizers=[HOLDER])
    await stays(1, because="the publisher waits _WATCH_SECONDS, 0.5, before it repairs")
    node.render("")
    await until(lambda: node.acknowledged[-1:] == [None], "the deletion", 10)
    node.render("faulty")
    assert (await shows(store, "faulty")).is_deleting
    await patch(control_plane, finalizers=None)

    async def another() -> Document | None:
        shown = await store.get(*PLACE)
        return None if shown is None or shown.is_deleting else shown

    shown = await deadlines.until(another, "another document")
    assert shown is not None
    assert (shown.data["content"], shown.finalizers) == ("faulty", ())


async def test_an_owner_survives_while_it_exists(
    control_plane: ControlPlane, store: KubernetesStore, node: HealedNode
) -> None:
    await store.put(Document(PLACE[0], "owner", {}))
    place = f"/api/v1/namespaces/{PLACE[0]}/configmaps/owner"
    owner = await asyncio.to_thread(control_plane.request, "GET", place)
    await patch(control_plane, ownerReferences=[reference("owner", owner["metadata"]["uid"])])
    await stays(1, because="the publisher waits _WATCH_SECONDS, 0.5, before it repairs")
    node.render("worse")
    (kept,) = (await shows(store, "worse")).owners
    assert (kept.kind, kept.name, kept.uid) == ("ConfigMap", "owner", owner["metadata"]["uid"])
    assert kept.block_owner_deletion is True
    assert kept.controller is None
    assert node.publisher.record.foreign.total == 0


@pytest.mark.parametrize("name", ["owner", "mindx-dl-nodeinfo-n"])
async def test_an_owner_that_does_not_exist_is_removed_as_a_foreign_change_and_named(
    control_plane: ControlPlane,
    store: KubernetesStore,
    node: HealedNode,
    caplog: pytest.LogCaptureFixture,
    name: str,
) -> None:
    # The second name exists, with another uid: garbage collection compares it.
    await patch(control_plane, ownerReferences=[reference(name, "no-such-uid")])
    await until(lambda: len(node.acknowledged) == 2, "the repair", 10)
    assert (await shows(store, "faulty")).owners == ()
    assert node.publisher.record.foreign.total == 1
    assert f"made ConfigMap {name} its owner, which does not exist" in caplog.text


async def test_an_immutable_document_that_a_finalizer_holds_is_named(
    control_plane: ControlPlane, store: KubernetesStore
) -> None:
    await store.put(Document(*PLACE, {"content": "theirs"}))
    await asyncio.to_thread(control_plane.request, "PATCH", PATH, {"immutable": True})
    await patch(control_plane, finalizers=[HOLDER])
    with pytest.raises(StoreRefused, match=f"waits for finalizers of others .{HOLDER}"):
        await store.put(Document(*PLACE, {"content": "ours"}))


def reference(name: str, uid: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": name,
        "uid": uid,
        "blockOwnerDeletion": True,
    }
