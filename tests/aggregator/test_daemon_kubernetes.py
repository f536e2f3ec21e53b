"""A real aggregator and an API server that goes away, refuses, or holds very much."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aggregator.cluster_documents.shards import FILL
from tests.aggregator.daemon import OUTPUTS, entries, values
from tests.aggregator.nodes import T0, faulty, healthy, published, report, unhealthy
from tests.parts.deadlines import stays
from tests.parts.watching import Watching, watching

if TYPE_CHECKING:
    from stores.base import Store
    from tests.aggregator.conftest import Make
    from tests.parts.controlplane import ControlPlane

pytestmark = pytest.mark.apiserver


@pytest.fixture
def kind() -> str:
    return "kubernetes"


async def test_an_outage_loses_nothing(
    control_plane: ControlPlane, store: Store, make: Make
) -> None:
    daemon = make("kubernetes:", control_plane.kubeconfig, "--touch-period-seconds", "1")
    for node in ("n1", "n2", "n3"):
        await store.put(report(node, healthy()))
    await asyncio.to_thread(daemon.start)
    control_plane.kill_apiserver()
    daemon.process.wait_until(lambda: daemon.metric("npu_vigil_store_connected") == 0, seconds=20)
    assert daemon.ask("/healthz")[0] == 200
    assert daemon.node("n1")["state"] == "reported"
    control_plane.start_apiserver()
    await store.put(report("n1", faulty(update_time=T0 + 1)))
    await store.delete("kube-system", "mindx-dl-deviceinfo-n2")
    async with watching(store, OUTPUTS) as seen:

        def caught_up(seen: Watching) -> bool:
            found = entries(seen)
            return set(found) == {"n1", "n3"} and unhealthy(found["n1"]) == "Ascend910-3"

        await seen.until(caught_up)
    assert daemon.metric("npu_vigil_store_interruptions_total") >= 1


async def test_an_api_server_that_is_away_at_start_is_waited_for(
    control_plane: ControlPlane, store: Store, make: Make
) -> None:
    await store.put(report("n1", faulty()))
    control_plane.stop_apiserver()
    daemon = make("kubernetes:", control_plane.kubeconfig)
    await asyncio.to_thread(daemon.spawn)
    status, answer = daemon.ask("/readyz")
    assert (status, answer["ready"]) == (503, False)
    assert "waiting" in answer["reasons"][0]
    assert daemon.ask("/healthz")[0] == 200
    control_plane.start_apiserver()
    daemon.process.wait_until(lambda: daemon.ask("/readyz")[0] == 200, seconds=20)
    assert unhealthy(published((await values(store))["cluster-info-device-0"])["n1"])


async def test_without_rights_it_waits_and_names_the_reason(
    control_plane: ControlPlane, make: Make
) -> None:
    daemon = make("kubernetes:", control_plane.kubeconfig_of("stranger-token"))
    await asyncio.to_thread(daemon.spawn)

    def names_reason() -> bool:
        (store,) = daemon.ask("/api/v1/documents")[1]["stores"]
        return "forbidden" in (store["interrupted"] or "")

    daemon.process.wait_until(names_reason, seconds=20)
    assert daemon.ask("/readyz")[0] == 503


async def test_700_nodes_are_three_documents_and_one_change_writes_one_of_them(
    control_plane: ControlPlane, store: Store, make: Make
) -> None:
    names = [f"node-{number:04}" for number in range(700)]
    gate = asyncio.Semaphore(16)

    async def put(node: str) -> None:
        async with gate:
            await store.put(report(node, healthy()))

    await asyncio.gather(*(put(node) for node in names))
    daemon = make("kubernetes:", control_plane.kubeconfig)
    await asyncio.to_thread(daemon.start)
    stored = await values(store)
    assert set(stored) == {f"cluster-info-device-{number}" for number in range(3)}
    assert sorted(n for text in stored.values() for n in published(text)) == names
    assert all(len(text.encode()) <= FILL for text in stored.values())
    before = daemon.metric("npu_vigil_publication_writes_total")
    async with watching(store, OUTPUTS) as seen:
        await store.put(report("node-0007", faulty(update_time=T0 + 1)))
        await seen.until(lambda seen: unhealthy(entries(seen)["node-0007"]) == "Ascend910-3")
    # An exposition is good for a second.
    await stays(1.1, because="an exposition is good for a second")
    # A watch shows a write before its writer has the answer.
    daemon.process.wait_until(
        lambda: daemon.metric("npu_vigil_publication_writes_total") == before + 1, seconds=10
    )
    daemon.kill()
    await asyncio.to_thread(daemon.start)
    after = await values(store)
    assert {k: set(published(v)) for k, v in after.items()} == {
        k: set(published(v)) for k, v in stored.items()
    }
    assert daemon.metric("npu_vigil_publication_writes_total") == 0
