"""Reads journals, from files and from agents' pages, and what the cluster shows. Only reads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from agent.journal.file import FILE_NAME
from agent.pages.journal import MAX_ROWS, read_journal
from contract.errors import ConfigurationError, JournalError, Problem, StoreError
from contract.pages.aggregator_status import NodesPage
from contract.pages.history import HistoryPage, PublishedPage
from contract.pages.journal import JournalPage, JournalRange
from contract.sentences import sentence
from vigil.daemon_client import DaemonClient
from vigil.prove.match import ClusterView, entries_of, part_of_name
from vigil.prove.presences import NodeJournal
from vigil.reports.status_report import of_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from contract.pages.history import HistoryRow
    from vigil.prove.match import Key
    from vigil.reports.status_report import FaultRow
    from vigil.sources.source import AnswerSource

MAX_REQUESTS = 50
"""So many agents are asked at once."""
_ANSWER_SECONDS = 10.0
_HISTORY_ROWS = 10_000
_NODE = "{node}"


class Journals:
    """The journals that were read, by node, and why others were not, by node or directory."""

    def __init__(self) -> None:
        self.by_node: dict[str, NodeJournal] = {}
        self.not_known: dict[str, str] = {}

    def add_files(self, directories: Iterable[Path], since_ms: int | None) -> None:
        """Read the journal in each of ``directories``.

        Raises ``ConfigurationError`` for two journals of one node.
        """
        for directory in directories:
            path = directory / FILE_NAME

            def part(query: JournalRange, path: Path = path) -> JournalPage:
                return read_journal(path, query)

            try:
                journal = _read(part, since_ms)
            except JournalError as error:
                self.not_known[str(directory)] = str(error)
                continue
            if journal.node in self.by_node:
                text = sentence(
                    "{directory} has the journal of {node}, as another directory has",
                    directory=directory,
                    node=journal.node,
                )
                raise ConfigurationError("command line", [Problem("--state-dir", text)])
            self.by_node[journal.node] = journal

    def add_pages(self, address: str, nodes: Iterable[str], since_ms: int | None) -> None:
        """Read the journals of ``nodes`` from the pages of their agents.

        ``address`` has ``{node}`` for the name of a node.
        """

        def read_node(node: str) -> NodeJournal | str:
            client = DaemonClient(address.replace(_NODE, node), _ANSWER_SECONDS)

            def part(interval: JournalRange) -> JournalPage:
                values = {
                    "after": interval.after,
                    "since_ms": interval.since_ms,
                    "limit": interval.limit,
                }
                query = urlencode(
                    {key: value for key, value in values.items() if value is not None}
                )
                return client.get(f"/api/v1/journal?{query}", JournalPage)

            try:
                journal = _read(part, since_ms)
            # A journal that is replaced meanwhile makes this node not known, and no other one.
            except (JournalError, StoreError) as error:
                return str(error)
            if journal.node != node:
                return f"{client.server} is the agent of {journal.node or 'no node'}"
            return journal

        wanted = [node for node in nodes if node not in self.by_node]
        with ThreadPoolExecutor(MAX_REQUESTS) as threads:
            for node, result in zip(wanted, threads.map(read_node, wanted), strict=True):
                if isinstance(result, str):
                    self.not_known[node] = result
                else:
                    self.by_node[node] = result


def _read(part: Callable[[JournalRange], JournalPage], since_ms: int | None) -> NodeJournal:
    journal = NodeJournal()
    wanted, more = JournalRange(since_ms=since_ms, limit=MAX_ROWS), True
    while more:
        page = part(wanted)
        # Parts of two journals would make presences that never were.
        if journal.journal not in ("", page.journal):
            raise JournalError("the journal was replaced while it was read; try again")
        journal.add(page)
        wanted, more = JournalRange(after=page.next, limit=MAX_ROWS), page.more
    return journal


def node_names(client: DaemonClient) -> tuple[str, ...]:
    """Return the nodes that the aggregator knows."""
    page = client.get("/api/v1/nodes", NodesPage)
    return tuple(node.node for node in page.nodes if node.state != "deleted")


def cluster_of_server(client: DaemonClient, since_ms: int) -> ClusterView:
    """Return what the aggregator shows, with its history since then. Raises ``StoreError``."""
    rows = list(_history(client, since_ms))
    recorded = client.get("/api/v1/published", PublishedPage).recorded
    nodes = client.get("/api/v1/nodes", NodesPage)
    # The faults last: what the history has by then is shown.
    report = of_cluster(client)
    received: dict[str, dict[str, int]] = {}
    for row in rows:
        if row.event is not None:
            # The first row of an episode is its beginning; later ones are its changes.
            received.setdefault(row.journal, {}).setdefault(row.event.episode, row.received_at_ms)
    return ClusterView(
        at_ms=report.at_ms,
        shown={_key(row): row.level for row in report.faults},
        withheld={_key(row) for row in report.faults if row.withheld},
        entries=entries_of(rows),
        recorded=[(max(span.since_ms, since_ms), span.until_ms) for span in recorded],
        received=received,
        ahead_ms={
            node.node: int(node.clock_skew_seconds * 1000)
            for node in nodes.nodes
            if node.clock_skew_seconds is not None
        },
    )


def cluster_of_documents(source: AnswerSource) -> ClusterView:
    """Return what the documents of a store show now. Raises ``StoreError``."""
    report = source.report(None)
    return ClusterView(report.at_ms, {_key(row): row.level for row in report.faults})


def _history(client: DaemonClient, since_ms: int) -> Iterable[HistoryRow]:
    parameters, more = {"since_ms": since_ms, "limit": _HISTORY_ROWS}, True
    while more:
        page = client.get(f"/api/v1/history?{urlencode(parameters)}", HistoryPage)
        yield from page.events
        parameters, more = parameters | {"after": page.next}, page.more


def _key(row: FaultRow) -> Key:
    return row.node, part_of_name(row.part), row.code
