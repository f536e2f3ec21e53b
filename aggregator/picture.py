"""What people are shown of the aggregator: everything known now, and why a node is published so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aggregator.explanation import explain
from aggregator.status import (
    Status,
    document_statuses,
    fault_statuses,
    leader_status,
    liveness_status,
    node_status,
    node_statuses,
    server_fault_statuses,
    source_statuses,
    switch_fault_statuses,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from aggregator.beats import Listener
    from aggregator.explanation import Explanation
    from aggregator.history import History
    from aggregator.keeping import Keeping
    from aggregator.leading import Leadership
    from aggregator.moment import Clock
    from aggregator.pipeline import Pipeline
    from aggregator.publisher import Publisher
    from aggregator.status import Health
    from aggregator.world import World


class Picture:
    """Looks at everything, changes nothing."""

    def __init__(
        self,
        pipeline: Pipeline,
        world: World,
        listener: Listener,
        publishers: tuple[Publisher, ...],
        keeping: Keeping,
        leadership: Leadership,
        history: History,
        clock: Clock,
        *,
        health: Callable[[], Health],
        publish_lost: bool,
    ) -> None:
        self._pipeline = pipeline
        self._world = world
        self._listener = listener
        self._publishers = publishers
        self._keeping = keeping
        self._leadership = leadership
        self._history = history
        self._clock = clock
        self._health = health
        self._publish_lost = publish_lost
        self._started_at_ms = clock().wall_ms

    def status(self) -> Status:
        """The picture now."""
        now, pipeline = self._clock(), self._pipeline
        return Status(
            at_ms=now.wall_ms,
            started_at_ms=self._started_at_ms,
            health=self._health(),
            nodes=tuple(node_statuses(pipeline, self._listener, now)),
            liveness=liveness_status(self._listener, self._publish_lost),
            faults=tuple(fault_statuses(pipeline)),
            switch_faults=tuple(switch_fault_statuses(pipeline)),
            server_faults=tuple(server_fault_statuses(pipeline)),
            sources=tuple(source_statuses(pipeline, self._world)),
            documents=tuple(document_statuses(self._publishers, now.wall_ms)),
            leader=leader_status(self._leadership),
            kept=self._keeping.statuses(),
            history=self._history.status(),
        )

    def explain(self, node: str) -> Explanation | None:
        """Why a node is published as it is; ``None`` where nobody knows of it."""
        pipeline = self._pipeline
        status = node_status(pipeline, self._listener, node, self._clock())
        if status is None:
            return None
        facts = msgspec.structs.replace(self._world.facts(node), lost=node in pipeline.lost)
        return explain(pipeline, status, facts, self._acknowledged_everywhere())

    def _acknowledged_everywhere(self) -> dict[str, bool]:
        """Document to whether every store that is published to has it as it is to be."""
        return {
            name: all(
                (output := publisher.outputs.get(name)) is not None
                and output.acknowledged >= self._pipeline.revision(name)
                for publisher in self._publishers
            )
            for name in self._pipeline.documents
        }
