"""The admission policy: an agent's token writes the documents of its own node and of no other."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from contract.errors import StoreRefused
from stores.address import open_store
from stores.base import Document, Event, Involved
from tests.parts.controlplane import ControlPlane
from tests.parts.kustomize import apply

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stores.base import Store

DOCUMENTS = [
    ("kube-system", "mindx-dl-deviceinfo-"),
    ("mindx-dl", "mindx-dl-nodeinfo-"),
    ("mindx-dl", "npu-vigil-dpc-fault-"),
    ("mindx-dl", "npu-vigil-dtfs-fault-"),
]


@pytest.fixture(scope="module")
def restricted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """An API server with the base and the component; other tests must not meet its policy."""
    with ControlPlane(tmp_path_factory.mktemp("restricted")) as plane:
        apply(plane, "base")
        apply(plane, "components/own-node-only")
        yield plane


def _document(namespace: str, name: str) -> Document:
    return Document(namespace, name, {"key": "value"})


async def _in_force(store: Store) -> None:
    """Policies reach the API server's admission with a delay."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            await store.put(_document("mindx-dl", f"probe-{time.monotonic_ns()}"))
        except StoreRefused:
            return
        await asyncio.sleep(0.1)
    raise AssertionError("the policy never came into force")


@pytest.mark.apiserver
async def test_only_the_own_node(restricted: ControlPlane) -> None:
    kubeconfig = restricted.service_account("mindx-dl", "npu-vigil-agent", "worker-1")
    store = open_store("kubernetes:", kubeconfig)
    try:
        await _in_force(store)
        for namespace, prefix in DOCUMENTS:
            await store.put(_document(namespace, f"{prefix}worker-1"))
            with pytest.raises(StoreRefused, match=r"worker-1.*own node only.*worker-2"):
                await store.put(_document(namespace, f"{prefix}worker-2"))
        await store.delete("mindx-dl", "mindx-dl-nodeinfo-worker-1")
    finally:
        await store.close()


@pytest.mark.apiserver
async def test_labels_and_events_of_the_own_node_only(restricted: ControlPlane) -> None:
    kubeconfig = restricted.service_account("mindx-dl", "npu-vigil-agent", "worker-3")
    restricted.ask("POST", "/api/v1/nodes", {"metadata": {"name": "worker-2"}})
    store = open_store("kubernetes:", kubeconfig)
    objects = store.objects
    assert objects is not None
    involved = Involved("Node", "worker-3", "kube-system")
    event = Event("kube-system", "one", involved, True, "Reason", "Action", "text", 0, 0)
    try:
        await _in_force(store)
        await objects.set_node("worker-3", {"a": "b"}, {"c": "d"})
        with pytest.raises(StoreRefused, match=r"worker-3.*own node only.*nodes worker-2"):
            await objects.set_node("worker-2", {"a": "b"}, {})
        await objects.record(replace(event, name="one", host="worker-3"))
        for host in ("worker-2", ""):
            with pytest.raises(StoreRefused, match=r"worker-3.*own node only.*events"):
                await objects.record(replace(event, name="two", host=host))
    finally:
        await store.close()


@pytest.mark.apiserver
async def test_a_token_of_no_pod_may_write_nothing(restricted: ControlPlane) -> None:
    store = open_store("kubernetes:", restricted.service_account("mindx-dl", "npu-vigil-agent"))
    try:
        await _in_force(store)
        with pytest.raises(StoreRefused, match="own node only"):
            await store.put(_document("kube-system", "mindx-dl-deviceinfo-worker-1"))
    finally:
        await store.close()
