"""Documents of recordings, and what a verb reads of a directory."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from contract.names import CLUSTER_LABEL, CLUSTER_NAMESPACE
from stores.address import open_store
from stores.base import Beat, Document
from tests.cluster.recorded import recorded
from vigil.sources.store_contents import StoreContents, read_causes, read_contents

if TYPE_CHECKING:
    from pathlib import Path


def contents(
    directory: Path, *documents: Document, beats: tuple[Beat, ...] = (), node: str | None = None
) -> StoreContents:
    """Return what is read of these documents, written to a directory."""

    async def read() -> StoreContents:
        store = open_store(f"directory:{directory}")
        for document in documents:
            await store.put(document)
        for beat in beats:
            await store.beat(beat)
        found = await read_contents(store, node)
        if node is not None:
            found = await read_causes(store, found, node)
        await store.close()
        return found

    return asyncio.run(read())


def cluster_info(name: str, value: str) -> Document:
    return Document(CLUSTER_NAMESPACE, name, {name: value}, dict([CLUSTER_LABEL]))


def recorded_cluster_info(recording: str, name: str) -> Document:
    """Return what the real ClusterD published last in a recording."""
    found = [one for one in recorded(recording)["observed"] if one.get("name") == name]
    return cluster_info(name, found[-1]["data"][name])


def inputs(recording: str, having: str = "") -> dict[str, Document]:
    """Return what a recording gave the real ClusterD last, with the text ``having`` in it."""
    found = {}
    for step in recorded(recording)["steps"]:
        if step["do"] == "put-configmap" and having in str(step["object"].get("data", "")):
            one = step["object"]
            labels = one.get("labels") or {}
            data = one.get("data") or {}
            found[one["name"]] = Document(one["namespace"], one["name"], data, labels)
    return found
