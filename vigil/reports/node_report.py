"""What is wrong with one node, or with everything that a daemon knows."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from vigil.daemon_client import UnknownNode
from vigil.reports.answers import AgentAnswer
from vigil.reports.explanation import parts_of
from vigil.reports.node_answers import NodeAnswer
from vigil.reports.status_report import STATUS, of_agent, of_cluster, of_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vigil.daemon_client import DaemonClient
    from vigil.reports.status_report import FaultRow, StatusReport


def report_of(client: DaemonClient, node: str | None) -> StatusReport:
    """Return what the daemon that ``client`` asks knows, of ``node`` only with one.

    Raises ``UnknownNode`` for a node that it does not know, ``StoreUnavailable`` where it does
    not answer.
    """
    answer = client.find(STATUS, AgentAnswer)
    if answer is not None:
        return of_agent(client.server, answer, node)
    if node is None:
        return of_cluster(client)
    found = client.find(f"/api/v1/nodes/{quote(node, safe='')}", NodeAnswer)
    if found is None:
        what = f"the aggregator at {client.server} knows no node of this name"
        raise UnknownNode(node, what)
    return of_nodes(
        client, node, None, (found.node,), tuple(_rows(found)), {"because": found.because}
    )


def _rows(found: NodeAnswer) -> Iterator[FaultRow]:
    for part in parts_of(found):
        for one in part.faults:
            yield msgspec.structs.replace(one.fault, withheld=one.published is None)
