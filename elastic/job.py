"""What is read of a vcjob, of its pods, PodGroup and Queue (``docs/spec/consumers.md#2.9``)."""

from __future__ import annotations

from datetime import datetime
from itertools import dropwhile, pairwise, takewhile
from typing import TYPE_CHECKING

import msgspec

from contract.documents.elastic_job import ENDED, FINISHED, STARTED, Size
from contract.scheduling import RESOURCE_DOMAIN, go_integer

if TYPE_CHECKING:
    from collections.abc import Collection

Texts = dict[str, str]

_ENDING = ("Aborting", "Terminating", "Completing", "Restarting")


class ElasticJobPolicy(msgspec.Struct, frozen=True):
    """What the controller does after one of the events."""

    events: tuple[str, ...]
    action: str


class Task(msgspec.Struct, frozen=True):
    """A task of a job. ``resource`` is that of its chips, empty where it asks for none.

    ``places`` are the containers, by index, and the fields of their resources that name chips.
    """

    name: str
    replicas: int
    available: int | None
    resource: str
    cards: int
    places: tuple[tuple[int, str], ...] = ()
    is_partitioned: bool = False
    policies: tuple[ElasticJobPolicy, ...] = ()


class JobCondition(msgspec.Struct, frozen=True):
    """A phase that the job had, and from when on (epoch milliseconds)."""

    phase: str
    at_ms: int


class ElasticJob(msgspec.Struct, frozen=True):
    """A vcjob. ``version`` is its resourceVersion, ``max_retry`` the stored one.

    ``writer`` is the last one but us who wrote its tasks. ``ended_at_ms`` is when it ended, 0 where
    it has not. ``queue`` is where the scheduler takes it from, empty for the default one.
    """

    namespace: str
    name: str
    uid: str
    version: str = ""
    labels: Texts = {}
    annotations: Texts = {}
    created_at_ms: int = 0
    is_deleted: bool = False
    has_owner: bool = False
    tasks: tuple[Task, ...] = ()
    available: int = 0
    max_retry: int | None = None
    min_success: int | None = None
    ttl_seconds: int | None = None
    policies: tuple[ElasticJobPolicy, ...] = ()
    phase: str = ""
    message: str = ""
    conditions: tuple[JobCondition, ...] = ()
    writer: str = ""
    queue: str = ""

    @property
    def key(self) -> str:
        """``<namespace>/<name>``."""
        return f"{self.namespace}/{self.name}"

    @property
    def group(self) -> str:
        """The job as the scheduler names it: ``<namespace>/<name>-<uid>`` (consumers#2.9)."""
        return f"{self.key}-{self.uid}"

    @property
    def number(self) -> int:
        """Its resourceVersion as a number: versions of one API server are compared."""
        return go_integer(self.version) or 0

    @property
    def is_ended(self) -> bool:
        """Whether it has ended so that it can be started again."""
        return self.phase in ENDED

    @property
    def is_ending(self) -> bool:
        """Whether the controller ends its pods."""
        return self.phase in _ENDING

    @property
    def size(self) -> Size | None:
        """Its size now; ``None`` where it has not exactly one task."""
        if len(self.tasks) != 1:
            return None
        one = self.tasks[0]
        return Size(one.replicas, one.cards, self.available, one.available)

    @property
    def started(self) -> int:
        """The number of its last start by us; 0 for none."""
        number = self.message.removeprefix(STARTED).partition(":")[0]
        is_ours = self.message.startswith(STARTED) and number.isascii() and number.isdigit()
        return int(number) if is_ours else 0

    @property
    def ended_at_ms(self) -> int:
        """When it reached the phase in which it has ended; 0 while it has not."""
        return self._since_ms(FINISHED) if self.phase in FINISHED else 0

    @property
    def phase_since_ms(self) -> int:
        """When it reached its phase; 0 where no condition has it."""
        return self._since_ms((self.phase,))

    def _since_ms(self, phases: Collection[str]) -> int:
        """Return the time of the first of the last conditions that have one of ``phases``.

        The controller adds a condition whenever a number of its status changes.
        """
        latest = takewhile(lambda one: one.phase in phases, reversed(self.conditions))
        return min((one.at_ms for one in latest), default=0)

    @property
    def resumed_ms(self) -> int:
        """When a Command of its owner last started it again; 0 where none did.

        A start of ours does not pass through ``Restarting``.
        """
        return max(
            (
                one.at_ms
                for before, one in pairwise(self.conditions)
                if (before.phase, one.phase) == ("Restarting", "Pending")
            ),
            default=0,
        )

    @property
    def has_run(self) -> bool:
        """Whether it has run since the end before this one."""
        before = dropwhile(lambda one: one.phase in FINISHED, reversed(self.conditions))
        latest = takewhile(lambda one: one.phase not in FINISHED, before)
        return any(one.phase == "Running" for one in latest)

    @property
    def last_active_ms(self) -> int:
        """When it last had a phase in which pods are made; 0 where no condition has one."""
        return max((one.at_ms for one in self.conditions if one.phase not in FINISHED), default=0)


class JobPod(msgspec.Struct, frozen=True):
    """A pod that a Job of Volcano owns, or a pod of a program that is looked for by its name.

    ``deleted_at_ms`` is when its grace is over, 0 for one that is not deleted.
    """

    namespace: str
    name: str
    uid: str
    job: str = ""
    node: str = ""
    phase: str = "Pending"
    deleted_at_ms: int = 0
    grace_seconds: int = 0

    @property
    def has_ended_itself(self) -> bool:
        """Whether it has ended without being deleted."""
        return self.phase in ("Succeeded", "Failed") and not self.deleted_at_ms


class JobQueue(msgspec.Struct, frozen=True):
    """A Queue of Volcano. ``state`` is ``Open``, ``Closing``, ``Closed`` or ``Unknown``."""

    name: str
    state: str = ""

    @property
    def is_closed(self) -> bool:
        """Whether the scheduler takes no job from it."""
        return self.state in ("Closing", "Closed")


class _Owner(msgspec.Struct):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class _Managed(msgspec.Struct, rename="camel"):
    manager: str = ""
    subresource: str = ""
    time: datetime | None = None
    fields: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"{}"), name="fieldsV1")


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: Texts | None = None
    annotations: Texts | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    owner_references: list[_Owner] | None = None
    managed_fields: list[_Managed] | None = None


class _Policy(msgspec.Struct):
    action: str = ""
    event: str = ""
    events: list[str] | None = None


class _Resources(msgspec.Struct):
    requests: dict[str, str | int] | None = None
    limits: dict[str, str | int] | None = None


class _Container(msgspec.Struct):
    resources: _Resources | None = None


class _PodSpec(msgspec.Struct):
    containers: list[_Container] | None = None


class _Template(msgspec.Struct):
    spec: _PodSpec | None = None


class _Task(msgspec.Struct, rename="camel"):
    name: str = ""
    replicas: int | None = None
    min_available: int | None = None
    template: _Template | None = None
    policies: list[_Policy] | None = None
    partition_policy: dict[str, object] | None = None


class _Spec(msgspec.Struct, rename="camel"):
    queue: str = ""
    min_available: int | None = None
    max_retry: int | None = None
    min_success: int | None = None
    tasks: list[_Task] | None = None
    policies: list[_Policy] | None = None
    ttl_seconds_after_finished: int | None = None


class _State(msgspec.Struct):
    phase: str | None = None
    message: str | None = None


class _Condition(msgspec.Struct, rename="camel"):
    status: str = ""
    last_transition_time: datetime | None = None


class _Status(msgspec.Struct):
    state: _State | None = None
    conditions: list[_Condition] | None = None


class _Job(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec | None = None
    status: _Status | None = None


class _RunSpec(msgspec.Struct, rename="camel"):
    node_name: str | None = None


class _RunStatus(msgspec.Struct):
    phase: str | None = None


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _RunSpec | None = None
    status: _RunStatus | None = None


class _Group(msgspec.Struct):
    metadata: _Metadata


class _QueueStatus(msgspec.Struct):
    state: str | None = None


class _Queue(msgspec.Struct):
    metadata: _Metadata
    status: _QueueStatus | None = None


_jobs = msgspec.json.Decoder(_Job)
_pods = msgspec.json.Decoder(_Pod)
_groups = msgspec.json.Decoder(_Group)
_queues = msgspec.json.Decoder(_Queue)


def read_job(raw: msgspec.Raw | bytes) -> ElasticJob:
    """Return a vcjob. Raises ``msgspec.DecodeError``, which is a ``ValueError``."""
    read = _jobs.decode(raw)
    metadata, spec = read.metadata, read.spec or _Spec()
    status = read.status or _Status()
    state = status.state or _State()
    return ElasticJob(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        version=metadata.resource_version,
        labels=metadata.labels or {},
        annotations=metadata.annotations or {},
        created_at_ms=_ms(metadata.creation_timestamp),
        is_deleted=metadata.deletion_timestamp is not None,
        has_owner=bool(metadata.owner_references),
        tasks=tuple(_task(one) for one in spec.tasks or ()),
        available=spec.min_available or 0,
        max_retry=spec.max_retry,
        min_success=spec.min_success,
        ttl_seconds=spec.ttl_seconds_after_finished,
        policies=_policies(spec.policies),
        phase=state.phase or "",
        message=state.message or "",
        conditions=_conditions(status),
        writer=_writer(metadata.managed_fields or ()),
        queue=spec.queue,
    )


def read_pod(raw: msgspec.Raw | bytes) -> JobPod:
    """Return a pod. Raises ``msgspec.DecodeError``."""
    read = _pods.decode(raw)
    metadata, spec = read.metadata, read.spec or _RunSpec()
    owners = metadata.owner_references or ()
    return JobPod(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        job=next((one.uid for one in owners if one.kind == "Job" and one.controller), ""),
        node=spec.node_name or "",
        phase=(read.status and read.status.phase) or "Pending",
        deleted_at_ms=_ms(metadata.deletion_timestamp),
        grace_seconds=metadata.deletion_grace_period_seconds or 0,
    )


def read_group(raw: msgspec.Raw | bytes) -> str:
    """Return the uid of the job that a PodGroup belongs to; empty for none."""
    owners = _groups.decode(raw).metadata.owner_references or ()
    return next((one.uid for one in owners if one.kind == "Job"), "")


def read_queue(raw: msgspec.Raw | bytes) -> JobQueue:
    """Return a Queue. Raises ``msgspec.DecodeError``."""
    read = _queues.decode(raw)
    return JobQueue(read.metadata.name, (read.status and read.status.state) or "")


def _ms(at: datetime | None) -> int:
    return 0 if at is None else int(at.timestamp() * 1000)


def _policies(read: list[_Policy] | None) -> tuple[ElasticJobPolicy, ...]:
    return tuple(
        ElasticJobPolicy((*((one.event,) if one.event else ()), *(one.events or ())), one.action)
        for one in read or ()
    )


def _conditions(status: _Status) -> tuple[JobCondition, ...]:
    return tuple(
        JobCondition(one.status, _ms(one.last_transition_time)) for one in status.conditions or ()
    )


def _task(one: _Task) -> Task:
    spec = (one.template and one.template.spec) or _PodSpec()
    places: list[tuple[int, str]] = []
    found: dict[str, int] = {}
    for index, container in enumerate(spec.containers or ()):
        resources = container.resources or _Resources()
        asked: dict[str, int] = {}
        for field, amounts in (("limits", resources.limits), ("requests", resources.requests)):
            for resource, amount in (amounts or {}).items():
                if resource.startswith(RESOURCE_DOMAIN):
                    asked[resource] = _number(amount)
                    places.append((index, field))
        for resource, number in asked.items():
            found[resource] = found.get(resource, 0) + number
    return Task(
        name=one.name,
        replicas=1 if one.replicas is None else one.replicas,
        available=one.min_available,
        resource=",".join(found),
        cards=sum(found.values()),
        places=tuple(places),
        is_partitioned=bool(one.partition_policy),
        policies=_policies(one.policies),
    )


def _number(amount: str | int) -> int:
    text = str(amount)
    return int(text) if text.isascii() and text.isdigit() else 0


def _writer(managed: list[_Managed] | tuple[()]) -> str:
    """Return who else wrote the tasks last, by the API server's own record."""
    others = [
        one
        for one in managed
        if not one.subresource and one.manager != "npu-vigil" and b'"f:tasks"' in bytes(one.fields)
    ]
    last = max(others, key=lambda one: _ms(one.time), default=None)
    return "" if last is None else last.manager
