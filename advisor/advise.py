"""The advisor: what happens in one session of the scheduler (``spec/consumers.md`` 7.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from advisor.cluster_cache import ClusterCache
from advisor.elastic import elastic_advice
from advisor.gangs import gangs
from advisor.jobs import jobs_of
from advisor.motor import creation_advice
from advisor.motor_checks import service_findings
from advisor.node_view import view_nodes
from advisor.placement import Placer, placements
from advisor.report import Report
from advisor.rescheduling import Rescheduling
from advisor.state import State

if TYPE_CHECKING:
    from advisor.options import Options
    from advisor.snapshot import Snapshot


def advise(snapshot: Snapshot, state: State, options: Options) -> tuple[Report, State]:
    """Return what happens in the session of ``snapshot``, and the state after it."""
    if snapshot.first_session:
        state = State(is_known=True)
    cache = ClusterCache(state, options)
    cache.read(snapshot.configmaps)
    nodes = view_nodes(snapshot, cache, state.memories, options)
    jobs = jobs_of(snapshot)
    rescheduling = Rescheduling(snapshot, jobs, nodes.views, state, options)
    rescheduling.run()
    memories = dict(nodes.memories)
    for name in sorted(rescheduling.link_down):
        if name in memories:
            memories[name] = msgspec.structs.replace(
                memories[name], link_down_at=snapshot.now_ms // 1000
            )
    decisions = tuple(rescheduling.decisions[key] for key in sorted(rescheduling.decisions))
    leaving = frozenset(pod.uid for decision in decisions for pod in decision.pods)
    placer = Placer(nodes.views, snapshot.now_ms, options)
    report = Report(
        options.profile,
        snapshot.now_ms,
        decisions=decisions,
        create_advice=creation_advice(snapshot, options, leaving),
        elastic_advice=elastic_advice(snapshot, jobs, nodes.views, state, options),
        findings=(
            *cache.findings,
            *rescheduling.findings,
            *service_findings(snapshot, options),
        ),
        placement=placements(jobs, placer),
        gangs=gangs(jobs, placer, nodes.views),
    )
    return report, State(
        is_known=state.is_known,
        configmaps=cache.seen,
        devices=cache.devices,
        switches=cache.switches,
        nodes=cache.nodes,
        memories=memories,
        jobs=rescheduling.cached,
        retries=rescheduling.retries,
        judged=rescheduling.judged,
    )
