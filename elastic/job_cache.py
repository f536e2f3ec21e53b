"""Cache of vcjobs, their pods, PodGroups and Queues, and of the scheduler's records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from advisor.inputs import kubernetes_objects
from advisor.inputs.scheduler_options import scheduler_options
from advisor.options import DEFAULT_GRACE_OVER_TIME
from advisor.workloads.elastic_conditions import kept_of
from contract import scheduling
from contract.errors import DocumentError
from elastic.end_cause import Evicted, read_evictions
from elastic.job import JobPod, JobQueue, read_group, read_job, read_pod, read_queue
from stores.cluster import KindUnavailable, ObjectKind, Snapshot
from stores.interruption import Interrupted
from stores.kubernetes_api.vcjobs import PATH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from advisor.snapshot import StoredConfigMap, VcJob
    from contract.kubernetes import AnyObject, KubernetesObject
    from stores.cluster import Update

_RIVAL = "resilience-controller"
"""The Resilience-Controller deletes and creates jobs of its own accord (consumers#5.1)."""

_DEFAULT_QUEUE = "default"
"""The queue of a job that names none."""

_Records = dict[str, tuple[Evicted, ...]]


def _stored(item: AnyObject) -> StoredConfigMap:
    try:
        return kubernetes_objects.configmap(item)
    except DocumentError as error:
        raise ValueError(str(error)) from None


def evictions_of(item: AnyObject) -> _Records:
    """Return by job what the scheduler records, from its ConfigMap. Raises ``ValueError``."""
    return read_evictions(_stored(item).data.get(scheduling.RESCHEDULE_KEY, ""))


def grace_over_time_of(item: AnyObject) -> int:
    """Return ``grace-over-time`` in seconds, from the scheduler's ConfigMap.

    Raises ``ValueError``. Source: docs/spec/consumers.md#1.1.
    """
    options = scheduler_options((_stored(item),))
    return DEFAULT_GRACE_OVER_TIME if options is None else options[0].grace_over_time


def _configmap(
    namespace: str, name: str, read: Callable[[KubernetesObject], Any]
) -> ObjectKind[Any]:
    return ObjectKind(
        f"ConfigMap {namespace}/{name}",
        f"/api/v1/namespaces/{namespace}/configmaps",
        read,
        {"fieldSelector": f"metadata.name={name}"},
    )


JOBS = "jobs"
QUEUES = "queues"
SCHEDULER = "scheduler"
KINDS: dict[str, ObjectKind[Any]] = {
    JOBS: ObjectKind("Jobs of Volcano", PATH, read_job),
    "pods": ObjectKind("pods", "/api/v1/pods", read_pod),
    "groups": ObjectKind("PodGroups", "/apis/scheduling.volcano.sh/v1beta1/podgroups", read_group),
    QUEUES: ObjectKind("Queues", "/apis/scheduling.volcano.sh/v1beta1/queues", read_queue),
    "records": _configmap(
        scheduling.RESCHEDULE_NAMESPACE, scheduling.RESCHEDULE_CONFIGMAP, evictions_of
    ),
    SCHEDULER: _configmap(
        scheduling.SCHEDULER_NAMESPACE, scheduling.SCHEDULER_CONFIGMAP, grace_over_time_of
    ),
}
"""What is followed, by a name of one word."""


class JobCache:
    """Objects by kind and uid."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, Any]] = {name: {} for name in KINDS}
        self._unread = {name: f"{kind.name}: not listed yet" for name, kind in KINDS.items()}
        self._pods: dict[str, dict[str, JobPod]] = {}
        self._evicted: dict[str, frozenset[Evicted]] = {}
        """What was recorded about a job since its present run began, also where the scheduler has
        taken it back: that may be before the next round.
        """

    @property
    def unread(self) -> tuple[str, ...]:
        """The kinds that cannot be read at the moment, with the reasons."""
        return tuple(self._unread.values())

    @property
    def rival(self) -> str:
        """A pod of a Resilience-Controller; empty where there is none."""
        for pod in self._found["pods"].values():
            # A pod of a job may have such a name as well: it begins with the job's.
            if not pod.job and pod.name.startswith(_RIVAL) and not pod.has_ended_itself:
                return f"{pod.namespace}/{pod.name}"
        return ""

    def update(
        self, name: str, event: Snapshot[Any] | Update[Any] | KindUnavailable | Interrupted
    ) -> None:
        """Update the cache by an event about a kind."""
        objects = self._found[name]
        match event:
            case Interrupted(reason=reason):
                self._unread[name] = f"{KINDS[name].name}: {reason}"
            case KindUnavailable(reason=reason):
                # The API server has no such kind now, so its last objects are gone with it.
                self._unread[name] = f"{KINDS[name].name}: {reason}"
                objects.clear()
            case Snapshot(items=items, unreadable=unreadable):
                # An object that cannot be decoded still exists, as it was.
                last_readable = {uid: objects[uid] for uid in unreadable if uid in objects}
                for uid, job in items.items() if name == JOBS else ():
                    self._begin_run(objects.get(uid), job)
                self._found[name] = items | last_readable
                self._unread.pop(name, None)
                # Without records a job may look as if no fault had ended it.
                if name == "records" and unreadable:
                    self._unread[name] = f"{KINDS[name].name}: it cannot be read"
            case _:
                if event.value is None:
                    objects.pop(event.key, None)
                else:
                    if name == JOBS:
                        self._begin_run(objects.get(event.key), event.value)
                    objects[event.key] = event.value
        if name == "pods":
            self._index()
        if name == "records":
            self._keep_records()

    def _index(self) -> None:
        self._pods = {}
        for uid, pod in self._found["pods"].items():
            if pod.job:
                self._pods.setdefault(pod.job, {})[uid] = pod

    def _keep_records(self) -> None:
        jobs: Iterable[VcJob] = self._found[JOBS].values()
        # Deleted jobs are forgotten. Records are kept for all: jobs may be listed after them.
        here = {job.group for job in jobs}
        self._evicted = {key: evictions for key, evictions in self._evicted.items() if key in here}
        records: Iterable[_Records] = self._found["records"].values()
        for each in records:
            for group, evictions in each.items():
                self._evicted[group] = self._evicted.get(group, frozenset()).union(evictions)

    def _begin_run(self, before: VcJob | None, job: VcJob) -> None:
        """Forget the records about a run that another one follows.

        The process that started it may have known less than this one, and the scheduler's clock
        may be ahead.
        """
        if before is not None and kept_of(before) != kept_of(job):
            self._evicted.pop(job.group, None)

    def jobs(self) -> list[VcJob]:
        """Return the jobs that ask for elastic training, in the order in which they are served."""
        elastic_jobs = (
            job for job in self._found[JOBS].values() if scheduling.ELASTIC_SCHEDULING in job.labels
        )
        return sorted(elastic_jobs, key=lambda job: (job.created_at_ms, job.namespace, job.name))

    def pods(self, job: VcJob) -> tuple[JobPod, ...]:
        """Return the pods of a job."""
        return tuple(self._pods.get(job.uid, {}).values())

    def has_group(self, job: VcJob) -> bool:
        """Whether a PodGroup belongs to the job."""
        groups: Iterable[str] = self._found["groups"].values()
        return job.uid in groups

    def closed_queue(self, job: VcJob) -> str:
        """Return why the scheduler takes no job from the queue of this one; empty where it does."""
        queues: Iterable[JobQueue] = self._found[QUEUES].values()
        name = job.queue or _DEFAULT_QUEUE
        queue = next((candidate for candidate in queues if candidate.name == name), None)
        if queue is None:
            return f"queue {name} does not exist; create it"
        if queue.is_closed:
            opens = f"vcctl queue operate --name {queue.name} --action open"
            return f"queue {queue.name} is {queue.state}; open it: {opens}"
        return ""

    @property
    def grace_over_time_ms(self) -> int:
        """How long the scheduler waits before it deletes pods by force (consumers#2.7)."""
        seconds = next(iter(self._found[SCHEDULER].values()), DEFAULT_GRACE_OVER_TIME)
        return int(seconds) * 1000

    def evictions(self, job: VcJob) -> tuple[Evicted, ...]:
        """Return what the scheduler has recorded about the job, the oldest first."""
        evictions = self._evicted.get(job.group, ())
        return tuple(
            sorted(
                evictions,
                key=lambda eviction: (eviction.at_seconds, eviction.reason, eviction.node),
            )
        )
