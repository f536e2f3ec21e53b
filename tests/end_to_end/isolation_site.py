"""A node whose chips an operator isolates, and its aggregator, on one store."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from contract.names import DEVICE_INFO_NAMESPACE
from stores.address import open_store
from tests.aggregator.daemon import Daemon
from tests.end_to_end.node import Node
from tests.parts.verbs import run_vigil

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stores.base import Document
    from tests.parts.places import Cluster, Folder

CHIP = "Ascend910-3"
MANUAL = "ManuallySeparateNPU"


@dataclass
class Site:
    """A node, its aggregator, and the store that both use."""

    node: Node
    aggregator: Daemon

    def change(self, *arguments: str) -> tuple[int, Any]:
        """Exit status and JSON of a verb."""
        status, lines, errors = run_vigil(*arguments, *self.node.place.options, "--json")
        assert lines, (status, errors)
        return status, json.loads(lines[0])

    def document(self) -> Document:
        """Return the stored device-info with its annotations."""

        async def read() -> Document:
            options = self.node.place.options
            store = open_store(options[1], options[3] if len(options) > 2 else None)
            try:
                document = await store.get(DEVICE_INFO_NAMESPACE, self.node.document)
            finally:
                await store.close()
            assert document is not None
            return document

        return asyncio.run(read())


def site_on(place: Folder | Cluster, tmp_path: Path, built: Path) -> Iterator[Site]:
    node = Node(tmp_path, built, place)
    daemon = Daemon(tmp_path / "aggregator", *place.options)
    node.environment["VIGIL_HEARTBEAT_INTERVAL_SECONDS"] = "1"
    node.start()
    try:
        node.up()
        node.ready()
        daemon.start()
        node.wait(
            lambda: any(
                one["node"] == "node-1" and one["heartbeat"] == "alive"
                for one in daemon.ask("/api/v1/nodes")[1]["nodes"]
            ),
            "the aggregator knows the node",
        )
        yield Site(node, daemon)
    finally:
        daemon.stop()
        node.close()
