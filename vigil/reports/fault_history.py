"""Reads changes of faults from the history of a daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import msgspec

from contract.errors import StoreUnavailable
from contract.observation import Subject
from contract.pages.agent_status import AgentStatus
from contract.pages.faults import subject_name
from contract.pages.history import HistoryPage
from contract.sentences import sentence
from vigil.daemon_client import UnknownNode
from vigil.reports.explanation import is_meant
from vigil.reports.job_report import leader_of
from vigil.reports.status_report import STATUS, agent_source, names_of, other_node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from contract.pages.history import HistoryRow
    from vigil.daemon_client import DaemonClient

_PATH = "/api/v1/history"


class TimelineRow(msgspec.Struct, frozen=True):
    """One change. ``was`` and ``level`` are ``None`` where the fault did not hold.

    ``origin`` is ``published`` for a change of cluster-info, ``reported`` for one that the node
    reports, ``lost`` for entries that are in no journal any more (``lost`` of them).
    """

    number: int
    at_ms: int
    origin: str
    node: str
    part: str
    code: str
    name_en: str
    name_zh: str
    was: str | None
    level: str | None
    because: str
    lost: int = 0


class Timeline(msgspec.Struct, frozen=True):
    """What happened, oldest first; see ``Report``."""

    source: str
    server: str
    not_known: tuple[str, ...]
    rows: tuple[TimelineRow, ...]


class DaemonHistory:
    """Reads the history of ``node`` (``None``: of all), page by page, from ``since_ms`` on.

    An agent has that of its own node. Raises ``UnknownNode``, and ``StoreUnavailable`` where there
    is not a history.
    """

    def __init__(
        self, client: DaemonClient, node: str | None, part: str, since_ms: int | None
    ) -> None:
        self._client = client
        self._part = part
        self._chip_type = ""
        self._asked: dict[str, str | int] = {} if node is None else {"node": node}
        if since_ms is not None:
            self._asked["since_ms"] = since_ms
        leader = leader_of(client)
        if leader is None:
            self._past = self._of_agent(node)
        else:
            self._past = Timeline(leader, client.server, (), ())
            if node is not None:
                self._check(node)

    def about(self) -> Timeline:
        """Return the source that answers; without rows."""
        return self._past

    def read(self) -> Iterator[TimelineRow]:
        """Yield what came since the last call."""
        more = True
        while more:
            page = self._client.get(f"{_PATH}?{urlencode(self._asked)}", HistoryPage)
            self._asked["after"] = page.next
            more = page.more
            for entry in page.events:
                row = timeline_row(entry, self._chip_type)
                if not self._part or is_meant(self._part, row.part):
                    yield row

    def _check(self, node: str) -> None:
        """Raise ``UnknownNode`` for a node that was never there."""
        if self._client.find(f"/api/v1/nodes/{quote(node, safe='')}", msgspec.Raw) is not None:
            return
        # A node that is gone may still have a history.
        query = urlencode({"node": node, "limit": 1})
        if not self._client.get(f"{_PATH}?{query}", HistoryPage).events:
            text = sentence(
                "the aggregator at {server} knows no node of this name", server=self._client.server
            )
            raise UnknownNode(node, text)

    def _of_agent(self, node: str | None) -> Timeline:
        answer = self._client.get(STATUS, AgentStatus)
        if node not in (None, answer.node):
            raise other_node(self._client.server, answer, node)
        if self._client.find(f"{_PATH}?limit=1", msgspec.Raw) is None:
            text = sentence("the agent at {server} shows no history", server=self._client.server)
            raise StoreUnavailable(text)
        if answer.chips:
            self._chip_type = answer.chips[0].device.rpartition("-")[0]
        not_known = (sentence("what the cluster published about this node"),)
        return Timeline(agent_source(answer), self._client.server, not_known, ())


def timeline_row(entry: HistoryRow, chip_type: str = "") -> TimelineRow:
    """Return an entry of a history, with the names of its code.

    A chip has its name where the ``chip_type`` of its node is known (``Ascend910``), else a number.
    """
    number, node, change, event = entry.number, entry.node, entry.published, entry.event
    if change is not None:
        about = (change.subject, change.code, *names_of(change.code))
        return TimelineRow(
            number, change.at_ms, "published", node, *about, change.was, change.level, ""
        )
    if event is not None:
        subject = Subject(event.subject.kind, event.subject.id, event.subject.part)
        part = f"chip {subject.id}"
        if subject.kind != "chip" or chip_type:
            part = subject_name(subject, chip_type)
        about = (part, event.code, *names_of(event.code))
        levels = (event.old_level, event.new_level)
        return TimelineRow(number, event.at_ms, "reported", node, *about, *levels, event.because)
    nothing = ("", "", "", "", None, None, "")
    return TimelineRow(number, entry.received_at_ms, "lost", node, *nothing, lost=entry.lost)
