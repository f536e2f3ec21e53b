"""The size with which an ended elastic vcjob can start again, and the faults under it (R60).

Its pods and its PodGroup are gone, so it is known by its own object. Source:
``docs/spec/consumers.md#2.9``, 5.3 and 7.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from advisor.checks.cluster import stale_configmaps
from advisor.controllers.elastic_vcjob import take_fit
from advisor.jobs import SchedulerJob, npu_request, npu_resource, used_cards
from advisor.placement.free_capacity import FreeCapacity
from advisor.placement.placement import Placer
from advisor.report import ElasticAdvice
from advisor.scheduler_view.cluster_cache import ClusterCache, DecodedDocuments
from advisor.scheduler_view.nodes import NodeHealthState, NodeViews, Since
from advisor.snapshot import ControllingOwner, PodGroup, SchedulerPod
from advisor.snapshot_index import SnapshotIndex
from advisor.workloads.elastic_conditions import kept_of
from contract import scheduling
from contract.documents.elastic_job import FINISHED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from advisor.options import AdvisorOptions
    from advisor.scheduler_view.nodes import NodeView
    from advisor.scheduler_view.state import SchedulerState
    from advisor.snapshot import ClusterSnapshot, VcJob


NETWORK = "NETWORK"
"""The kind of a fault of a link; Volcano ends no pod for it (consumers#E24)."""
PODS_LEFT = "PODS_LEFT"
"""The reason of no size while pods of the job have not ended."""


class FaultUnder(msgspec.Struct, frozen=True):
    """A fault on a chip or node that a pod uses or used: ``HEARTBEAT``, ``DEVICE`` or ``NETWORK``.

    ``since_ms`` is when it began (wall), 0 where the documents do not have it. ``chip`` and
    ``code`` are empty for a node. ``is_past``: it is in the history, under a pod that is gone.
    """

    kind: str
    node: str
    since_ms: int = 0
    chip: str = ""
    code: str = ""
    is_past: bool = False


class EndedJob(msgspec.Struct, frozen=True):
    """What is known about an ended vcjob by its ``version``, a resourceVersion.

    ``advice`` is ``None`` where no size was asked for. ``not_known`` is why there may be a fault
    under its pods at its end that is not in ``faults``: empty where there is none, ``None`` where
    that was not asked.
    """

    namespace: str
    name: str
    version: int = 0
    advice: ElasticAdvice | None = None
    faults: tuple[FaultUnder, ...] = ()
    not_known: str | None = "no history of its pods is kept"


class EndedJobs(msgspec.Struct, frozen=True):
    """What is known about ended vcjobs.

    ``version`` is the newest resourceVersion of a vcjob that it was computed from. ``not_known``
    is why no size should be relied on. ``running`` are jobs of several pods that run over a
    network fault and over no other one, with the size for which there would be room after them.
    ``hit`` are jobs with live pods over a fault of any kind.
    """

    version: int = 0
    not_known: tuple[str, ...] = ()
    jobs: tuple[EndedJob, ...] = ()
    running: tuple[EndedJob, ...] = ()
    hit: tuple[EndedJob, ...] = ()


class _Since(msgspec.Struct):
    fault_time: int = 0


class _NpuFault(msgspec.Struct):
    npu_name: str = ""
    times: dict[str, _Since] | None = msgspec.field(default=None, name="fault_time_and_level_map")


_faults = msgspec.json.Decoder(list[_NpuFault], strict=False)


def ended_jobs(
    snapshot: ClusterSnapshot,
    state: SchedulerState,
    options: AdvisorOptions,
    *,
    sized: Collection[tuple[str, str]],
    judged: Collection[tuple[str, str]],
    running: bool = False,
    hit: bool = False,
) -> EndedJobs:
    """Return sizes of ``sized`` vcjobs, and faults under pods of these and of ``judged`` ones.

    With ``running`` also those that run over a network fault, with ``hit`` over any fault.

    Both are namespaces with names. A job with pods that have not ended gets no size. Jobs are
    served in the order of their creation, after those that were started again and whose pods are
    not all bound.
    """
    index, nodes, placer = SnapshotIndex(), NodeViews(), Placer(options)
    index.update(snapshot)
    cache = ClusterCache(state, options, DecodedDocuments())
    cache.read(snapshot.configmaps)
    changed = nodes.update(index, snapshot, cache, state, options, since=Since.UNKNOWN, is_new=True)
    seen = nodes.looked_at | changed
    placer.update(index.names, nodes.views, nodes.memories, changed, seen, snapshot.now_ms, index)
    jobs = sorted(snapshot.vcjobs, key=lambda job: (job.created_at_ms, job.namespace, job.name))

    def share_capacity() -> tuple[FreeCapacity, dict[tuple[str, str], ElasticAdvice]]:
        """Give each of ``sized`` its capacity; return the rest and the sizes."""
        pool, advice = FreeCapacity(nodes.views, placer), {}
        for job in jobs:
            # Its pods are not bound yet, so no node shows that their capacity is taken.
            _take_started(job, snapshot, pool)
        for job in jobs:
            if (job.namespace, job.name) in sized:
                live_pods = sum(1 for pod in _pods(job, snapshot) if pod.is_live)
                # What the pods of the job hold is not free yet.
                reason = f"{live_pods} of its pods have not ended"
                advice_of_job = (
                    _no_advice(job, PODS_LEFT, reason) if live_pods else _advice(job, pool, options)
                )
                advice[job.namespace, job.name] = advice_of_job
        return pool, advice

    _, advice = share_capacity()
    listed, over, under_fault = [], [], []
    for job in jobs:
        key = (job.namespace, job.name)
        if key in sized or key in judged:
            faults = tuple(_under(_pods(job, snapshot), nodes.views, cache))
            ended_job = EndedJob(*key, job.number, advice.get(key), faults)
            listed.append(
                ended_job if key in judged else msgspec.structs.replace(ended_job, not_known=None)
            )
        if hit and job.labels.get(scheduling.ELASTIC_SCHEDULING) == "on":
            pods = [pod for pod in _pods(job, snapshot) if pod.is_live]
            if faults := tuple(_under(pods, nodes.views, cache)):
                under_fault.append(EndedJob(*key, job.number, None, faults))
        if running and _may_be_ended(job):
            pods = [pod for pod in _pods(job, snapshot) if pod.is_live]
            faults = tuple(_under(pods, nodes.views, cache))
            if faults and all(fault.kind == NETWORK for fault in faults):
                # It would give its own capacity back, and each of them is ended for itself.
                pool, _ = share_capacity()
                pool.release(pods)
                after = _advice(job, pool, options)
                over.append(EndedJob(*key, job.number, after, faults))
    stale = stale_configmaps(snapshot, cache, options)
    not_known = [
        f"ConfigMap {key} was not touched for more than {options.stale_after} s" for key in stale
    ]
    if not cache.seen:
        not_known.append("there is no cluster-info")
    not_known += [f"{kind}: they cannot be read" for kind in sorted(snapshot.unread & {"vcjobs"})]
    newest = max((job.number for job in jobs), default=0)
    return EndedJobs(newest, tuple(not_known), tuple(listed), tuple(over), tuple(under_fault))


def _may_be_ended(job: VcJob) -> bool:
    """Whether it is an elastic job of several pods that runs."""
    is_elastic = job.labels.get(scheduling.ELASTIC_SCHEDULING) == "on"
    return is_elastic and job.phase == "Running" and job.replicas > 1


def _take_started(job: VcJob, snapshot: ClusterSnapshot, pool: FreeCapacity) -> None:
    """Take the capacity of pods that a job started again has not bound yet."""
    if kept_of(job) is None or job.phase in FINISHED or job.template is None or not job.replicas:
        return
    bound = sum(1 for pod in _pods(job, snapshot) if pod.node and pod.is_live)
    if bound >= job.replicas:
        return
    capacity = pool.capacity(_as_job(job, job.template, job.replicas), job.template)
    missing = min(job.replicas - bound, capacity.total)
    pool.take(capacity, missing)


def _pods(job: VcJob, snapshot: ClusterSnapshot) -> Iterator[SchedulerPod]:
    return (pod for pod in snapshot.pods if pod.owner is not None and pod.owner.uid == job.uid)


def _as_job(job: VcJob, pod: SchedulerPod, replicas: int) -> SchedulerJob:
    """Return the job that the scheduler will see: its PodGroup and as many pods like ``pod``."""
    group = PodGroup(
        job.namespace,
        job.name,
        labels=job.labels,
        annotations=job.annotations,
        min_member=replicas,
        min_resources={npu_resource(pod): str(npu_request(pod) * replicas)},
        owner=ControllingOwner("Job", job.name, job.uid),
        created_at_ms=job.created_at_ms,
    )
    return SchedulerJob(group, (pod,) * replicas, None)


def _advice(job: VcJob, pool: FreeCapacity, options: AdvisorOptions) -> ElasticAdvice:
    """Return the size of R60 from the original one, and take its capacity."""
    persisted, pod = kept_of(job), job.template
    if pod is None:
        return _no_advice(job, "NOT_ENABLED", "its pods ask for no chips")
    replicas, cards = job.replicas, npu_request(pod)
    # The size that was written last is not the owner's: the original one is tried again.
    if persisted is not None and (replicas, cards) == (
        persisted.size.replicas,
        persisted.size.cards,
    ):
        replicas, cards = persisted.original.replicas, persisted.original.cards
    pod = msgspec.structs.replace(pod, requests={**pod.requests, npu_resource(pod): cards})
    return take_fit(job, _as_job(job, pod, replicas), pod, replicas, pool, options)


def _no_advice(job: VcJob, reason: str, text: str) -> ElasticAdvice:
    return ElasticAdvice(job.namespace, job.name, reason=reason, why=text)


def _under(
    pods: Iterable[SchedulerPod], views: Mapping[str, NodeView], cache: ClusterCache
) -> Iterator[FaultUnder]:
    """Return the present faults of chips and nodes that ``pods`` use or have used."""
    for pod in pods:
        view = views.get(pod.node) if pod.node else None
        if view is None:
            continue
        cards = set(used_cards(pod))
        if view.state == NodeHealthState.NODE:
            yield FaultUnder("HEARTBEAT", pod.node)
        elif bad := cards.intersection(view.unhealthy):
            yield _fault_of_cards("DEVICE", pod.node, bad, cache)
        elif bad := cards.intersection(view.network_unhealthy or ()):
            yield _fault_of_cards(NETWORK, pod.node, bad, cache)


def _fault_of_cards(
    kind: str, node: str, cards: Collection[str], cache: ClusterCache
) -> FaultUnder:
    """Return the first fault of these cards; without a time where the document does not have it."""
    entry = cache.devices.get(node)
    lists = (entry.DeviceList if entry is not None else None) or {}
    first = FaultUnder(kind, node, chip=min(cards))
    for key, text in lists.items():
        if key.endswith("-Fault"):
            try:
                faults = _faults.decode(text or "[]")
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                continue
            for fault in faults:
                for code, since in (fault.times or {}).items():
                    at_ms = since.fault_time
                    # A manual separation has -1 in the place of a time.
                    is_first = at_ms > 0 and not 0 < first.since_ms <= at_ms
                    if fault.npu_name in cards and is_first:
                        first = FaultUnder(kind, node, at_ms, fault.npu_name, code)
    return first
