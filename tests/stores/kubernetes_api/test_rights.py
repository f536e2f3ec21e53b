"""The Kubernetes store and credentials: wrong, missing, replaced, of a pod; and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kubernetes.aio.config import incluster_config

from contract.errors import StoreRefused
from stores.address import open_store
from stores.base import Document, DocumentsListed, Selection
from stores.interruption import Interrupted
from tests.parts.rights import allow, forbid
from tests.parts.watching import watching

if TYPE_CHECKING:
    from pathlib import Path

    from stores.base import Store
    from tests.parts.controlplane import ControlPlane

pytestmark = pytest.mark.apiserver

DOCUMENT = Document("mindx-dl", "one", {"text": "x"})


async def test_an_unknown_token_is_refused(control_plane: ControlPlane) -> None:
    store = open_store("kubernetes:", control_plane.kubeconfig_of("nobody-issued-this"))
    with pytest.raises(StoreRefused, match="Unauthorized"):
        await store.put(DOCUMENT)
    with pytest.raises(StoreRefused, match="Unauthorized"):
        await store.get("mindx-dl", "one")
    with pytest.raises(StoreRefused, match="Unauthorized"):
        await store.list(Selection())
    await store.close()


async def test_missing_rights_are_named(control_plane: ControlPlane, kubernetes: Store) -> None:
    await kubernetes.put(DOCUMENT)
    store = open_store("kubernetes:", control_plane.kubeconfig_of("stranger-token"))
    with pytest.raises(StoreRefused, match='"stranger" cannot update resource "configmaps"'):
        await store.put(DOCUMENT)
    with pytest.raises(StoreRefused, match='"stranger" cannot delete resource "configmaps"'):
        await store.delete("mindx-dl", "one")
    await store.close()


async def test_a_watch_waits_for_rights(control_plane: ControlPlane, kubernetes: Store) -> None:
    await kubernetes.put(DOCUMENT)
    store = open_store("kubernetes:", control_plane.kubeconfig_of("stranger-token"))
    events = store.watch(Selection("mindx-dl"))
    first = await anext(aiter(events))
    assert isinstance(first, Interrupted)
    assert 'cannot list resource "configmaps"' in first.reason
    allow(control_plane, "stranger", ["list", "watch"])
    second = await anext(aiter(events))
    forbid(control_plane, "stranger")
    assert isinstance(second, DocumentsListed)
    assert [one.name for one in second.documents] == ["one"]
    await store.close()


async def test_a_namespace_that_may_not_be_created_is_named(control_plane: ControlPlane) -> None:
    allow(control_plane, "stranger", ["get", "list", "watch", "create", "update"])
    store = open_store("kubernetes:", control_plane.kubeconfig_of("stranger-token"))
    with pytest.raises(StoreRefused, match="kubectl create namespace nobody-made-this"):
        await store.put(Document("nobody-made-this", "one", {}))
    forbid(control_plane, "stranger")
    await store.close()


async def test_a_token_replaced_on_disk_is_taken_up(control_plane: ControlPlane) -> None:
    allow(control_plane, "stranger", ["get", "create", "update"])
    path = control_plane.kubeconfig_of("expired-token")
    good = control_plane.kubeconfig_of("stranger-token")
    store = open_store("kubernetes:", path)
    with pytest.raises(StoreRefused, match="Unauthorized"):
        await store.put(DOCUMENT)
    path.write_text("clusters: [")
    with pytest.raises(StoreRefused, match="Unauthorized"):
        await store.put(DOCUMENT)
    path.write_text(good.read_text())
    await store.put(DOCUMENT)
    forbid(control_plane, "stranger")
    await store.close()


async def test_a_pod_uses_its_service_account(
    control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = "/api/v1/namespaces/default/serviceaccounts"
    control_plane.ask("POST", account, {"metadata": {"name": "vigil"}})
    token = control_plane.request("POST", f"{account}/vigil/token", {"spec": {}})
    (tmp_path / "token").write_text(token["status"]["token"])
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    authority = str(control_plane.directory / "ca.crt")
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", authority)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(control_plane.port))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    user = "system:serviceaccount:default:vigil"
    allow(control_plane, user, ["get", "list", "watch", "create", "update"])
    store = open_store("kubernetes:")
    async with watching(store, Selection("mindx-dl")) as seen:
        await store.put(DOCUMENT)
        await seen.until(lambda seen: len(seen.documents) == 1)
    forbid(control_plane, user)
    await store.close()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"no/slash": "x"}, "valid config key"),
        ({"text": "x" * 1_100_000}, "Too long|limit"),
    ],
)
async def test_refused_write_changes_nothing(
    kubernetes: Store, data: dict[str, str], message: str
) -> None:
    await kubernetes.put(DOCUMENT)
    with pytest.raises(StoreRefused, match=message):
        await kubernetes.put(Document("mindx-dl", "one", data))
    got = await kubernetes.get("mindx-dl", "one")
    assert got is not None
    assert got.data == DOCUMENT.data
