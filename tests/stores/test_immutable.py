"""A ConfigMap that was made immutable: deleted and created, or the command is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from contract.errors import StoreConflict, StoreForbidden
from stores.address import open_store
from stores.base import Changed, Deleted, Document, Selection
from tests.parts.rights import allow, forbid
from tests.parts.watching import watching

if TYPE_CHECKING:
    from stores.base import Store
    from tests.parts.controlplane import ControlPlane

pytestmark = pytest.mark.apiserver

PLACE = ("mindx-dl", "one")
PATH = "/api/v1/namespaces/mindx-dl/configmaps/one"


def document(text: str) -> Document:
    return Document(*PLACE, {"text": text})


async def made_immutable(plane: ControlPlane, store: Store) -> str:
    """Make the document immutable; return its version."""
    await store.put(document("old"))
    plane.request("PATCH", PATH, {"immutable": True})
    found = await store.get(*PLACE)
    assert found is not None
    assert found.immutable
    return found.version


async def test_it_is_deleted_and_created_and_logged(
    control_plane: ControlPlane, kubernetes: Store, caplog: pytest.LogCaptureFixture
) -> None:
    version = await made_immutable(control_plane, kubernetes)
    async with watching(kubernetes, Selection(*PLACE)) as seen:
        written = await kubernetes.put(document("new"), expected=version)
        await seen.until(
            lambda seen: any(
                isinstance(event, Changed) and event.document.version == written
                for event in seen.events
            )
        )
        assert [type(event) for event in seen.events[1:]] == [Deleted, Changed]
    found = await kubernetes.get(*PLACE)
    assert found is not None
    assert (found.data, found.immutable, found.version) == ({"text": "new"}, False, written)
    assert "mindx-dl/one: it was made immutable; it is deleted and created" in caplog.text


async def test_without_a_version_it_is_replaced_too(
    control_plane: ControlPlane, kubernetes: Store
) -> None:
    await made_immutable(control_plane, kubernetes)
    await kubernetes.put(document("new"))
    found = await kubernetes.get(*PLACE)
    assert found is not None
    assert found.data == {"text": "new"}


async def test_another_version_is_a_conflict_and_stays(
    control_plane: ControlPlane, kubernetes: Store
) -> None:
    await made_immutable(control_plane, kubernetes)
    with pytest.raises(StoreConflict):
        await kubernetes.put(document("new"), expected="1")
    found = await kubernetes.get(*PLACE)
    assert found is not None
    assert found.data == {"text": "old"}


async def test_without_the_right_to_delete_the_command_is_named(
    control_plane: ControlPlane, kubernetes: Store
) -> None:
    version = await made_immutable(control_plane, kubernetes)
    allow(control_plane, "stranger", ["get", "update", "create"])
    store = open_store("kubernetes:", control_plane.kubeconfig_of("stranger-token"))
    try:
        with pytest.raises(StoreForbidden, match="kubectl delete configmap -n mindx-dl one"):
            await store.put(document("new"), expected=version)
    finally:
        await store.close()
        forbid(control_plane, "stranger")
    found = await kubernetes.get(*PLACE)
    assert found is not None
    assert found.data == {"text": "old"}
