"""What the documents of a store show, without any daemon.

The reports of nodes, what is published of them, the kept state and the pods go into the pipeline of
an aggregator, at one instant. The functions that answer its pages then make the rows. Two things
differ from an aggregator ([decision 59](../../docs/decisions/059-documents-are-explained-once.md)).
What is published is what the store has, since this process publishes nothing. No node is alive or
silent, since one look shows no change of a heartbeat (decision 8): a node is lost only where
cluster-info has it so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from aggregator.api.explanation import ExplanationContext, explain
from aggregator.api.node_status import Heartbeats, node_statuses
from aggregator.inputs.cluster_state import ClusterState
from aggregator.inputs.known_nodes import KnownNodes
from aggregator.inputs.node_documents import DocumentSource, newest
from aggregator.liveness.lost_nodes import HeartbeatListing, ObservedHeartbeat
from aggregator.liveness.unread_heartbeats import Unread
from aggregator.merge.pipeline import Pipeline
from contract.codes.levels import ChipLevel
from contract.codes.reference import CodeKind
from contract.documents.cluster_info import entry_texts
from contract.errors import ConfigurationError, DocumentError, Problem
from contract.names import STATE_KEY, STATE_PREFIX
from contract.sentences import joined, message, names_in_short, sentence
from stores.base import DocumentsListed
from vigil.daemon_client import UnknownNode
from vigil.reports.explanation import NodeExplanation, PartExplanation, is_meant, parts_of
from vigil.reports.job_report import JobReport, job_rows
from vigil.reports.status_report import (
    StatusReport,
    blind_of,
    counts_of,
    levels_of_chips,
    rank,
    reasons_of_blind,
    reasons_of_faults,
    reasons_of_names,
    reasons_of_nodes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aggregator.advising.status import AdviceAbout
    from aggregator.merge.entry_table import EntryTable
    from contract.pages.aggregator_status import NodeStatus
    from contract.pages.explanation import ExplainedNode
    from stores.base import Beat, Document
    from vigil.reports.explanation import FaultExplanation
    from vigil.reports.status_report import FaultRow
    from vigil.sources.store_contents import StoreContents

SOURCE = message("documents of a store, without any daemon")
_HEARTBEAT_UNREAD = sentence("one look at its heartbeat shows no change of it")
_EARLIER, _UNREPORTED = "earlier", "unreported"
_TOUCH_SECONDS = 0.0
"""No document is touched here."""


class DocumentAnswers:
    """Answers from the documents at ``address``, about ``node`` only with one."""

    def __init__(self, contents: StoreContents, address: str, node: str | None = None) -> None:
        """Read the documents. Raises ``UnknownNode`` for a node that none is about."""
        self._contents = contents
        self._address = address
        self._about = node
        self._cluster_state = ClusterState([contents.pods is not None])
        source = DocumentSource(address)
        known_nodes = KnownNodes([source], self._cluster_state)
        states = {name: _texts(name, stored) for name, stored in contents.states.items()}
        self._public = None
        if states.get("public-faults"):
            # Loaded only where there is state of it: most clusters have none.
            from aggregator.public_faults.plugin import PublicFaultsPlugin

            self._public = PublicFaultsPlugin(known_nodes)
        self._pipeline = Pipeline(
            (source,),
            _TOUCH_SECONDS,
            node_context=self._cluster_state.node_context,
            public=self._public,
        )
        self._fill(states, known_nodes)
        self._heartbeats = _heartbeats(contents.beats, self._pipeline.lost, address)
        self._statuses = [self._judged(status) for status in self._node_statuses()]
        if node is not None and not self._statuses:
            text = sentence(
                "no document at {address} is about a node of this name", address=address
            )
            raise UnknownNode(node, text)

    def _fill(self, states: dict[str, dict[str, str]], known_nodes: KnownNodes) -> None:
        """Put everything into the pipeline, in the order in which an aggregator starts."""
        contents, pipeline, now = self._contents, self._pipeline, self._contents.at
        (source,) = pipeline.sources
        if contents.pods is not None:
            self._cluster_state.observe_pods(0, contents.pods)
        if contents.groups is not None:
            self._cluster_state.observe_jobs(0, contents.groups)
        pipeline.observe_event(source.devices, DocumentsListed(contents.device_infos), now)
        pipeline.observe_event(source.nodes, DocumentsListed(contents.node_infos), now)
        known_nodes.update(pipeline.dirty, now)
        processing = pipeline.processing
        processing.restore(states.get(processing.name, {}), now)
        restored = processing.nodes
        if self._public is not None:
            self._public.restore(states[self._public.name], now)
        cluster_infos = contents.cluster_infos
        if self._about is not None:
            cluster_infos = tuple(_only(pipeline, self._about, info) for info in cluster_infos)
        pipeline.show(cluster_infos, now)
        # Without the state of an aggregator, no one knows since when a fault is withheld.
        for node in processing.nodes - restored:
            for table in pipeline.tables:
                processing.forget(table.kind.name, node)

    def report(self) -> StatusReport:
        """Return what is wrong."""
        rows = tuple(self._fault_rows())
        blind = tuple(row for status in self._statuses for row in blind_of(status))
        levels = levels_of_chips(rows)
        # Chips without a fault are in no row, so they are counted as the rest.
        well = sum(map(self._chips, self._statuses)) - sum(levels.values())
        if well:
            levels[ChipLevel.NORMAL_NPU.value] = levels.get(ChipLevel.NORMAL_NPU, 0) + well
        return StatusReport(
            source=sentence(SOURCE),
            server=self._address,
            about=self._about or sentence("the cluster"),
            at_ms=self._contents.at.wall_ms,
            # Without a live agent nothing is known to be well: ``vigil status`` ends with 1.
            well=False,
            reasons=(
                *self._reasons(),
                *reasons_of_faults(rows, self._about),
                *reasons_of_blind(blind, self._about),
            ),
            not_known=tuple(self._not_known()),
            counts={
                message("nodes"): counts_of(status.state for status in self._statuses),
                message("chips"): dict(sorted(levels.items(), key=lambda item: rank(item[0]))),
            },
            facts={},
            faults=rows,
            blind=blind,
        )

    def explanation(self, part: str) -> NodeExplanation:
        """Return why the node, or ``part`` of it, is in its state.

        Raises ``ConfigurationError`` for a part that no document names.
        """
        (status,) = self._statuses
        node, answer = status.node, self._explained(status)
        parts = tuple(
            self._as_published(node, item)
            for item in parts_of(answer, part)
            if not part or is_meant(part, item.part)
        )
        if part and not parts:
            text = sentence("no document at {address} names this part", address=self._address)
            raise ConfigurationError("command line", [Problem(f"{node}/{part}", text)])
        faults = [fault for item in parts for fault in item.faults]
        blind = tuple(row for row in blind_of(status) if not part or is_meant(part, row.part))
        return NodeExplanation(
            source=sentence(SOURCE),
            server=self._address,
            node=node,
            part=joined("{before}, {part}", (item.part for item in parts)) if part else "",
            at_ms=self._contents.at.wall_ms,
            well=False,
            reasons=(
                *(() if part else self._reasons()),
                *reasons_of_faults((fault.fault for fault in faults), node),
                *reasons_of_blind(blind, node),
            ),
            not_known=tuple(self._not_known()),
            because=() if part else answer.because,
            documents=() if part else tuple(self._documents(node, faults)),
            parts=parts,
            blind=blind,
            jobs=(),
        )

    def jobs(self) -> JobReport:
        """Return the jobs with a pod on a chip or a node that has a fault."""
        # Loaded by this verb only.
        from aggregator.jobs.job_view import JobView

        pipeline = self._pipeline
        view = JobView(self._cluster_state, pipeline.published)
        view.changed(self._cluster_state.places | pipeline.nodes, self._contents.at)
        records = {node: entry.record for node, entry in pipeline.device.entries.items()}
        types = {node: record.chip_type for node, record in records.items()}
        # The view began now, and a job is hit for longer.
        rows = (msgspec.structs.replace(row, since_ms=None) for row in job_rows(view.hit(), types))
        return JobReport(
            source=sentence(SOURCE),
            server=self._address,
            at_ms=self._contents.at.wall_ms,
            not_known=(
                sentence(
                    "since when a job is hit, and jobs that are hit by what is in no document"
                ),
                sentence("whether these documents are current"),
                *self._contents.unread,
                *map(str, pipeline.unreadable),
            ),
            jobs=tuple(sorted(rows, key=lambda row: row.job)),
        )

    def _node_statuses(self) -> Iterator[NodeStatus]:
        for status in node_statuses(self._pipeline, self._heartbeats, self._contents.at):
            if self._about in (None, status.node):
                yield status

    def _judged(self, status: NodeStatus) -> NodeStatus:
        """Return a status as one look shows it."""
        # The store was read: what has no device-info here has none.
        state = _UNREPORTED if status.state == _EARLIER else status.state
        # When a heartbeat changed was not seen, and its own time is by the clock of its node.
        return msgspec.structs.replace(
            status, state=state, heartbeat_age_seconds=None, heartbeat_interval_seconds=None
        )

    def _explained(self, status: NodeStatus) -> ExplainedNode[AdviceAbout]:
        node, pipeline = status.node, self._pipeline
        node_context = self._cluster_state.node_context(node)
        context = ExplanationContext(
            node_context=msgspec.structs.replace(node_context, lost=node in pipeline.lost),
            standing=() if self._public is None else self._public.standing(node),
            heartbeat_problem=None if status.heartbeat_problem is None else _HEARTBEAT_UNREAD,
        )
        return explain(pipeline, status, context, {})

    def _fault_rows(self) -> Iterator[FaultRow]:
        for status in self._statuses:
            # Of ten thousand nodes few have something to explain.
            if self._has_faults(status.node):
                for part in parts_of(self._explained(status)):
                    for fault in self._as_published(status.node, part).faults:
                        yield fault.fault

    def _has_faults(self, node: str) -> bool:
        pipeline = self._pipeline
        published = pipeline.published(node)
        device = newest(pipeline.device.caches, node)
        switch = newest(pipeline.switch.caches, node)
        return bool(
            (published.device is not None and published.device.faults)
            or (published.switch is not None and published.switch.events)
            or (published.node is not None and published.node.faults)
            or (device is not None and device.record.faults)
            or (switch is not None and switch.record.events)
        )

    def _as_published(self, node: str, part: PartExplanation) -> PartExplanation:
        """Return a part with what cluster-info has of its faults."""
        faults = []
        for fault in part.faults:
            if self._table(fault.fault.kind).layout.home(node) is None:
                # No document is about the node, so nothing is withheld either.
                fault = msgspec.structs.replace(fault, published=None)
            else:
                row = msgspec.structs.replace(fault.fault, withheld=fault.published is None)
                fault = msgspec.structs.replace(fault, fault=row)
            faults.append(fault)
        return msgspec.structs.replace(part, faults=tuple(faults))

    def _table(self, kind: CodeKind) -> EntryTable[Any]:
        pipeline = self._pipeline
        if kind is CodeKind.SWITCH:
            return pipeline.switch
        return pipeline.node if kind is CodeKind.NODE else pipeline.device

    def _chips(self, status: NodeStatus) -> int:
        entry = self._pipeline.device.entries.get(status.node)
        report = newest(self._pipeline.device.caches, status.node)
        chips = frozenset[str]() if entry is None else entry.record.chips
        return len(chips if report is None else chips | report.record.chips)

    def _reasons(self) -> Iterator[str]:
        yield from map(str, self._pipeline.unreadable)
        for status in self._statuses:
            problems = [rejected.reason for rejected in status.rejected]
            if status.faults_problem is not None:
                problems.append(status.faults_problem)
            for problem in problems:
                yield problem if status.node == self._about else f"{status.node}: {problem}"
        yield from reasons_of_nodes(self._statuses, self._about)
        broken = [beat.node for beat in self._contents.beats if beat.is_broken]
        if broken:
            reason: dict[str, list[str]] = {sentence("the connection of the agent broke"): broken}
            yield from reasons_of_names(reason, self._about)

    def _not_known(self) -> Iterator[str]:
        yield sentence("whether agents are alive, and whether these documents are current")
        yield sentence("which jobs are hit, why a fault has its level, who leads")
        yield from self._contents.unread
        if not self._contents.cluster_infos and not any(
            text.startswith("cluster-info") for text in self._contents.unread
        ):
            yield sentence("what the scheduler reads: there is no cluster-info")
        silent = [status.node for status in self._statuses if status.blind is None]
        if silent:
            yield sentence("which sources are blind on {nodes}", nodes=names_in_short(silent))

    def _documents(self, node: str, faults: list[FaultExplanation]) -> Iterator[str]:
        """Yield which documents have the node, and whether they have what it reports."""
        other = {self._table(f.fault.kind) for f in faults if f.reported != f.published}
        for table in self._pipeline.tables:
            index = table.layout.home(node)
            if index is not None:
                text = "other faults than" if table in other else "the faults that"
                yield f"{table.kind.document(index)} has {text} the node reports"


def _texts(name: str, documents: tuple[Document, ...]) -> dict[str, str]:
    """Return the texts of a plugin's state by bucket."""
    prefix = f"{STATE_PREFIX}{name}-"
    return {
        document.name.removeprefix(prefix): document.data.get(STATE_KEY, "")
        for document in documents
        if document.name.startswith(prefix)
    }


def _only(pipeline: Pipeline, node: str, document: Document) -> Document:
    """Return a document of cluster-info without the entries of other nodes."""
    keys = {table.kind.key(node) for table in pipeline.tables}
    try:
        texts = entry_texts(document.data.get(document.name, ""), document.name)
    except DocumentError:
        # The pipeline reports it.
        return document
    # Keys are compared, not decoded: cluster-info has entries of 10,000 nodes.
    entries = {key: msgspec.Raw(text.encode()) for key, text in texts.items() if key in keys}
    value = msgspec.json.encode(entries).decode()
    return msgspec.structs.replace(document, data={document.name: value})


def _heartbeats(beats: tuple[Beat, ...], lost: frozenset[str], address: str) -> Heartbeats:
    observed = {
        beat.node: ObservedHeartbeat(
            holder=beat.holder,
            beaten_at_ms=beat.beaten_at_ms,
            interval_ms=int(beat.interval_seconds * 1000),
            changed_at_ms=0,
            counts_from_ms=0,
            blind=beat.blind,
        )
        for beat in beats
    }
    return Heartbeats(
        lost=lost,
        listings={address: HeartbeatListing(observed)},
        unread={address: Unread(_HEARTBEAT_UNREAD, is_long=False)},
    )
