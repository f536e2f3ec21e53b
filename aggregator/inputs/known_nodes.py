"""Which nodes and chips exist, by documents, Nodes and pods; public faults need it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from aggregator.inputs.node_documents import newest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aggregator.inputs.cluster_state import ClusterState
    from aggregator.inputs.node_documents import DocumentSource
    from service.clock import Instant

_log = logging.getLogger(__name__)

# A cluster has few kinds of servers; a limit, because chip names come from documents.
_MAX_EQUAL = 256

PATIENCE_MS = 5000
"""Longest wait of public faults of unknown nodes for a store that has not listed its nodes."""


class KnownNodes:
    """The nodes and chips in the documents of ``sources`` and in ``cluster_state``.

    A chip that a pod uses may be in no list of the node's document (``device-plugin#1.3``),
    and document and pod do not change at the same moment, so a chip that was seen once is known as
    long as its node is.
    """

    def __init__(self, sources: Sequence[DocumentSource], cluster_state: ClusterState) -> None:
        self.synced = False
        self._sources = sources
        self._cluster_state = cluster_state
        self._chips: dict[str, frozenset[str]] = {}
        self._equal: dict[frozenset[str], frozenset[str]] = {}
        """Most nodes have chips of the same names: one set for all of them."""
        self._until_ms: int | None = None

    def has_node(self, node: str) -> bool:
        """Return whether a Node or a device-info of this name exists."""
        if self._cluster_state.node(node) is not None:
            return True
        return any(node in source.devices.present for source in self._sources)

    def chips(self, node: str) -> frozenset[str] | None:
        """Return the chips in the node's device-info; ``None`` where they are not known."""
        return self._chips.get(node)

    def node_of(self, serial_number: str) -> str | None:
        """Return the only node with this serial number; ``None`` where there is no such.

        The empty number is of no node (defect B9).
        """
        state = self._cluster_state.node_by_serial_number(serial_number)
        return None if state is None else state.name

    def update(self, nodes: Iterable[str], now: Instant) -> None:
        """Update the known chips of these nodes."""
        for node in nodes:
            report = newest((source.device for source in self._sources), node)
            if report is not None:
                before = self._chips.get(node, frozenset())
                seen = report.record.chips.union(self._cluster_state.node_context(node).used or ())
                # Only ever more chips, as long as the node exists (see the class).
                if not seen <= before:
                    if len(self._equal) >= _MAX_EQUAL:
                        self._equal.clear()
                    chips = before | seen
                    self._chips[node] = self._equal.setdefault(chips, chips)
            # A document that is refused or late must not make the chips unknown.
            elif node in self._chips and not self.has_node(node):
                del self._chips[node]
        if not self.synced:
            self._sync(now)

    def _sync(self, now: Instant) -> None:
        """Set ``synced`` once all stores have listed their nodes, or after ``PATIENCE_MS``."""
        sources = self._sources
        if self._until_ms is None:
            self._until_ms = now.steady_ms + PATIENCE_MS
        silent = []
        for number, source in enumerate(sources):
            nodes = self._cluster_state.nodes_of_store(number)
            if not source.devices.listed or (nodes.is_followed and not nodes.known):
                silent.append(source.url)
        listed = any(source.devices.listed for source in sources)
        # One store that was listed is enough after the patience: a store that is away must not hold
        # all faults.
        self.synced = not silent or (listed and now.steady_ms >= self._until_ms)
        if self.synced and silent:
            _log.warning(
                "%s has not listed its nodes: public faults of unknown nodes are refused",
                ", ".join(silent),
            )
