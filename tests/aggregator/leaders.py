"""Two real aggregators of one cluster, and a judge of everything that they publish."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.documents.cluster_info import cluster_device_index
from stores.base import Changed, DocumentsListed
from tests.aggregator.daemon import entries
from tests.aggregator.nodes import T0, published, report
from tests.contract.documents.node_documents import config
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stores.base import Document
    from tests.aggregator.daemon import Daemon
    from tests.parts.watching import Watching

LEASE_SECONDS = max(2, round(patience(2)))
"""The shortest one that may be configured; a leader that stands still for longer leads no more."""


def numbered(node: str, number: int) -> Document:
    """Return the device-info that ``node`` publishes in its state ``number``."""
    data = config(update_time=T0 + number, SuperPodID=number)
    return report(node, data)


def leads(daemon: Daemon) -> bool:
    """Return whether this aggregator writes."""
    return bool(daemon.ask("/api/v1/leader")[1]["leader"]["leads"])


def role(daemon: Daemon) -> str:
    """Return the role on its page."""
    found: str = daemon.ask("/api/v1/leader")[1]["leader"]["role"]
    return found


def states(seen: Watching) -> dict[str, int]:
    """Return node to the number of its state, of all documents that a watch shows together."""
    return {node: entry["SuperPodID"] for node, entry in entries(seen).items()}


def judge(seen: Watching) -> None:
    """Check that no state and no stamp went back, and that no node was in two documents."""
    stamps: dict[str, int] = {}
    numbers: dict[str, int] = {}
    homes: dict[str, str] = {}
    for document in every_document(seen):
        for node, entry in published(document.data[document.name]).items():
            assert homes.setdefault(node, document.name) == document.name, f"{node} moved"
            number, stamp = entry["SuperPodID"], entry["UpdateTime"]
            if number == numbers.get(node):
                assert stamp == stamps[node], f"{node} was stamped anew without a change"
                continue
            assert number > numbers.get(node, -1), f"{node}: {number} after {numbers[node]}"
            assert stamp > stamps.get(node, -1), f"{node}: stamp {stamp} after {stamps[node]}"
            numbers[node], stamps[node] = number, stamp


def every_document(seen: Watching) -> Iterator[Document]:
    """Yield each state of each device document that the watch has shown, in order."""
    for event in seen.events:
        shown = event.documents if isinstance(event, DocumentsListed) else ()
        if isinstance(event, Changed):
            shown = (event.document,)
        yield from (one for one in shown if cluster_device_index(one.name) is not None)
