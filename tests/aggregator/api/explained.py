"""How the aggregator explains a node whose reports a test gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aggregator.api.explanation import ExplanationContext, explain
from aggregator.api.node_status import Heartbeats, node_status, node_statuses
from aggregator.inputs.node_context import NodeContext
from aggregator.liveness.monitor import HeartbeatMonitor
from aggregator.liveness.persisted import PersistedHeartbeats
from service.watchdog import Watchdog
from tests.aggregator.nodes import instant

if TYPE_CHECKING:
    from aggregator.advising.status import AdviceAbout
    from contract.pages.aggregator_status import NodeStatus
    from contract.pages.explanation import ExplainedNode
    from tests.aggregator.pipelines import WrittenPipeline


def status_of(bench: WrittenPipeline, node: str, heartbeat: str, age: float | None) -> NodeStatus:
    stalls = Watchdog(lambda: 0.0)
    memory = PersistedHeartbeats((), lambda: instant(0))
    heartbeat_monitor = HeartbeatMonitor({}, lambda _: None, lambda: instant(0), stalls, {}, memory)
    heartbeats = Heartbeats.of(heartbeat_monitor)
    status = node_status(bench.pipeline, heartbeats, node, instant(0))
    assert status is not None
    assert status in tuple(node_statuses(bench.pipeline, heartbeats, instant(0)))
    return msgspec.structs.replace(
        status,
        heartbeat=heartbeat,
        heartbeat_age_seconds=age,
        heartbeat_interval_seconds=None if age is None else 5.0,
    )


def explained(
    bench: WrittenPipeline,
    node: str,
    used: frozenset[str] | None = None,
    context: ExplanationContext | None = None,
) -> ExplainedNode[AdviceAbout]:
    status = status_of(bench, node, "unknown", None)
    acknowledged = dict.fromkeys(bench.pipeline.documents, True)
    return explain(
        bench.pipeline, status, context or ExplanationContext(NodeContext(used)), acknowledged
    )
