"""Informs subscribers of jobs, HTTP clients, the history and the log what changed.

None of them can hold up the pipeline: changes are queued here and sent by other tasks. The log has
new and deleted nodes, and faults that take chips or nodes out of use, at most ten lines a minute
together: a fleet of thousands changes all the time, and too many lines hide those that matter. All
that is not logged one by one is counted.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from aggregator.agent_reports.blindness import BlindChanges
from aggregator.agent_reports.fault_answers import ChipFaultDetails
from aggregator.notify.changes import ChangeDetector
from contract.codes.chip_codes import is_network
from contract.codes.levels import takes_out
from contract.pages.changes import JobChange
from contract.plural import plural
from service.log.paced_lines import NAMED, PacedLines
from service.log.shortened import shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from aggregator.cluster_documents.published_node import PublishedNode
    from aggregator.dpu_faults.plugin import DpuFaults
    from aggregator.grpc.server import GrpcServer
    from aggregator.inputs.cluster_state import ClusterState
    from aggregator.jobs.job_view import JobView
    from aggregator.merge.pipeline import Pipeline
    from aggregator.notify.history import ClusterHistory
    from aggregator.notify.pod_labels import PodLabelWriter
    from aggregator.rank_tables.plugin import RankTables
    from contract.documents.cluster_device import CodeFault
    from contract.pages.changes import FaultChange
    from pacing.cooperative import Work
    from service.clock import Clock, Instant
    from service.pages.event_stream import Stream

_log = logging.getLogger(__name__)


class NodeLog:
    """Logs changes while this replica leads; a follower leaves that to its leader."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._came = PacedLines(_log, logging.INFO, 1, "node %s came", "%d nodes came: %s")
        self._went = PacedLines(_log, logging.INFO, 1, "node %s is gone", "%d nodes are gone: %s")
        self._out = PacedLines(
            _log, logging.WARNING, 3, many="%d faults take chips, switches or nodes out: %s"
        )
        self._over = PacedLines(_log, logging.INFO, 2, many="%d faults or levels are over: %s")
        self._refused = PacedLines(_log, logging.WARNING, 2, many="%d documents are refused: %s")
        self._good = PacedLines(
            _log, logging.INFO, 1, many="%d documents are good again or gone: %s"
        )

    def flush(self) -> None:
        """Log what waits for a later line, at once: the process ends."""
        for lines in (self._came, self._went, self._out, self._over, self._refused, self._good):
            lines.flush()

    def begin_leading(self, nodes: Iterable[str]) -> None:
        """Log none of ``nodes`` as new: the leader before has published them."""
        self._known = set(nodes)

    def log_standing(self, standing: Mapping[str, Mapping[tuple[str, str], str]]) -> None:
        """Log the faults that are published when this replica begins to lead."""
        faults = sorted(_standing(standing))
        if faults:
            texts = [text for _, text in faults]
            _log.warning(
                "%s on %s: %s",
                plural(len(texts), "fault"),
                plural(len(standing), "node"),
                shortened(texts, NAMED, separator="; "),
            )

    def observe_node(self, node: str, *, is_known: bool) -> None:
        """Log a new or deleted node."""
        if is_known and node not in self._known:
            self._known.add(node)
            self._came.add((node,))
        elif not is_known and node in self._known:
            self._known.discard(node)
            self._went.add((node,))

    def observe_changes(self, changes: Iterable[FaultChange]) -> None:
        """Log faults that take something out of use now, and those that do so no more."""
        for change in changes:
            network = is_network(change.code)
            where = f"node {change.node}: {change.subject} {change.code}"
            if takes_out(change.level, is_network=network):
                self._out.add((f"{where}: {change.was or 'nothing'} -> {change.level}",))
            elif takes_out(change.was, is_network=network):
                self._over.add((f"{where}: {change.was} -> {change.level or 'nothing'}",))

    def refuse(self, node: str, name: str, reason: str) -> None:
        """Log that a document of a node is refused."""
        self._refused.add((f"node {node}: its {name} document is refused: {reason}",))

    def accept(self, node: str, name: str) -> None:
        """Log that a document of a node is not refused any more."""
        self._good.add((f"node {node}: its {name} document is good again or gone",))


def _standing(
    standing: Mapping[str, Mapping[tuple[str, str], str]],
) -> Iterator[tuple[bool, str]]:
    """Yield what is published, each with whether it takes nothing out of use: such lines
    sort last.
    """
    for node, levels in standing.items():
        for (subject, code), level in levels.items():
            is_mild = not takes_out(level, is_network=is_network(code))
            yield is_mild, f"node {node}: {subject} {code} {level}"


_NO_FAULTS = '-Fault":"[]"'


@dataclass(eq=False)
class Notifier:
    """Passes changes to everything that is informed of them.

    ``server`` is the gRPC server of ClusterD's clients, if they are served.
    """

    pipeline: Pipeline
    cluster_state: ClusterState
    job_view: JobView
    tables: RankTables
    stream: Stream
    history: ClusterHistory
    pod_labels: PodLabelWriter
    dpu_faults: DpuFaults
    server: GrpcServer | None = None

    def __post_init__(self) -> None:
        self.log = NodeLog()
        self._changes = ChangeDetector()
        self._blind = BlindChanges(self.pipeline)
        self._nodes_hit: dict[str, tuple[str, ...]] = {}
        """The nodes that hit a job, by job, as the stream has them."""
        self._computed: set[str] = set()
        """Nodes of which a follower computed something that its leader has not published yet."""
        self._is_seeded = False
        self._has_dpus = False

    async def seed(self, now: Instant) -> None:
        """Take over what an earlier run has published; differences to it are changes.

        Its levels are in the history, and where that is lost, in the documents that it wrote.
        """
        rows = await self.history.published_levels()
        pipeline = self.pipeline
        if rows is None:
            for node in pipeline.nodes:
                self._changes.seed(node, pipeline.published(node), self._shown_faults(node))
            self.history.begin_levels(self._changes.levels)
        else:
            self._changes.take_over(rows)
            unwritten = pipeline.dirty - pipeline.nodes
            for node in sorted((rows.keys() | pipeline.nodes) - unwritten):
                self._observe(node, now)
        self._blind.pop_changes(now.wall_ms)  # blind sources of an earlier run are not a change
        self._is_seeded = True
        self.history.begin_span()

    def levels_of(self, node: str) -> Mapping[tuple[str, str], str]:
        """Return what is published of a node now: levels by subject and code."""
        return self._changes.levels_of(node)

    def began_ms(self, node: str, subject: str, code: str) -> int | None:
        """Return since when a fault is published; ``None`` where this process does not know."""
        return self._changes.began_ms(node, subject, code)

    def observe_published(
        self, differ: frozenset[str], present: frozenset[str], now: Instant
    ) -> None:
        """Observe a document that another leader has published.

        Entries of the nodes that ``differ`` are not those computed here; those of others that were
        ``present`` in it are.
        """
        if not self._is_seeded:
            return
        confirmed = self._computed & present
        self._computed -= confirmed
        for node in sorted(differ | confirmed):
            self._observe(node, now)

    def _shown_faults(self, node: str) -> tuple[CodeFault, ...]:
        """Return the faults of chips in a restored entry, whose record has none.

        An entry of this process has a complete record, so its text is not read again for each
        change.
        """
        device = self.pipeline.device
        entry = device.entries.get(node)
        if entry is None or entry.whole or _NO_FAULTS in entry.text:
            return ()
        key = device.kind.key(node)
        return device.kind.shown(key, entry.text, key)[1].record.faults

    def begin_leading(self, clock: Clock) -> Work[None]:
        """Observe that this replica leads: what it computed is published from now on.

        Yields after each node. Changes of nodes may be observed in between.
        """
        self._computed.clear()
        self.log.begin_leading(self.pipeline.nodes)
        return self._observe_all(sorted(self._changes.nodes | self.pipeline.nodes), clock)

    def _observe_all(self, nodes: Iterable[str], clock: Clock) -> Work[None]:
        for node in nodes:
            # Read for each: rows of the history are in the order of their times.
            self._observe(node, clock())
            yield 1
        self.log.log_standing(self._changes.levels)

    def _observe(self, node: str, now: Instant) -> tuple[FaultChange, ...]:
        published, shown = self.pipeline.published(node), self._shown_faults(node)
        dpu = self.dpu_faults.levels(node)
        changes = self._changes.observe_node(node, published, now.wall_ms, shown, dpu)
        changes = self._answered(node, changes, published)
        self._send(node, changes)
        return changes

    def _send(self, node: str, changes: tuple[FaultChange, ...]) -> None:
        for change in changes:
            self.stream.send("change", change, {node})
        self.history.record(changes)

    def _inform_of_dpus(self, now: Instant, *, leads: bool) -> None:
        """Inform of changes in documents of RDMA plugins, which a follower reads as its leader."""
        for node in sorted(self.dpu_faults.pop_changed() | self._unlisted_dpus()):
            levels = self.dpu_faults.levels(node)
            if levels is not None:
                changes = self._changes.observe_dpus(node, levels, now.wall_ms)
                self._send(node, changes)
                if leads:
                    self.log.observe_changes(changes)
        for change in self.dpu_faults.documents.pop_blind_changes(now):
            self.stream.send("blind", change, {change.node})

    def _unlisted_dpus(self) -> frozenset[str]:
        """Return at the first list the nodes with faults whose documents may have gone before."""
        if self._has_dpus or not self.dpu_faults.documents.is_listed:
            return frozenset()
        self._has_dpus = True
        return self._changes.nodes

    def _answered(
        self, node: str, changes: tuple[FaultChange, ...], published: PublishedNode
    ) -> tuple[FaultChange, ...]:
        """Add the details that agents report now about the faults of chips that hold."""
        if not changes or published.device is None:
            return changes
        chips, answers = published.device.chips, ChipFaultDetails(self.pipeline, node)
        return tuple(
            change
            if change.level is None or change.subject not in chips
            else msgspec.structs.replace(
                change, **msgspec.structs.asdict(answers.of(change.subject, change.code))
            )
            for change in changes
        )

    def inform(self, moved: Iterable[str], now: Instant, *, leads: bool) -> None:
        """Inform of a step of the pipeline. ``moved``: nodes whose Node, pods or jobs changed.

        What a follower computes is not published: it reports what its leader writes.
        """
        changed = self.pipeline.changed
        if leads:
            for node in sorted(changed):
                self.log.observe_node(node, is_known=self.pipeline.knows(node))
                self.log.observe_changes(self._observe(node, now))
        else:
            for node in changed:
                if self.pipeline.knows(node):
                    self._computed.add(node)
                else:
                    self._computed.discard(node)
        # What agents report of themselves is read, not published: a follower shows it as well.
        for change in self._blind.pop_changes(now.wall_ms):
            self.stream.send("blind", change, {change.node})
        self._inform_of_dpus(now, leads=leads)
        for node in moved:
            self.tables.set_pods(node, self.cluster_state.pods_on(node))
        self.job_view.changed(changed.union(moved), now)
        self._send_jobs(now)
        jobs, services = self.job_view.pop_changed_jobs(), self.tables.pop_changed_tables()
        if jobs:
            self.pod_labels.wake.set()
        if self.server is not None:
            self.server.changed(jobs)
            self.server.tables_changed(services)

    def _send_jobs(self, now: Instant) -> None:
        """Send for which jobs the impact changed."""
        for hit in self.job_view.pop_changed_impact():
            before = self._nodes_hit.pop(hit.job, ())
            nodes = tuple(node.node for node in hit.nodes)
            if nodes:
                self._nodes_hit[hit.job] = nodes
            concerned = tuple(sorted({*before, *nodes}))
            is_over = not nodes
            about = (hit.job, hit.namespace, hit.name, hit.health)
            change = JobChange(now.wall_ms, *about, concerned, is_over)
            self.stream.send("job", change, concerned)
