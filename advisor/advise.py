"""The advisor: what happens in one session of the scheduler (``docs/spec/consumers.md#7.2``).

As in the plugin, documents are read first, then nodes are judged, then jobs. After the deletions,
waiting pods are placed on what is free. A course for each profile computes a session from what
changed since the last one. Where it cannot follow, a new course computes everything, with the same
result (decision 31).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from advisor.checks.cluster import (
    GhostEntryCheck,
    StaleDocumentsCheck,
    by_object,
    cluster_findings,
    gaps,
    job_findings,
    not_known,
)
from advisor.checks.elastic_parts import elastic_part_findings
from advisor.checks.motor import service_findings
from advisor.checks.node_reports import NodeReports
from advisor.controllers.elastic_vcjob import elastic_advice
from advisor.controllers.motor_instances import creation_advice, creation_divergences
from advisor.layered_dict import layered
from advisor.options import Profile
from advisor.placement.free_capacity import FreeCapacity, with_replacements
from advisor.placement.placement import Placer, link_down_cards
from advisor.placement.waiting_jobs import WaitingJobs
from advisor.report import AdviceReport
from advisor.rescheduling.fault_pods import pod_of
from advisor.rescheduling.session import KeptDecisions, Rescheduling
from advisor.scheduler_view.cluster_cache import ClusterCache, DecodedDocuments
from advisor.scheduler_view.nodes import NodeViews, Since
from advisor.scheduler_view.state import SchedulerState
from advisor.snapshot_index import SnapshotIndex

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from advisor.options import AdvisorOptions
    from advisor.report import Finding
    from advisor.scheduler_view.state import NodeMemory
    from advisor.snapshot import ClusterSnapshot, StoredConfigMap


def advise(
    snapshot: ClusterSnapshot, state: SchedulerState, options: AdvisorOptions
) -> tuple[AdviceReport, SchedulerState]:
    """Return what happens in the session of ``snapshot``, and the state after it."""
    return Advisor().advise(snapshot, state, options)


class Advisor:
    """Computes session after session from what changed; each is what ``advise`` returns.

    Nothing that it remembers decides anything: what it cannot use it computes anew.
    """

    def __init__(self) -> None:
        self._index = SnapshotIndex()
        self._documents = DecodedDocuments()
        self._courses: dict[Profile, _Course] = {}

    def advise(
        self, snapshot: ClusterSnapshot, state: SchedulerState, options: AdvisorOptions
    ) -> tuple[AdviceReport, SchedulerState]:
        """Return what happens in the session of ``snapshot``, and the state after it."""
        # Once for both profiles: what objects changed does not depend on the profile.
        self._index.update(snapshot)
        course = self._courses.get(options.profile)
        if course is None or not course.can_follow(self._index, snapshot, state, options):
            # A new course computes the whole session; its result is the same (decision 31).
            course = self._courses[options.profile] = _Course(self._index, options)
        return course.session(snapshot, state, self._documents)

    def remembered_nodes(self, profile: Profile) -> frozenset[str]:
        """Return the nodes of which more is in memory than documents and objects show now.

        Those of the last session of a profile, none before the first.
        """
        course = self._courses.get(profile)
        return frozenset() if course is None else course.remembered_nodes


class _Course:
    """The sessions of one profile, as far as the next one can be computed from them."""

    def __init__(self, index: SnapshotIndex, options: AdvisorOptions) -> None:
        self._index = index
        self._options = options
        self._nodes = NodeViews()
        self._reports = NodeReports()
        self._ghosts = GhostEntryCheck()
        self._kept = KeptDecisions()
        self._job_findings: dict[str, tuple[Finding, ...]] = {}
        self._placer = Placer(options)
        self._waiting = WaitingJobs()
        # Numbers of snapshots begin at 1 (``SnapshotIndex``), so the first session is never taken
        # for a known one.
        self._serial = 0
        self._now = 0
        self._before = SchedulerState()
        self._after: SchedulerState | None = None
        self._was_first = False
        """Pods of nodes that are away are judged otherwise after that (consumers#2.4)."""
        self._stale = StaleDocumentsCheck()
        self._named: frozenset[str] = frozenset()
        """Nodes of which a link was named in the last session."""
        self._gone: AbstractSet[str] = frozenset()
        """Uids of pods that are gone, and that the state before has."""

    @property
    def remembered_nodes(self) -> frozenset[str]:
        """See ``Advisor.remembered_nodes``."""
        return self._named | self._nodes.remembered

    def can_follow(
        self,
        index: SnapshotIndex,
        snapshot: ClusterSnapshot,
        state: SchedulerState,
        options: AdvisorOptions,
    ) -> bool:
        """Whether a session can be computed from the last one."""
        return (
            options == self._options
            and self._after is not None
            # The same snapshot once more, as for a preview, or the next one; older changes are
            # lost.
            and self._serial in (index.serial - 1, index.serial)
            # By identity: to compare states of 10,000 nodes would cost as much as a session.
            and (state is self._after or state is self._before)
            and not snapshot.first_session
            and not self._was_first
            # With a clock that went back, deadlines that are over would hold again (decision 31).
            and snapshot.now_ms // 1000 >= self._now
        )

    def session(
        self, snapshot: ClusterSnapshot, state: SchedulerState, documents: DecodedDocuments
    ) -> tuple[AdviceReport, SchedulerState]:
        """Return what happens, and the state after it."""
        index, options, now = self._index, self._options, snapshot.now_ms // 1000
        given = state
        if snapshot.first_session:
            state = _started(state, options)
        # The order from here on is that of the plugin: documents, nodes, jobs (decision 27).
        cache = ClusterCache(state, options, documents)
        cache.read(_in_order(snapshot))
        documents.keep(snapshot.configmaps)
        since = Since.UNKNOWN
        if self._after is not None:
            since = Since.LAST if given is self._after else Since.ASIDE
        is_new = self._serial != index.serial
        nodes = self._nodes
        changed = nodes.update(index, snapshot, cache, state, options, since=since, is_new=is_new)
        keys = self._changed_jobs(changed, state, is_new=is_new)
        aged = self._stale.update(snapshot, cache, options)
        rescheduling = Rescheduling(
            snapshot,
            index,
            nodes.views,
            state,
            options,
            self._stale.nodes,
            self._kept,
            self._judged(snapshot, state, is_new=is_new),
        )
        rescheduling.update(keys.union(*(_jobs_on(index, name) for pod in aged for name in pod)))
        # The plugin crashes on an empty DeviceInfoCfg, so nothing is decided in this session.
        if not cache.crashed_by:
            rescheduling.run()
        memories, named = _with_links(nodes, rescheduling.link_down, now, options)
        decisions = tuple(rescheduling.decisions[key] for key in sorted(rescheduling.decisions))
        leaving = frozenset(pod.uid for decision in decisions for pod in decision.pods)
        # After the deletions: a session places pods on what is free then.
        self._placer.update(
            index.names,
            nodes.views,
            memories,
            changed,
            nodes.looked_at | named,
            snapshot.now_ms,
            index,
        )
        self._waiting.update(index.jobs, keys, nodes.views, changed, self._placer)
        self._reports.update(index.names, nodes.views, nodes.looked_at, cache, now)
        self._ghosts.update(cache)
        # Only then is the capacity free that replacements may need.
        if leaving:
            pool = FreeCapacity(nodes.views, self._placer)
            decisions = with_replacements(decisions, index.jobs, pool)
        for key in keys:
            self._job_findings.pop(key, None)
            if key in index.jobs and (findings := tuple(job_findings(index.jobs[key], options))):
                self._job_findings[key] = findings
        report = AdviceReport(
            options.profile,
            snapshot.now_ms,
            node_verdicts=self._reports.verdicts,
            decisions=decisions,
            create_advice=creation_advice(snapshot, options, leaving),
            elastic_advice=elastic_advice(index, nodes.views, self._placer, state, options),
            findings=by_object(
                [
                    *cluster_findings(snapshot, cache, self._stale.keys),
                    *self._ghosts.findings,
                    *(
                        finding
                        for findings in self._reports.findings.values()
                        for finding in findings
                    ),
                    *(finding for findings in self._job_findings.values() for finding in findings),
                    *rescheduling.findings,
                    *service_findings(snapshot, options),
                    *creation_divergences(snapshot, options, leaving),
                    *elastic_part_findings(snapshot, nodes.views, state, options, leaving),
                    *self._reports.diverging(self._waiting.divergences),
                ]
            ),
            placement=self._waiting.placements,
            gangs=self._waiting.gangs,
            not_known=not_known(snapshot, is_known=state.is_known),
            gaps=gaps(snapshot, decisions, self._waiting.gangs),
        )
        after = SchedulerState(
            is_known=state.is_known,
            configmaps=cache.seen,
            devices=cache.devices,
            switches=cache.switches,
            nodes=cache.nodes,
            memories=memories,
            jobs=rescheduling.cached,
            retries=rescheduling.retries,
            judged=rescheduling.judged,
            session_at=now,
        )
        # Links that were named change what is kept of these nodes, so the next session looks at
        # them.
        self._named = frozenset(named)
        self._serial, self._now = index.serial, now
        self._before, self._after = given, after
        self._was_first = snapshot.first_session
        return report, after

    def _judged(
        self, snapshot: ClusterSnapshot, state: SchedulerState, *, is_new: bool
    ) -> dict[str, int]:
        """Return the judged restarts of containers, but for pods that are gone."""
        if not state.judged:
            return state.judged
        judged_pods = {pod_of(key) for key in state.judged}
        if self._after is None:
            judged_pods.difference_update(pod.uid for pod in snapshot.pods)
            self._gone = frozenset(judged_pods)
        else:
            # Once gone, always gone: a pod that is made anew has another uid.
            self._gone = judged_pods & (
                self._gone | self._index.changes.gone if is_new else self._gone
            )
        if not self._gone:
            return state.judged
        return {
            key: judged for key, judged in state.judged.items() if pod_of(key) not in self._gone
        }

    def _changed_jobs(
        self, changed: Iterable[str], state: SchedulerState, *, is_new: bool
    ) -> set[str]:
        """Return the jobs that may be others, and those with pods on nodes that are."""
        index = self._index
        if self._after is None:
            # Also jobs that only the state has: their retries and caches have to end.
            return {*index.jobs, *state.jobs, *state.retries}
        keys = set(index.changes.jobs) if is_new else set()
        for name in changed:
            keys.update(_jobs_on(index, name))
        return keys


def _jobs_on(index: SnapshotIndex, node: str) -> Iterable[str]:
    for pod in index.pods.get(node, ()):
        if pod.group and (key := f"{pod.namespace}/{pod.group}") in index.jobs:
            yield key


def _with_links(
    nodes: NodeViews, named: Iterable[str], now: int, options: AdvisorOptions
) -> tuple[Mapping[str, NodeMemory], set[str]]:
    """Return what is kept of nodes, and those of which relation faults named a link now.

    Source: docs/spec/consumers.md#1.9.
    """
    corrected = options.profile is Profile.CORRECTED
    memories = nodes.memories
    names = {
        name
        for name in named
        if name in memories and link_down_cards(nodes.views[name], corrected=corrected)
    }
    if names:
        linked = layered(memories)
        for name in names:
            linked[name] = msgspec.structs.replace(memories[name], link_down_at=now)
        return linked, names
    return memories, names


def _in_order(snapshot: ClusterSnapshot) -> Sequence[StoredConfigMap]:
    """Return the ConfigMaps as the informer gets them: a start lists them by name.

    Source: docs/spec/consumers.md#1.4.
    """
    # Later events come in the order of their writes, which a dump cannot show.
    if not snapshot.first_session:
        return snapshot.configmaps
    return sorted(snapshot.configmaps, key=lambda decision: (decision.namespace, decision.name))


def _started(before: SchedulerState, options: AdvisorOptions) -> SchedulerState:
    """Return the state of a scheduler that starts; ``corrected`` keeps budgets (consumers#8-9)."""
    if options.profile is Profile.CORRECTED:
        return SchedulerState(is_known=True, retries=before.retries, judged=before.judged)
    return SchedulerState(is_known=True)
