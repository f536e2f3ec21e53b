"""Finalizers and owner references on a cluster document, with a real aggregator and API server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.aggregator.daemon import OUTPUTS, entries
from tests.aggregator.nodes import T0, faulty, healthy, report, unhealthy
from tests.parts.watching import Watching, watching

if TYPE_CHECKING:
    from stores.base import Document, Store
    from tests.aggregator.conftest import Make
    from tests.parts.controlplane import ControlPlane

pytestmark = pytest.mark.apiserver

PLACE = "mindx-dl", "cluster-info-device-0"
PATH = f"/api/v1/namespaces/{PLACE[0]}/configmaps/{PLACE[1]}"
HOLDER = "example.com/holds"


@pytest.fixture
def kind() -> str:
    return "kubernetes"


async def test_finalizers_survive_and_an_owner_that_does_not_exist_goes(
    control_plane: ControlPlane, store: Store, make: Make
) -> None:
    async def patch(**metadata: object) -> None:
        body = {"metadata": metadata}
        await asyncio.to_thread(control_plane.request, "PATCH", PATH, body)

    daemon = make("kubernetes:", control_plane.kubeconfig)
    await store.put(report("n1", healthy()))
    await asyncio.to_thread(daemon.start)
    try:
        async with watching(store, OUTPUTS) as seen:

            def shown(seen: Watching) -> Document:
                return seen.documents[PLACE]

            await patch(finalizers=[HOLDER])
            await store.put(report("n1", faulty(update_time=T0 + 1)))
            await seen.until(lambda seen: unhealthy(entries(seen)["n1"]) == "Ascend910-3")
            assert shown(seen).finalizers == (HOLDER,)
            owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "no-such"}
            await patch(ownerReferences=[owner])
            await seen.until(lambda seen: bool(shown(seen).owners))
            await seen.until(lambda seen: not shown(seen).owners)
            assert shown(seen).finalizers == (HOLDER,)
        daemon.waits_for_text("made ConfigMap owner its owner, which does not exist")
        rows = daemon.ask("/api/v1/documents")[1]["documents"]
        (row,) = [one for one in rows if one["document"] == PLACE[1]]
        assert row["foreign_writes"] == 1
    finally:
        await patch(finalizers=None)
