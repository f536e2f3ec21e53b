"""A pre-separated chip waits for its pod: real pods, a real API server, a real aggregator."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from stores.address import open_store
from tests.aggregator.daemon import OUTPUTS, entries
from tests.aggregator.nodes import report, unhealthy
from tests.contract.documents.node_documents import config, fault
from tests.parts import pods
from tests.parts.watching import Watching, watching

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.aggregator.conftest import Make
    from tests.parts.controlplane import ControlPlane


def shows(chips: str) -> Callable[[Watching], bool]:
    """Return a condition: these chips of n1 are published as unhealthy."""
    return lambda seen: "n1" in entries(seen) and unhealthy(entries(seen)["n1"]) == chips


@pytest.mark.apiserver
async def test_a_chip_is_separated_when_its_pod_is_done(
    control_plane: ControlPlane, make: Make
) -> None:
    store = open_store("kubernetes:", control_plane.kubeconfig)
    pods.make(control_plane, "one", "n1", "Ascend910-1")
    faults = [fault(chip, "PreSeparateNPU", "80E21007") for chip in (1, 3)]
    await store.put(report("n1", config(faults)))
    daemon = make("kubernetes:", control_plane.kubeconfig)
    async with watching(store, OUTPUTS) as seen:
        await asyncio.to_thread(daemon.start)
        # Never anything else: pods are known before the first publication.
        await seen.until(shows("Ascend910-3"))
        stamp = entries(seen)["n1"]["UpdateTime"]
        pods.make(control_plane, "two", "n1", "Ascend910-3")
        await seen.until(shows(""))
        assert entries(seen)["n1"]["UpdateTime"] > stamp
        pods.end(control_plane, "one", "Succeeded")
        await seen.until(shows("Ascend910-1"))
        pods.delete(control_plane, "two")
        await seen.until(shows("Ascend910-1,Ascend910-3"))
    assert daemon.ask("/api/v1/documents")[1]["stores"][0]["pods"] == 0
    log = daemon.log.read_text()
    assert log.count("has no PodGroups") == 1
    assert "cannot be read" not in log
    await store.close()
