"""Tells public faults which nodes and chips there are, from documents, Nodes and pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator.intake import newest
from aggregator.public_faults.places import KnownPlaces

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aggregator.pipeline import Pipeline
    from aggregator.world import World


class ClusterPlaces(KnownPlaces):
    """Places as the pipeline's documents and the world tell them."""

    def __init__(self, pipeline: Pipeline, world: World) -> None:
        super().__init__()
        self._pipeline = pipeline
        self._world = world

    def look(self, nodes: Iterable[str]) -> None:
        """Something was told of these nodes."""
        for node in nodes:
            report = newest(self._pipeline.device.inboxes, node)
            used = self._world.facts(node).used or ()
            self.see_node(node, self._world.node(node))
            self.see_report(node, None if report is None else report.record, used)
        if not self.synced:
            self._sync()

    def _sync(self) -> None:
        """Whether nobody is unknown any more only because nothing was read yet."""
        self.synced = all(
            source.devices.listed and self._world.nodes_heard(number).answered
            for number, source in enumerate(self._pipeline.sources)
        )
        if self.synced:
            # The first list of Nodes is told of by no node.
            for node in self._world.nodes():
                self.see_node(node, self._world.node(node))
