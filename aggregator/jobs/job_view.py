"""The job view: the faults that hit each job and those of the whole cluster, updated with each
change.

An update examines only the nodes that changed, of their jobs only those that are or were hit, and
of such a job only its faulty nodes. At rest nothing is done. Source: ``clusterd#5.4`` and 6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from aggregator.grpc.interfaces import CLUSTER
from aggregator.jobs.messages import NodeImpact, message, node_impact, node_info
from aggregator.jobs.node_view import ViewedNodes
from aggregator.jobs.pods_of_jobs import LeftPlaces, MindieGroups, PodIndex
from aggregator.jobs.rank_faults import fault_devices
from aggregator.jobs.relation_state import PodLabel, RelationState
from aggregator.jobs.relations import SHIPPED, pods_hit, relation_fault_devices, relevant_faults
from aggregator.jobs.status import (
    RankRecord,
    hit_job,
    job_status,
    rank_records,
    ranked_chips,
    relation_statuses,
)
from aggregator.plugin import Persistent, Timed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from aggregator.cluster_documents.published_node import PublishedNode
    from aggregator.grpc.interfaces import FaultMsgSignal, NodeFaultInfo
    from aggregator.inputs.node_context import PodState
    from aggregator.jobs.node_view import ClusterStateLookup
    from aggregator.jobs.relations import FaultPlace, RelationTables, Relevant
    from aggregator.jobs.status import JobStatus
    from contract.pages.aggregator_status import HitJob, RankFaultDevice, RelationStatus
    from service.clock import Instant

_NO_IMPACTS: dict[str, NodeImpact] = {}
_MAX_CHANGED = 100_000


class JobView(Timed, Persistent):
    """The faults that hit each job.

    It keeps relation faults, and their windows end by time alone. ``published`` returns what is
    published of a node now. ``is_read`` returns whether the nodes' documents were listed: before
    that, restored relation faults are not ended, and nothing is reported of jobs.
    """

    def __init__(
        self,
        cluster_state: ClusterStateLookup,
        published: Callable[[str], PublishedNode | None],
        tables: RelationTables = SHIPPED,
        is_read: Callable[[], bool] = lambda: True,
    ) -> None:
        self._cluster_state = cluster_state
        self._is_read = is_read
        self._relations = RelationState(tables)
        self._index = PodIndex()
        self._groups = MindieGroups()
        self._left_places = LeftPlaces()
        self._nodes = ViewedNodes(cluster_state, published)
        self._dirty: set[str] = set()
        self._restored: frozenset[str] = frozenset()
        self._sees_jobs = False
        self._saw_nodes = False
        self._relevant: dict[str, dict[str, Relevant]] = {}
        self._impacts: dict[str, dict[str, NodeImpact]] = {}
        self._messages: dict[str, FaultMsgSignal] = {}
        self._changed: dict[str, None] = {}
        self._changed_impacts: set[str] = set()

    # What happens

    def changed(self, nodes: Iterable[str], now: Instant) -> None:
        """Update the jobs of these nodes: what is published of them, their pods, jobs or Node
        objects changed.
        """
        self._dirty.update(nodes)
        if self._cluster_state.nodes_known and not self._saw_nodes:
            self._saw_nodes = True
            # Only now a Node can be missing, which concerns every node seen before.
            self._dirty.update(self._nodes.names)
        if not self._sees_jobs and self._cluster_state.pods_known and self._is_read():
            self._sees_jobs = True
            self._dirty.update(self._nodes.names)
        touched: dict[str, dict[str, bool]] = {}
        for node in sorted(self._dirty):
            quiet = self._nodes.update(node)
            if self._sees_jobs:
                for job, came in self._jobs_to_update(node, quiet=quiet):
                    touched.setdefault(job, {})[node] = came
        # Before the marks are cleared, and after the index knows who left.
        waiting = self._waiting(self._dirty)
        self._dirty.clear()
        if not self._sees_jobs:
            return
        due = self._restored | self._relations.pop_due(now)
        self._restored = frozenset()
        for job in sorted(touched.keys() | due):
            self._update(job, touched.get(job, {}), now)
        for job in sorted(waiting - touched.keys() - due):
            self._update_message(job)

    @override
    def step(self, now: Instant) -> frozenset[str]:
        """Do what is due. No node is to be judged again for it: relations change no document."""
        self.changed((), now)
        return frozenset()

    @override
    def next_due_ms(self) -> int | None:
        """Return the steady time at which the window of a relation fault ends."""
        return self._relations.next_due_ms() if self._sees_jobs else None

    def _jobs_to_update(self, node: str, *, quiet: bool) -> Iterable[tuple[str, bool]]:
        """Yield the jobs to update for a node that was examined, and whether a pod of theirs has
        come there.
        """
        pods = tuple(self._cluster_state.pods_on(node))
        self._record_left_places(node, pods)
        moved = self._index.put(node, pods)
        here = self._index.jobs_on(node)
        jobs = self._cluster_state.jobs()
        for job in here:
            self._mark_changed(*self._groups.put(job, jobs.get(job), self._index.pods(job, node)))
        for job in moved.keys() - here:
            self._drop_from_group(job)
        return [
            (job, moved.get(job, False))
            for job in here | moved.keys()
            if not quiet or self._is_hit(job, node)
        ]

    def _record_left_places(self, node: str, pods: Iterable[PodState]) -> None:
        """Hold the places of pods that were on the node and are not among ``pods``."""
        stay = {(pod.uid, pod.job) for pod in pods}
        gone_by_job: dict[str, list[PodState]] = {}
        for pod in self._index.on(node):
            if (pod.uid, pod.job) not in stay:
                gone_by_job.setdefault(pod.job, []).append(pod)
        jobs, about = self._cluster_state.jobs(), self._nodes.about(node)
        for job, gone in gone_by_job.items():
            self._left_places.leave(about, gone, jobs.get(job), self._index.counts(job))

    def _waiting(self, nodes: Iterable[str]) -> set[str]:
        """Return the jobs with left places that may have something to do with these nodes.

        Of those among them that are complete again, or deleted, the left places are forgotten.
        """
        left_places = self._left_places.jobs
        if not left_places:
            return set()
        waiting = {
            job
            for node in nodes
            for job in (*self._left_places.jobs_on(node), *self._index.jobs_on(node))
            if job in left_places
        }
        jobs = self._cluster_state.jobs()
        for job in waiting:
            if self._left_places.release(jobs.get(job), job, self._index.counts(job)):
                self._drop_from_group(job)
        return waiting

    def _drop_from_group(self, job: str) -> None:
        """Take a job that has no place any more out of its group."""
        if not self._index.nodes_of(job) and job not in self._left_places.jobs:
            self._mark_changed(*self._groups.drop(job))

    def _is_hit(self, job: str, node: str) -> bool:
        """Return whether something on the node hit the job until now."""
        return node in self._impacts.get(job, _NO_IMPACTS) or node in self._relevant.get(job, {})

    def _update(self, job: str, came: Mapping[str, bool], now: Instant) -> None:
        """Bring a job up to date for these nodes, on which a pod of it has come or not."""
        relevant = self._relevant.setdefault(job, {})
        nodes = frozenset(came)
        for node in nodes:
            published, chips = self._nodes.published(node), self._chips(job, node)
            faults = relevant_faults(
                node, published, chips, relevant.get(node), now.wall_ms, self._relations.tables
            )
            if faults.is_empty:
                relevant.pop(node, None)
            else:
                relevant[node] = faults
        if relevant or self._relations.tracks(job):

            def hit(place: FaultPlace) -> tuple[str, ...]:
                return pods_hit(place, self._index.pods(job, place.node))

            fresh = [node for node in came if came[node]]
            nodes |= self._relations.judge(job, relevant.values(), hit, fresh, now)
        if not relevant:
            del self._relevant[job]
        # A job without pods has no relation faults: the next run of it begins anew.
        if not self._index.nodes_of(job):
            self._relations.forget(job)
        for node in nodes:
            self._update_impact(job, node, now)
        self._update_message(job)

    def _chips(self, job: str, node: str) -> frozenset[str]:
        return frozenset(chip for pod in self._index.pods(job, node) for chip in pod.chips)

    def _update_impact(self, job: str, node: str, now: Instant) -> None:
        impacts = self._impacts.setdefault(job, {})
        before = impacts.pop(node, None)
        if self._index.pods(job, node):
            impact = node_impact(
                self._nodes.about(node),
                self._nodes.published(node),
                self._chips(job, node),
                self._relations.tracks(job),
                ready=self._nodes.is_up(node),
                now_ms=now.wall_ms if before is None else before.since_ms,
            )
            if impact is not None:
                impacts[node] = impact
        if impacts.get(node) != before:
            self._changed_impacts.add(job)
        if not impacts:
            del self._impacts[job]

    def _update_message(self, job: str) -> None:
        infos = [info for info, _ in self._node_infos(job)]
        message_sent = message(job, infos) if infos else None
        if message_sent == self._messages.get(job):
            return
        if message_sent is None:
            del self._messages[job]
        else:
            self._messages[job] = message_sent
        group = self._groups.of(job)
        self._mark_changed(job, *(() if group is None else (group,)))

    def _node_infos(self, job: str) -> Iterator[tuple[NodeFaultInfo, Sequence[RankFaultDevice]]]:
        """Yield what hits a job by node: its pods, and the places that pods have left."""
        impacts, left_places = self._impacts.get(job, _NO_IMPACTS), self._left_places.places(job)
        for node, impact in impacts.items():
            if node not in left_places:
                yield impact.info, impact.faults
        for node, place in left_places.items():
            chips = place.chips | self._chips(job, node)
            faults = fault_devices(
                self._nodes.published(node), chips, ready=self._nodes.is_up(node)
            )
            faults += relation_fault_devices(node, self._relations.tracks(job))
            if faults:
                yield node_info(node, place.node.ip, place.node.serial_number, faults), faults

    def _mark_changed(self, *job_ids: str) -> None:
        """Mark messages as changed; the oldest marks are dropped where no server pops them."""
        for job_id in job_ids:
            self._changed[job_id] = None
        while len(self._changed) > _MAX_CHANGED:
            del self._changed[next(iter(self._changed))]

    # What is asked

    def knows(self, job_id: str, role: str = "") -> bool:
        """Return whether it is the key of a job, or the ``jobID`` of one whose app is ``role``.

        Source: docs/spec/clusterd.md#5.4.
        """
        jobs = self._cluster_state.jobs()
        if job_id in (CLUSTER, "") or job_id in jobs or self._index.nodes_of(job_id):
            return True
        return self._groups.knows(job_id, role) or any(
            job.labels.get("jobID") == job_id and job.labels.get("app") == role
            for job in jobs.values()
        )

    def message(self, job_id: str) -> FaultMsgSignal | None:
        """Return the message about a job, or about a MindIE ``jobID``; ``None`` where it is
        unknown.
        """
        message_sent = self._messages.get(job_id)
        if message_sent is not None:
            return message_sent
        members = self._groups.members(job_id)
        if members:
            return self._message_of_group(job_id, members)
        is_known = job_id in self._cluster_state.jobs() or self._index.nodes_of(job_id)
        return message(job_id, ()) if is_known else None

    def _message_of_group(self, group: str, members: Collection[str]) -> FaultMsgSignal:
        """Return the message about a MindIE ``jobID``: a node of several of its jobs is
        in it once.
        """
        by_node: dict[str, tuple[NodeFaultInfo, list[RankFaultDevice]]] = {}
        for job in sorted(members):
            for info, faults in self._node_infos(job):
                by_node.setdefault(info.node_name, (info, []))[1].extend(faults)
        return message(
            group,
            [
                node_info(node, info.node_ip, info.node_sn, faults)
                for node, (info, faults) in by_node.items()
            ],
        )

    def faulty(self) -> Collection[str]:
        """Return the keys of the jobs that are hit now, without MindIE's."""
        return self._messages.keys()

    def cluster(self) -> FaultMsgSignal:
        """Return what is wrong in the whole cluster, of all jobs and none."""
        return self._nodes.cluster()

    def pop_changed_jobs(self) -> frozenset[str]:
        """Return the jobs, and MindIE ``jobID``s, whose message changed since the last call."""
        changed = frozenset(self._changed)
        self._changed.clear()
        return changed

    def labels(self) -> tuple[PodLabel, ...]:
        """Return the labels that pods are to have and do not have yet."""
        return tuple(self._relations.wanted_labels(self._index))

    def hit(self) -> Iterator[HitJob]:
        """Yield the hit jobs without what costs much. The iteration may be paused."""
        for job in sorted(self._impacts):
            impacts = self._impacts.get(job)
            if impacts is not None:
                yield hit_job(job, self._cluster_state.jobs().get(job), impacts)

    def pop_changed_impact(self) -> Iterator[HitJob]:
        """Yield the jobs that something else hits than at the last call, without ranks.

        One that nothing hits any more has no nodes.
        """
        jobs, self._changed_impacts = sorted(self._changed_impacts), set()
        for job in jobs:
            yield hit_job(
                job, self._cluster_state.jobs().get(job), self._impacts.get(job, _NO_IMPACTS)
            )

    def job(self, job: str) -> JobStatus | None:
        """Return one job, hit or not; ``None`` where it is not known."""
        about = self._cluster_state.jobs().get(job)
        if about is None and not self._index.nodes_of(job):
            return None
        impacts = self._impacts.get(job, _NO_IMPACTS)
        return job_status(job, about, impacts, self.ranks(job), self._relations.tracks(job))

    def jobs_on(self, node: str) -> tuple[tuple[str, NodeImpact | None], ...]:
        """Return the jobs that have a pod on a node, each with what hits it there."""
        jobs = sorted(self._index.jobs_on(node))
        return tuple((job, self._impacts.get(job, _NO_IMPACTS).get(node)) for job in jobs)

    def relations_on(self, node: str) -> tuple[RelationStatus, ...]:
        """Return the relation faults of a node."""
        return tuple(
            relation
            for job in sorted(self._index.jobs_on(node))
            for relation in relation_statuses(job, self._relations.tracks(job))
            if relation.node == node
        )

    def ranks(self, job: str) -> tuple[RankRecord, ...]:
        """Return the faults of each rank of a job; costs as much as the job has pods."""
        nodes = sorted(self._index.nodes_of(job))
        of_job = ranked_chips(pod for node in nodes for pod in self._index.pods(job, node))
        tracks = self._relations.tracks(job)
        records: list[RankRecord] = []
        for node in sorted(self._impacts.get(job, _NO_IMPACTS)):
            published, up = self._nodes.published(node), self._nodes.is_up(node)
            records += rank_records(node, published, of_job.get(node, ()), tracks, ready=up)
        return tuple(records)

    # What is kept

    @property
    @override
    def name(self) -> str:
        """Names the documents in which relation faults are kept."""
        return "relation-faults"

    @override
    def pop_changed(self) -> frozenset[str]:
        return self._relations.pop_changed()

    @override
    def text(self, bucket: str) -> str | None:
        return self._relations.text(bucket)

    @override
    def restore(self, texts: Mapping[str, str], now: Instant) -> Iterable[str]:
        """Restore the relation faults of an earlier leader; return what could not be read."""
        problems = self._relations.restore_buckets(texts, now)
        self._restored = frozenset(self._relations.jobs)
        for job in self._restored:
            self._dirty.update(place.node for place in self._relations.tracks(job))
        return problems
