"""The notifiers of a leader and of its follower, without a history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator.inputs.cluster_state import ClusterState
from aggregator.jobs.job_view import JobView
from aggregator.notify.notifier import Notifier
from aggregator.notify.pod_labels import PodLabelWriter
from aggregator.rank_tables.plugin import RankTables
from service.election.leadership import AlwaysLeader
from service.pages.event_stream import Stream
from tests.aggregator.dpu_faults.scene import without_documents
from tests.aggregator.nodes import healthy, instant
from tests.aggregator.pipelines import LeaderAndFollower, listed
from tests.aggregator.pipelines import PendingPipeline as Nodes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from contract.pages.changes import FaultChange


class Book:
    """Instead of a history."""

    def __init__(self) -> None:
        self.changes: list[FaultChange] = []

    async def published_levels(self) -> None:
        """Return that nothing is known of an earlier run."""

    def begin_levels(self, standing: object) -> None:
        """Record the published levels."""

    def begin_span(self) -> None:
        """Record from when on everything is recorded."""

    def record(self, changes: Iterable[FaultChange]) -> None:
        self.changes += changes


class Replica:
    """The reports of one of two replicas."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.book = Book()
        cluster_state = ClusterState([True])
        job_view = JobView(cluster_state, nodes.pipeline.published)
        self.notifier = Notifier(
            nodes.pipeline,
            cluster_state,
            job_view,
            RankTables(1),
            Stream("1"),
            self.book,  # type: ignore[arg-type]
            PodLabelWriter((), job_view.labels, AlwaysLeader("")),
            without_documents(),
        )

    @property
    def rows(self) -> list[tuple[str, str | None]]:
        """Return chip and level, as they were reported."""
        return [(one.subject, one.level) for one in self.book.changes]


class Pair(LeaderAndFollower):
    """A leader and its follower, and their reports."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Replica(self.leader), Replica(self.follower)
        self.observe(0, listed(n1=healthy(), n2=healthy()))

    async def begin(self) -> Pair:
        """Begin without anything reported before."""
        await self.first.notifier.seed(instant(0))
        await self.second.notifier.seed(instant(0))
        return self

    def observe(self, at: float, *events: object) -> None:
        super().observe(at, *events)
        if hasattr(self, "second"):
            self.first.notifier.inform((), instant(at), leads=True)
            self.second.notifier.inform((), instant(at), leads=False)

    def publish(self, at: float) -> None:
        self.leader.write(instant(at))
        for one in self.stored():
            followed = self.follower.pipeline.follow(one, instant(at))
            self.second.notifier.observe_published(*followed, instant(at))
