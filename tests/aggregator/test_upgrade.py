"""After upstream's ClusterD, or an earlier release of ours: no reader misses or doubles a node."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from aggregator.cluster_documents.shards import FILL
from contract.documents.cluster_device import render_device_entry
from contract.documents.cluster_info import cluster_device_name, member, value_of
from contract.documents.forget_record import ForgetRecord
from contract.names import CLUSTER_LABEL, CLUSTER_NAMESPACE, device_info_name
from stores.address import open_store
from stores.base import Document
from tests.aggregator.daemon import OUTPUTS
from tests.aggregator.nodes import (
    T0,
    faulty,
    forget_document,
    healthy,
    published,
    record,
    report,
    unhealthy,
)
from tests.parts.watching import Watching, watching

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.aggregator.conftest import Make

RECORD = record(healthy())
NODES = [f"node-{number:04}" for number in range(760)]
GONE = ["gone-1", "gone-2", "gone-3"]
TOUCH_SECONDS = 1.0


def earlier(index: int, nodes: Iterable[str]) -> Document:
    """Return a cluster document that an earlier run left."""
    name = cluster_device_name(index)
    entries = ((node, render_device_entry(node, RECORD, T0)) for node in sorted(nodes))
    text = value_of(member(device_info_name(node), entry) for node, entry in entries)
    return Document(CLUSTER_NAMESPACE, name, {name: text}, dict([CLUSTER_LABEL]))


def shown(seen: Watching) -> dict[str, set[str]]:
    """Return the nodes in each document, as a reader knows it."""
    return {
        name: set(published(document.data[name])) for (_, name), document in seen.documents.items()
    }


async def test_nodes_stay_where_they_were_and_surplus_documents_become_empty(
    tmp_path: Path, make: Make
) -> None:
    url = f"directory:{tmp_path / 'store'}"
    store = open_store(url)
    # Larger than ours, not in order, and a last one that only has nodes that are no more.
    first, second = set(NODES[40:740]), {*NODES[:40], *GONE[:1]}
    for document in (earlier(0, first), earlier(1, second), earlier(2, GONE[1:])):
        await store.put(document)
    for node in NODES:
        await store.put(report(node, healthy()))
    for node in GONE:
        await store.put(forget_document(ForgetRecord(node, (T0 + 1) * 1000, "a test")))
    daemon = make(url, None, "--touch-period-seconds", str(TOUCH_SECONDS))
    doubled: set[str] = set()
    missed: set[str] = set()

    def look(seen: Watching) -> bool:
        held = Counter(node for nodes in shown(seen).values() for node in nodes)
        doubled.update(node for node, times in held.items() if times > 1)
        missed.update(first.union(second) - set(GONE) - held.keys())
        return shown(seen).get(cluster_device_name(2)) == set() and not held.keys() & set(GONE)

    async with watching(store, OUTPUTS) as seen:
        looking = asyncio.create_task(seen.until(look))
        await asyncio.to_thread(daemon.start)
        await store.put(report(NODES[100], faulty(update_time=T0 + 1)))
        await looking
        await seen.until(lambda _: unhealthy_in(seen, 0, NODES[100]) == "Ascend910-3")
        for _ in range(2):
            now = shown(seen)
            assert now[cluster_device_name(0)] == first
            assert now[cluster_device_name(1)] == {*NODES[:40], *NODES[740:]}
            assert now[cluster_device_name(2)] == set()
            daemon.kill()
            await asyncio.to_thread(daemon.start)
            assert daemon.metric("npu_vigil_publication_writes_total") == 0
    assert len(earlier(0, first).data[cluster_device_name(0)]) > 2 * FILL
    assert (doubled, missed) == (set(), set())
    await store.close()


def unhealthy_in(seen: Watching, index: int, node: str) -> str:
    """Return the unhealthy chips of a node in one cluster document."""
    name = cluster_device_name(index)
    return unhealthy(published(seen.documents[CLUSTER_NAMESPACE, name].data[name])[node])
