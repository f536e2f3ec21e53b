"""Health, metrics and the API, over HTTP on ``--listen`` and on a socket in the state directory."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from agent.pages.journal import MAX_ROWS
from agent.pages.metrics import AgentMetrics
from agent.pages.status import fault_row, isolation_rows
from contract.errors import JournalError
from contract.pages.agent_status import AgentStatus
from contract.pages.changes import BlindChange, FaultChange
from contract.pages.faults import key_of
from contract.pages.journal import JournalPage, JournalRange
from service.pages import daemon_pages, event_stream, fault_pages, operations
from service.pages.browser_page import BrowserPage
from service.pages.daemon_pages import json_response
from service.pages.operations import Operation
from service.pages.page_rows import snapshot
from service.pages.parameters import Parameter, refused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aiohttp import web

    from agent.fault_state import EpisodeCounts
    from agent.pages.history import JournalHistory
    from agent.pages.npu_exporter import Cards
    from agent.publishing.publication import Publication
    from contract.operator_rules.fault_configuration import Judged
    from contract.pages.faults import FaultRule
    from service.pages.event_stream import Stream
    from stores.base import PodUsage

_JOURNAL_PATH = "/api/v1/journal"
OPERATIONS: tuple[Operation, ...] = (
    Operation("/api/v1/status", "Everything that this agent knows of its node", AgentStatus),
    fault_pages.FAULTS,
    fault_pages.HISTORY,
    Operation(
        _JOURNAL_PATH,
        "Episodes and acknowledged writes of the journal, for a proof of delivery",
        JournalPage,
        (
            Parameter("since_ms", "From the snapshot before this time on", is_number=True),
            Parameter("after", "Behind this row: next of the answer before", is_number=True),
            Parameter("limit", "At most so many rows", is_number=True, least=1, most=MAX_ROWS),
        ),
        (503,),
    ),
    Operation(
        event_stream.PATH,
        "Changes as they happen. Events are change (of the faults of the node), blind (sources "
        "that give the agent no answer), and gap where some are lost",
        FaultChange,
        event_stream.PARAMETERS,
        content="text/event-stream",
        or_else=(BlindChange,),
    ),
)
_MAX_CACHED = 1000


class FaultRules:
    """Finds rules in what ``judged`` returns, each code once until the configuration changes."""

    def __init__(self, judged: Callable[[], Judged]) -> None:
        self._judged = judged
        self._searched: Judged | None = None
        self._found: dict[tuple[str, str], tuple[FaultRule, ...]] = {}

    def rules_about(self, subject_kind: str, code: str) -> tuple[FaultRule, ...]:
        """Return the rules about ``code`` on a subject of this kind, such as ``chip``."""
        # Imported late: only an agent that is asked for its faults needs the tables for people.
        from contract.pages.rule_places import kind_of_subject, rules_of

        judged = self._judged()
        if judged is not self._searched or len(self._found) >= _MAX_CACHED:
            self._searched, self._found = judged, {}
        key = (subject_kind, code)
        if key not in self._found:
            kind = kind_of_subject(subject_kind)
            self._found[key] = tuple(rules_of(judged.in_force, judged.catalogue, kind, code))
        return self._found[key]


def application(
    status: Callable[[], AgentStatus],
    records: Mapping[str, Publication],
    history: JournalHistory,
    stream: Stream,
    judged: Callable[[], Judged],
    episodes: EpisodeCounts,
    cards: Callable[[], Cards] | None = None,
    pods: Callable[[], Sequence[PodUsage]] | None = None,
) -> web.Application:
    """Return the pages. ``status`` and ``cards`` are collected anew for each request.

    ``records`` are by document, ``judged`` is the fault configuration in force. Without ``cards``
    there are no metrics under NPU exporter's names, without ``pods`` none of pods on faulty chips.
    """
    rules = FaultRules(judged)

    async def faults(request: web.Request) -> web.Response:
        now = status()
        standing = map(partial(fault_row, now.node, rules.rules_about), now.faults)
        isolated = isolation_rows(now.node, now.chips, now.faults)
        rows = sorted([*standing, *isolated], key=key_of)
        return await snapshot(request, rows, fault_pages.FAULT_ROWS, stream, now.at_ms)

    async def journal(request: web.Request) -> web.Response:
        numbers = {name: int(text) for name, text in request.query.items()}
        try:
            return json_response(await history.journal(JournalRange(**numbers)))
        except JournalError as error:
            return refused(str(error), 503)

    def status_page() -> AgentStatus:
        return msgspec.structs.replace(status(), stream=stream.last_id)

    application = daemon_pages.application(
        stalled=lambda: status().stalled,
        not_ready=lambda: status().not_ready,
        exposition=lambda encode: encode(
            AgentMetrics(status(), records, episodes, cards and cards(), pods and pods())
        ),
        api={"/api/v1/status": status_page},
    )
    version = status().version
    browser = BrowserPage("agent", version, stream.epoch)
    operations.serve(application, "NPU Vigil agent", version, OPERATIONS, browser)
    application.router.add_get(fault_pages.FAULTS.path, faults)
    application.router.add_get(fault_pages.HISTORY.path, fault_pages.history_page(history.page))
    application.router.add_get(_JOURNAL_PATH, journal)
    application.router.add_get(event_stream.PATH, stream.serve)
    return application
