"""The advisor: what happens in one session of the scheduler (``docs/spec/consumers.md#7.2``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from advisor.cluster_cache import ClusterCache
from advisor.cluster_findings import by_object, cluster_findings, not_known, stale_nodes
from advisor.elastic import elastic_advice
from advisor.gangs import gangs
from advisor.job_findings import job_findings
from advisor.jobs import jobs_of
from advisor.motor import creation_advice, creation_divergences
from advisor.motor_checks import service_findings
from advisor.node_view import view_nodes
from advisor.options import Profile
from advisor.placement import Placer, link_down_cards, placements
from advisor.pool import Pool
from advisor.replacement import with_replacements
from advisor.report import Finding, Report, Severity
from advisor.rescheduling import Rescheduling
from advisor.state import State
from advisor.verdicts import verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from advisor.node_view import Nodes, NodeView
    from advisor.options import Options
    from advisor.snapshot import ConfigMap, Snapshot
    from advisor.state import NodeMemory


def _with_links(
    nodes: Nodes, named: Iterable[str], now: int, options: Options
) -> dict[str, NodeMemory]:
    """Return what is kept of nodes, with the time at which relation faults named a link.

    Source: docs/spec/consumers.md#1.9.
    """
    corrected = options.profile is Profile.CORRECTED
    memories = dict(nodes.memories)
    for name in named:
        if name in memories and link_down_cards(nodes.views[name], corrected=corrected):
            memories[name] = msgspec.structs.replace(memories[name], link_down_at=now)
    return memories


def _in_order(snapshot: Snapshot) -> Sequence[ConfigMap]:
    """Return the ConfigMaps as the informer gets them: a start lists them by name.

    Source: docs/spec/consumers.md#1.4.
    """
    if not snapshot.first_session:
        return snapshot.configmaps
    return sorted(snapshot.configmaps, key=lambda one: (one.namespace, one.name))


def _started(before: State, options: Options) -> State:
    """Return the state of a scheduler that starts; ``corrected`` keeps budgets (consumers#8-9)."""
    if options.profile is Profile.CORRECTED:
        return State(is_known=True, retries=before.retries, judged=before.judged)
    return State(is_known=True)


def _divergences(views: Mapping[str, NodeView], placer: Placer) -> Iterator[Finding]:
    """Return what is done otherwise than the real programs do, about nodes (consumers#8)."""
    found = {
        (section, view.name, text) for view in views.values() for section, text in view.divergences
    }
    for section, node, text in sorted(found | placer.divergences):
        yield Finding(Severity.WARNING, "UPSTREAM_DIVERGES", f"Node {node}", text, section)


def advise(snapshot: Snapshot, state: State, options: Options) -> tuple[Report, State]:
    """Return what happens in the session of ``snapshot``, and the state after it."""
    if snapshot.first_session:
        state = _started(state, options)
    cache = ClusterCache(state, options)
    cache.read(_in_order(snapshot))
    nodes = view_nodes(snapshot, cache, state.memories, options)
    jobs = jobs_of(snapshot)
    rescheduling = Rescheduling(
        snapshot, jobs, nodes.views, state, options, stale_nodes(snapshot, cache, options)
    )
    if not cache.crashed_by:
        rescheduling.run()
    memories = _with_links(nodes, rescheduling.link_down, snapshot.now_ms // 1000, options)
    decisions = tuple(rescheduling.decisions[key] for key in sorted(rescheduling.decisions))
    leaving = frozenset(pod.uid for decision in decisions for pod in decision.pods)
    placer = Placer(nodes.views, memories, snapshot.now_ms, options)
    placed = placements(jobs, placer)
    # What is asked of the placer from here on is no placement of this session.
    divergences = tuple(_divergences(nodes.views, placer))
    if leaving:
        decisions = with_replacements(decisions, jobs, Pool(nodes.views, placer))
    report = Report(
        options.profile,
        snapshot.now_ms,
        node_verdicts=tuple(verdict(nodes.views[name]) for name in sorted(nodes.views)),
        decisions=decisions,
        create_advice=creation_advice(snapshot, options, leaving),
        elastic_advice=elastic_advice(snapshot, jobs, nodes.views, placer, state, options),
        findings=by_object(
            [
                *cluster_findings(snapshot, cache, nodes.views, options),
                *job_findings(jobs, options),
                *rescheduling.findings,
                *service_findings(snapshot, options),
                *creation_divergences(snapshot, options, leaving),
                *divergences,
            ]
        ),
        placement=placed,
        gangs=gangs(jobs, placer, nodes.views),
        not_known=not_known(snapshot, is_known=state.is_known),
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
