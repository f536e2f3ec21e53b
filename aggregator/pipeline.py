"""From what arrives to documents of three kinds, merging only the nodes that changed.

No I/O and no clock of its own; the daemon calls ``step`` when something arrived or is due.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aggregator.facts import Facts
from aggregator.intake import Source
from aggregator.kinds import DEVICE, NODE, SWITCH
from aggregator.lane import Lane
from aggregator.shards import Shards
from aggregator.sheet import Sheet
from aggregator.usage import Usage
from contract.cluster_node import missed
from contract.names import CLUSTER_NODE_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aggregator.intake import Feed
    from aggregator.moment import Moment
    from aggregator.shards import Value
    from contract.errors import DocumentError
    from stores.base import Document, UsageEvent, WatchEvent

LOST_ANNOTATION = "npu-vigil/lost"
"""On cluster-info-node-cm: the nodes that are in it because they fell silent, for the next run."""

_LOST_BYTES = 200 * 1024
"""Kubernetes allows 256 KiB of annotations on one object."""


class Pipeline:
    """The state of the aggregator between its inputs and its documents."""

    def __init__(self, stores: Sequence[str], touch_period_seconds: float) -> None:
        self.sources = tuple(Source(url) for url in stores)
        self.usage = tuple(Usage() for _ in stores)
        self.lost: frozenset[str] = frozenset()
        """Nodes that are published ``UnHealthy`` because they fell silent."""
        self.unreadable: list[DocumentError] = []
        """Documents of an earlier run that could not be taken over."""
        self._sheet = Sheet(NODE.key, missed)
        self.device = Lane(
            DEVICE, [s.device for s in self.sources], Shards(DEVICE.key), touch_period_seconds
        )
        self.switch = Lane(
            SWITCH, [s.switch for s in self.sources], Shards(SWITCH.key), touch_period_seconds
        )
        self.node = Lane(NODE, [s.node for s in self.sources], self._sheet, touch_period_seconds)
        self.lanes: tuple[Lane[Any], ...] = (self.device, self.switch, self.node)
        self._feeds: dict[str, tuple[Feed, ...]] = {
            DEVICE.name: tuple(source.devices for source in self.sources),
            SWITCH.name: tuple(source.devices for source in self.sources),
            NODE.name: tuple(source.nodes for source in self.sources),
        }
        self._dirty: set[str] = set()
        self._settled: set[str] = set()

    @property
    def documents(self) -> tuple[str, ...]:
        """Names of all documents there are, empty ones too."""
        return tuple(
            lane.kind.document(index) for lane in self.lanes for index in lane.shelf.indices
        )

    def restore(self, documents: Iterable[Document]) -> None:
        """Take over the documents of an earlier run.

        What cannot be read is overwritten, not obeyed.
        """
        documents = tuple(documents)
        for lane in self.lanes:
            self.unreadable += lane.restore(documents)
        for document in documents:
            if document.name == CLUSTER_NODE_NAME:
                names = document.annotations.get(LOST_ANNOTATION, "").split(",")
                self.lost = frozenset(name for name in names if name in self.node.entries)
                self._note_lost()

    def adopt(self, documents: Iterable[Document]) -> frozenset[str]:
        """Count in documents that are not ours; they are to be empty. Returns their names."""
        documents = tuple(documents)
        return frozenset(
            lane.kind.document(index) for lane in self.lanes for index in lane.adopt(documents)
        )

    def observe(self, feed: Feed, event: WatchEvent, now: Moment) -> None:
        """Take in one event of a watch of a store."""
        self._dirty |= feed.observe(event, now.wall_ms)

    def observe_usage(self, source: int, event: UsageEvent) -> None:
        """Take in what pods use, as the store with this number says."""
        nodes = self.usage[source].observe(event)
        self._dirty |= self._known() if nodes is None else nodes

    def set_lost(self, nodes: frozenset[str]) -> None:
        """Publish these nodes, and no others, as lost."""
        self._dirty |= nodes ^ self.lost
        self.lost = nodes

    def step(self, now: Moment) -> frozenset[str]:
        """Bring the documents up to date; returns the names of those that changed."""
        self._settle()
        changed: set[str] = set()
        for lane in self.lanes:
            settled = lane.kind.name in self._settled
            indices: set[int] = set()
            for node in sorted(self._dirty | lane.due(now)):
                gone = self._was_deleted(lane, node) or (
                    settled and not self._is_present(lane, node)
                )
                indices |= lane.update(node, self._facts(node), now, gone=gone)
            indices |= lane.drop_healed(now)
            if lane is self.node:
                indices |= self._note_lost()
            changed |= {lane.kind.document(index) for index in indices}
        self._dirty.clear()
        for source in self.sources:
            for feed in source.feeds:
                feed.deleted.clear()
        return frozenset(changed)

    def _settle(self) -> None:
        """Once every store was listed, who is only in documents of an earlier run was deleted."""
        for lane in self.lanes:
            name = lane.kind.name
            if name not in self._settled and all(feed.listed for feed in self._feeds[name]):
                self._settled.add(name)
                self._dirty |= lane.entries.keys()

    def _is_present(self, lane: Lane[Any], node: str) -> bool:
        """Whether a document of the node says something of the kind, even one that is refused."""
        return any(feed.tells(lane.kind, node) for feed in self._feeds[lane.kind.name])

    def _was_deleted(self, lane: Lane[Any], node: str) -> bool:
        """Whether a document went since the last step: what it said does not hold any more, even
        if the node has a new one already, which may be refused or silent about the kind.
        """
        return any(node in feed.deleted for feed in self._feeds[lane.kind.name])

    def _facts(self, node: str) -> Facts:
        return Facts(self._used(node), node in self.lost)

    def _used(self, node: str) -> frozenset[str] | None:
        known = [chips for usage in self.usage if (chips := usage.of(node)) is not None]
        return frozenset().union(*known) if known else None

    def _known(self) -> set[str]:
        return {node for lane in self.lanes for node in lane.entries}

    def _note_lost(self) -> frozenset[int]:
        names, room = [], _LOST_BYTES
        for node in sorted(self.lost):
            room -= len(node) + 1
            if room < 0:
                break
            names.append(node)
        return self._sheet.annotate({LOST_ANNOTATION: ",".join(names)} if names else {})

    def acknowledged(self, name: str, revision: int) -> frozenset[str]:
        """Every store that is published to has this revision; returns documents that changed."""
        lane, index = self._lane(name)
        changed = lane.acknowledged(index, revision)
        return frozenset(lane.kind.document(index) for index in changed)

    def next_due_ms(self) -> int | None:
        """Steady time at which ``step`` wants to be called without an event."""
        due = [at for lane in self.lanes if (at := lane.next_due_ms()) is not None]
        return min(due, default=None)

    def value(self, name: str) -> Value:
        """What a document must say now."""
        lane, index = self._lane(name)
        return lane.shelf.value(index)

    def revision(self, name: str) -> int:
        """The revision of a document's value."""
        lane, index = self._lane(name)
        return lane.shelf.revision(index)

    def _lane(self, name: str) -> tuple[Lane[Any], int]:
        for lane in self.lanes:
            index = lane.kind.index(name)
            if index is not None:
                return lane, index
        raise KeyError(name)
