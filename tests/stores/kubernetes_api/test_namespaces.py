"""A namespace that was removed by force: its objects remain, and every write finds no namespace."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from contract.errors import StoreRefused
from stores.base import Beat, Document, LeaderElectionRecord
from stores.kubernetes_api.store import KubernetesStore
from tests.parts.deadlines import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.parts.controlplane import ControlPlane

pytestmark = pytest.mark.apiserver

SPACE = "/api/v1/namespaces/mindx-dl"
RULES = [
    {
        "apiGroups": ["", "coordination.k8s.io"],
        "resources": ["configmaps", "leases"],
        "verbs": ["get", "list", "create", "update", "patch"],
    }
]
WHY = (
    "there is no namespace mindx-dl any more: it was removed by force, and its objects remain; it "
    r"may not be created; create it \(kubectl create namespace mindx-dl\)"
)


def document(text: str) -> Document:
    return Document("mindx-dl", "mindx-dl-nodeinfo-n", {"text": text})


def beat(at_ms: int) -> Beat:
    return Beat("n", "host", 15.0, at_ms)


@pytest.fixture
async def store(control_plane: ControlPlane) -> AsyncIterator[KubernetesStore]:
    opened = KubernetesStore("kubernetes:", str(control_plane.kubeconfig))
    yield opened
    await opened.close()


async def remove_by_force(control_plane: ControlPlane) -> None:
    def remove() -> None:
        control_plane.request("DELETE", SPACE)
        found = control_plane.request("GET", SPACE)
        found["spec"]["finalizers"] = []
        control_plane.request("PUT", f"{SPACE}/finalize", found)

    await asyncio.to_thread(remove)

    async def is_gone() -> bool:
        return (await asyncio.to_thread(control_plane.ask, "GET", SPACE))[0] == 404

    await until(is_gone, "the namespace is gone")

    async def is_refused() -> bool:
        body = {"metadata": {"name": "dry-run"}}
        path = f"{SPACE}/configmaps?dryRun=All"
        return (await asyncio.to_thread(control_plane.ask, "POST", path, body))[0] == 404

    await until(is_refused, "the admission of the API server learned it by a watch")


async def test_it_is_named_as_the_reason_where_it_may_not_be_created(
    control_plane: ControlPlane, store: KubernetesStore
) -> None:
    version = await store.put(document("one"))
    await store.beat(beat(1))
    led = await store.leader_lease.write(LeaderElectionRecord("a", 10))
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "writes-documents"},
        "rules": RULES,
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "writes-documents"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "writes-documents",
        },
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "writer"}],
    }
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "writer", "namespace": "default"},
    }
    for item in (account, role, binding):
        await asyncio.to_thread(control_plane.apply, item)
    writer = await asyncio.to_thread(control_plane.service_account, "default", "writer")
    await remove_by_force(control_plane)
    limited = KubernetesStore("kubernetes:", str(writer))
    try:
        assert await limited.get("mindx-dl", "mindx-dl-nodeinfo-n") is not None
        for request in (
            limited.put(document("two"), expected=version),
            limited.put(document("two")),
            limited.beat(beat(2)),
            limited.leader_lease.write(led),
        ):
            with pytest.raises(StoreRefused, match=WHY):
                await request
    finally:
        await limited.close()


async def test_it_is_created_again_where_that_is_allowed(
    control_plane: ControlPlane, store: KubernetesStore
) -> None:
    version = await store.put(document("one"))
    await store.beat(beat(1))
    await remove_by_force(control_plane)
    await store.put(document("two"), expected=version)
    await store.beat(beat(2))
    found = await store.get("mindx-dl", "mindx-dl-nodeinfo-n")
    assert found is not None
    assert found.data == {"text": "two"}
