"""An independent reader of cluster-info: remembers each node and chip that was published ill.

It fails on any that turns healthy or is left out before the test allows that.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

from stores.base import Changed, Document, DocumentsListed
from tests.aggregator.daemon import OUTPUTS
from tests.parts.tasks import beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from stores.base import Store

_DEVICE = "mindx-dl-deviceinfo-"
_NODE = "mindx-dl-nodeinfo-"


class ChipReader:
    """What was shown, and what should not have been."""

    def __init__(self) -> None:
        self.ill: dict[str, str] = {}
        """The unhealthy chips of each node, as they were shown first."""
        self.lost: set[str] = set()
        """Nodes that were shown ``UnHealthy``."""
        self.healthy: set[str] = set()
        """Nodes whose chips were all shown healthy, after they may have been."""
        self.dropped: set[str] = set()
        """Nodes that were left out, after they may have been."""
        self.wrong: list[str] = []
        self.documents = 0
        self._may_end: set[str] = set()
        self._homes: dict[str, str] = {}
        self._lately: set[str] = set()

    def may_end(self, nodes: Iterable[str]) -> None:
        """Allow these nodes to end from now on."""
        self._may_end |= set(nodes)

    @property
    def shown(self) -> frozenset[str]:
        """Return the nodes whose document of chips was shown since ``forget_documents``."""
        return frozenset(node for node, home in self._homes.items() if home in self._lately)

    def forget_documents(self) -> None:
        """Begin ``shown`` anew after the store lost everything; what was ill must remain ill."""
        self._lately.clear()

    def take(self, document: Document) -> None:
        """Read a document as a scheduler does."""
        self.documents += 1
        self._lately.add(document.name)
        entries: dict[str, Any] = json.loads(document.data[document.name] or "{}")
        if document.name.startswith("cluster-info-device-"):
            shown = {key.removeprefix(_DEVICE): entry for key, entry in entries.items()}
            self._take_devices(document.name, shown)
        elif document.name == "cluster-info-node-cm":
            self._take_nodes({key.removeprefix(_NODE): entry for key, entry in entries.items()})

    def _take_devices(self, name: str, shown: dict[str, dict[str, Any]]) -> None:
        for node, entry in shown.items():
            (ill,) = (
                text for key, text in entry["DeviceList"].items() if key.endswith("-Unhealthy")
            )
            self._homes[node] = name
            if ill:
                self.ill.setdefault(node, ill)
            elif node in self.ill:
                self._end(node, self.healthy, f"all chips of {node} are healthy")
        for node in [one for one, home in self._homes.items() if home == name]:
            if node not in shown:
                del self._homes[node]
                self._end(node, self.dropped, f"{node} is left out")

    def _take_nodes(self, shown: dict[str, dict[str, Any]]) -> None:
        lost = {node for node, entry in shown.items() if entry["NodeStatus"] == "UnHealthy"}
        for node in self.lost - lost:
            self._end(node, self.healthy, f"{node} is lost no more")
        self.lost = lost

    def _end(self, node: str, book: set[str], what: str) -> None:
        if node in self._may_end:
            book.add(node)
        else:
            self.wrong.append(what)

    @contextlib.asynccontextmanager
    async def reading(self, store: Store) -> AsyncIterator[None]:
        """Follow the cluster documents of ``store`` for the length of the block."""

        async def follow() -> None:
            async for event in store.watch(OUTPUTS):
                match event:
                    case DocumentsListed(documents):
                        for document in documents:
                            self.take(document)
                    case Changed(document):
                        self.take(document)

        async with beside(follow()):
            yield
        assert self.documents, "nothing was read"
        assert self.wrong == []
