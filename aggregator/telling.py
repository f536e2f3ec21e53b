"""Tells whoever listens what changed: jobs' subscribers, HTTP clients, the history.

Nobody who listens can hold up the pipeline: what is told here is put down and sent by others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator.changes import Changes
from contract.cluster_info import faults_of, read_device_entry
from contract.names import device_info_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aggregator.grpc.server import GrpcServer
    from aggregator.history import History
    from aggregator.jobs.board import Board
    from aggregator.labelling import Labelling
    from aggregator.moment import Moment
    from aggregator.pipeline import Pipeline
    from aggregator.rank_tables.part import RankTables
    from aggregator.stream import Stream
    from aggregator.world import World
    from contract.cluster_device import CodeFault

_NO_FAULTS = '-Fault":"[]"'


class Telling:
    """Knows everybody who listens."""

    def __init__(
        self,
        pipeline: Pipeline,
        world: World,
        board: Board,
        tables: RankTables,
        stream: Stream,
        history: History,
        labelling: Labelling,
    ) -> None:
        self.server: GrpcServer | None = None
        """Where clients of ClusterD listen, if they are served."""
        self._pipeline = pipeline
        self._world = world
        self._board = board
        self._tables = tables
        self._stream = stream
        self.history = history
        self._labelling = labelling
        self._changes = Changes()

    async def seed(self, now: Moment) -> None:
        """What an earlier run has told of is no news; all that is published else now is. What it
        told of is in the history, and where that is lost, in the documents that it wrote.
        """
        told = await self.history.standing()
        if told is None:
            self._seed_from_documents()
            self.history.begin(self._changes.standing)
            return
        self._changes.take_over(told)
        pipeline = self._pipeline
        for node in sorted(told.keys() - pipeline.nodes - pipeline.dirty):
            changes = self._changes.observe(node, pipeline.published(node), now.wall_ms)
            self._stream.send(changes)
            self.history.note(changes)

    def _seed_from_documents(self) -> None:
        pipeline = self._pipeline
        for node in pipeline.nodes:
            entry = pipeline.device.entries.get(node)
            faults: tuple[CodeFault, ...] = ()
            if entry is not None and _NO_FAULTS not in entry.text:
                key = device_info_name(node)
                faults = faults_of(read_device_entry(key, entry.text, key)[1], key)
            self._changes.seed(node, pipeline.published(node), faults)

    def after(self, moved: Iterable[str], now: Moment) -> None:
        """The pipeline has made a step. ``moved``: nodes whose Node, pods or jobs changed."""
        changed = self._pipeline.changed
        for node in sorted(changed):
            changes = self._changes.observe(node, self._pipeline.published(node), now.wall_ms)
            if changes:
                self._stream.send(changes)
                self.history.note(changes)
        for node in moved:
            self._tables.set_pods(node, self._world.pods_on(node))
        self._board.changed(changed.union(moved), now)
        jobs, services = self._board.take_changed_jobs(), self._tables.take_changed_tables()
        if jobs:
            self._labelling.wake.set()
        if self.server is not None:
            self.server.changed(jobs)
            self.server.tables_changed(services)
