"""Makes the values of ``advisor/snapshot.py`` from Kubernetes' JSON.

Every function takes an object, or its bytes, and raises ``DocumentError`` with the object and the
JSON path of what cannot be read. Members that decisions do not need are not looked at.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from advisor import snapshot
from advisor.inputs.quantities import amount
from contract import scheduling
from contract.errors import DocumentError
from contract.kubernetes import (
    AnyObject,
    KubernetesObject,
    Member,
    ObjectMetadata,
    decode_object,
    require_name,
)
from contract.validation_texts import decode_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_Texts = dict[str, str] | None

_MAX_SHARED_LENGTH = 128
"""Characters of a text that is looked for among others; what is remembered for that is bounded."""


class _OwnerReference(msgspec.Struct):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class _NodeSpec(msgspec.Struct):
    unschedulable: bool | None = None
    taints: tuple[snapshot.Taint, ...] | None = None


class _StatusCondition(msgspec.Struct):
    type: str
    status: str


class _NodeStatus(msgspec.Struct):
    capacity: dict[str, str | int] | None = None
    allocatable: dict[str, str | int] | None = None
    conditions: list[_StatusCondition] | None = None


class _Env(msgspec.Struct):
    name: str
    value: str | None = None


class _ContainerResources(msgspec.Struct):
    requests: dict[str, str | int] | None = None
    limits: dict[str, str | int] | None = None


class _PodContainer(msgspec.Struct):
    name: str = ""
    env: list[_Env] | None = None
    resources: _ContainerResources | None = None


class _PodToleration(msgspec.Struct):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class _Requirement(msgspec.Struct):
    key: str
    operator: str
    values: list[str] | None = None


class _Term(msgspec.Struct):
    labels: list[_Requirement] | None = msgspec.field(default=None, name="matchExpressions")
    fields: list[_Requirement] | None = msgspec.field(default=None, name="matchFields")


class _Terms(msgspec.Struct):
    terms: list[_Term] | None = msgspec.field(default=None, name="nodeSelectorTerms")


class _NodeAffinity(msgspec.Struct):
    required: _Terms | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class _LabelSelector(msgspec.Struct):
    labels: _Texts = msgspec.field(default=None, name="matchLabels")
    expressions: list[_Requirement] | None = msgspec.field(default=None, name="matchExpressions")


class _ApartTerm(msgspec.Struct):
    topology: str = msgspec.field(default="", name="topologyKey")
    selector: _LabelSelector | None = msgspec.field(default=None, name="labelSelector")
    namespaces: list[str] | None = None
    namespace_selector: dict[str, object] | None = msgspec.field(
        default=None, name="namespaceSelector"
    )


class _PodAntiAffinity(msgspec.Struct):
    required: list[_ApartTerm] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class _Affinity(msgspec.Struct):
    node: _NodeAffinity | None = msgspec.field(default=None, name="nodeAffinity")
    apart: _PodAntiAffinity | None = msgspec.field(default=None, name="podAntiAffinity")


class _PodSpec(msgspec.Struct, rename="camel"):
    node_name: str | None = None
    restart_policy: str | None = None
    termination_grace_period_seconds: int | None = None
    scheduler_name: str | None = None
    node_selector: _Texts = None
    affinity: _Affinity | None = None
    tolerations: list[_PodToleration] | None = None
    containers: list[_PodContainer] | None = None
    init_containers: list[_PodContainer] | None = None
    overhead: dict[str, str | int] | None = None


class _Ended(msgspec.Struct):
    exit_code: int = msgspec.field(default=0, name="exitCode")


class _ContainerState(msgspec.Struct):
    terminated: _Ended | None = None


class _ContainerStatus(msgspec.Struct):
    name: str = ""
    restarts: int = msgspec.field(default=0, name="restartCount")
    state: _ContainerState | None = None
    last: _ContainerState | None = msgspec.field(default=None, name="lastState")


class _PodStatus(msgspec.Struct):
    phase: str | None = None
    containers: list[_ContainerStatus] | None = msgspec.field(
        default=None, name="containerStatuses"
    )


class _PodGroupSpec(msgspec.Struct):
    min_member: int | None = msgspec.field(default=None, name="minMember")
    min_resources: dict[str, str | int] | None = msgspec.field(default=None, name="minResources")


class _Phase(msgspec.Struct):
    phase: str | None = None


class _Policy(msgspec.Struct):
    action: str = ""
    event: str = ""
    events: list[str] | None = None


class _TemplateMetadata(msgspec.Struct):
    labels: _Texts = None
    annotations: _Texts = None


class _Template(msgspec.Struct):
    metadata: _TemplateMetadata | None = None
    spec: _PodSpec | None = None


class _Task(msgspec.Struct, rename="camel"):
    name: str = ""
    replicas: int | None = None
    min_available: int | None = None
    policies: list[_Policy] | None = None
    template: _Template | None = None
    partition_policy: dict[str, object] | None = None


class _ManagedFields(msgspec.Struct):
    manager: str = ""
    subresource: str = ""
    time: str | None = None
    fields: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"{}"), name="fieldsV1")


class _VcJobSpec(msgspec.Struct, rename="camel"):
    queue: str = ""
    min_available: int | None = None
    max_retry: int | None = None
    min_success: int | None = None
    ttl_seconds_after_finished: int | None = None
    tasks: list[_Task] | None = None
    policies: list[_Policy] | None = None


class _VcJobState(msgspec.Struct):
    phase: str | None = None
    message: str | None = None


class _VcJobCondition(msgspec.Struct):
    status: str = ""
    since: str | None = msgspec.field(default=None, name="lastTransitionTime")


class _VcJobStatus(msgspec.Struct):
    state: _VcJobState | None = None
    retry_count: int | None = msgspec.field(default=None, name="retryCount")
    conditions: list[_VcJobCondition] | None = None


class _Replicas(msgspec.Struct):
    replicas: int | None = None


class _RunPolicy(msgspec.Struct):
    backoff_limit: int | None = msgspec.field(default=None, name="backoffLimit")


class _AscendJobSpec(msgspec.Struct, rename="camel"):
    run_policy: _RunPolicy | None = None
    replica_specs: dict[str, _Replicas] | None = None


class _AscendJobStatus(msgspec.Struct):
    conditions: list[_StatusCondition] | None = None


class _GroupTemplate(msgspec.Struct, rename="camel"):
    size: int | None = None
    restart_policy: str | None = None


class _WorkloadSpec(msgspec.Struct, rename="camel"):
    replicas: int | None = None
    recovery_policy: str | None = None
    leader_worker_template: _GroupTemplate | None = None


# The API writes null where Go has no value: here it is as if the member were missing.
_labels: Member[_Texts] = Member("metadata.labels", _Texts)
_annotations: Member[_Texts] = Member("metadata.annotations", _Texts)
_created: Member[str | None] = Member("metadata.creationTimestamp", str | None)
_deleted: Member[str | None] = Member("metadata.deletionTimestamp", str | None)
_grace: Member[int | None] = Member("metadata.deletionGracePeriodSeconds", int | None)
_owners: Member[list[_OwnerReference] | None] = Member(
    "metadata.ownerReferences", list[_OwnerReference] | None
)
_managed: Member[list[_ManagedFields] | None] = Member(
    "metadata.managedFields", list[_ManagedFields] | None
)
_node_spec: Member[_NodeSpec | None] = Member("spec", _NodeSpec | None)
_node_status: Member[_NodeStatus | None] = Member("status", _NodeStatus | None)
_pod_spec: Member[_PodSpec | None] = Member("spec", _PodSpec | None)
_pod_status: Member[_PodStatus | None] = Member("status", _PodStatus | None)
_group_spec: Member[_PodGroupSpec | None] = Member("spec", _PodGroupSpec | None)
_phase: Member[_Phase | None] = Member("status", _Phase | None)
_vcjob_spec: Member[_VcJobSpec | None] = Member("spec", _VcJobSpec | None)
_vcjob_status: Member[_VcJobStatus | None] = Member("status", _VcJobStatus | None)
_ascend_job_spec: Member[_AscendJobSpec | None] = Member("spec", _AscendJobSpec | None)
_ascend_job_status: Member[_AscendJobStatus | None] = Member("status", _AscendJobStatus | None)
_replicas: Member[_Replicas | None] = Member("spec", _Replicas | None)
_workload_spec: Member[_WorkloadSpec | None] = Member("spec", _WorkloadSpec | None)
_data: Member[_Texts] = Member("data", _Texts)


T = TypeVar("T")


def _of_kind(
    kind: str,
) -> Callable[[Callable[[KubernetesObject], T]], Callable[[AnyObject], T]]:
    """Make a reader take the bytes of an object of ``kind``, too, and raise ``DocumentError``."""

    def decorate(read: Callable[[KubernetesObject], T]) -> Callable[[AnyObject], T]:
        @wraps(read)
        def checked(item: AnyObject) -> T:
            try:
                decoded = decode_object(item)
                require_name(decoded)
                return read(decoded)
            except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
                problem = decode_problem(error)
                raise DocumentError(_called(item, kind), problem.where, problem.what) from None

        return checked

    return decorate


def _called(item: AnyObject, kind: str) -> str:
    """Return what an object that cannot be read is called, as far as that can be seen."""
    try:
        if isinstance(item, KubernetesObject):
            names = [item.metadata.namespace, item.metadata.name]
        else:
            metadata = msgspec.json.decode(item)["metadata"]
            names = [metadata.get("namespace", ""), metadata["name"]]
    except (
        msgspec.MsgspecError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
    ):
        names = []
    called = "/".join(str(name) for name in names if name)
    return f"{kind} {called}" if called else f"{kind} without a name"


@_of_kind("Node")
def node(item: KubernetesObject) -> snapshot.SchedulerNode:
    """Return a Node."""
    metadata = item.metadata
    spec, status = _node_spec(item) or _NodeSpec(), _node_status(item) or _NodeStatus()
    return snapshot.SchedulerNode(
        name=_one_text(metadata.name),
        uid=metadata.uid,
        is_ready=any(
            condition.type == "Ready" and condition.status == "True"
            for condition in status.conditions or ()
        ),
        labels=_of_shared_texts(_labels(item)),
        annotations=_annotations(item) or {},
        capacity=shared(_amounts(status.capacity, f"Node {metadata.name}", "$.status.capacity")),
        allocatable=shared(
            _amounts(status.allocatable, f"Node {metadata.name}", "$.status.allocatable")
        ),
        taints=spec.taints or (),
        is_cordoned=bool(spec.unschedulable),
    )


@_of_kind("Pod")
def pod(item: KubernetesObject) -> snapshot.SchedulerPod:
    """Return a Pod."""
    metadata = item.metadata
    spec, status = _pod_spec(item) or _PodSpec(), _pod_status(item) or _PodStatus()
    called = f"Pod {metadata.namespace}/{metadata.name}"
    grace = spec.termination_grace_period_seconds
    return snapshot.SchedulerPod(
        namespace=_one_text(metadata.namespace),
        name=metadata.name,
        uid=metadata.uid,
        node=_one_text(spec.node_name or ""),
        phase=_one_text(status.phase or "Pending"),
        labels=shared(_labels(item) or {}),
        annotations=_of_shared_texts(_annotations(item)),
        owner=_owner(item),
        created_at_ms=_created_at_ms(item, called),
        is_terminating=_deleted(item) is not None,
        deletion_grace_seconds=_grace(item),
        restart_policy=_one_text(spec.restart_policy or "Always"),
        # Not ``or``: 0 is a value of its own, and only a missing one is Kubernetes' 30 s.
        termination_grace_seconds=30 if grace is None else grace,
        requests=shared(_requests(spec, called)),
        node_selector=shared(spec.node_selector or {}),
        node_affinity=_affinity(spec),
        anti_affinity=_one_of(_anti_affinity(spec, metadata.namespace)),
        tolerations=_one_of(_tolerations(spec)),
        scheduler_name=_one_text(spec.scheduler_name or ""),
        task_index=_one_text(_task_index(spec)),
        containers=_one_of(tuple(_container(container) for container in status.containers or ())),
    )


def _tolerations(spec: _PodSpec) -> tuple[snapshot.Toleration, ...]:
    return tuple(
        snapshot.Toleration(
            toleration.key or "",
            toleration.operator or "",
            toleration.value or "",
            toleration.effect or "",
        )
        for toleration in spec.tolerations or ()
    )


@_of_kind("PodGroup")
def pod_group(item: KubernetesObject) -> snapshot.PodGroup:
    """Return a PodGroup."""
    metadata, spec = item.metadata, _group_spec(item) or _PodGroupSpec()
    status = _phase(item) or _Phase()
    return snapshot.PodGroup(
        namespace=_one_text(metadata.namespace),
        name=metadata.name,
        uid=metadata.uid,
        phase=_one_text(status.phase or ""),
        min_member=spec.min_member or 0,
        min_resources=shared(
            {key: str(quantity) for key, quantity in (spec.min_resources or {}).items()}
        ),
        labels=shared(_labels(item) or {}),
        annotations=_of_shared_texts(_annotations(item)),
        owner=_owner(item),
        created_at_ms=_created_at_ms(item, f"PodGroup {metadata.namespace}/{metadata.name}"),
    )


@_of_kind("Job")
def vcjob(item: KubernetesObject) -> snapshot.VcJob:
    """Return a Volcano Job."""
    metadata, spec = item.metadata, _vcjob_spec(item) or _VcJobSpec()
    status = _vcjob_status(item) or _VcJobStatus()
    state, tasks = status.state or _VcJobState(), spec.tasks or ()
    called = f"Job {metadata.namespace}/{metadata.name}"
    return snapshot.VcJob(
        namespace=_one_text(metadata.namespace),
        name=metadata.name,
        uid=metadata.uid,
        labels=shared(_labels(item) or {}),
        annotations=_of_shared_texts(_annotations(item)),
        tasks=_one_of(tuple(_task(task) for task in tasks)),
        min_available=spec.min_available or 0,
        max_retry=spec.max_retry,
        min_success=spec.min_success,
        ttl_seconds=spec.ttl_seconds_after_finished,
        policies=_one_of(_policies(spec.policies)),
        phase=_one_text(state.phase or ""),
        message=state.message or "",
        conditions=_conditions(status.conditions, called),
        retry_count=status.retry_count or 0,
        created_at_ms=_created_at_ms(item, called),
        is_deleted=_deleted(item) is not None,
        has_owner=bool(_owners(item)),
        template=_template(metadata, tasks),
        version=metadata.resource_version,
        writer=_writer(_managed(item)),
        queue=_one_text(spec.queue),
    )


def _conditions(
    read: Sequence[_VcJobCondition] | None, called: str
) -> tuple[snapshot.VcJobCondition, ...]:
    where = "$.status.conditions"
    return tuple(
        snapshot.VcJobCondition(
            _one_text(condition.status), _time_ms(condition.since, called, where)
        )
        for condition in read or ()
    )


def _policies(read: Sequence[_Policy] | None) -> tuple[snapshot.LifecyclePolicy, ...]:
    return tuple(
        snapshot.LifecyclePolicy(
            tuple(filter(None, (policy.event, *(policy.events or ())))), policy.action
        )
        for policy in read or ()
    )


def _task(read: _Task) -> snapshot.VcJobTask:
    spec = (read.template and read.template.spec) or _PodSpec()
    places: list[tuple[int, str]] = []
    counts: dict[str, int] = {}
    for index, container in enumerate(spec.containers or ()):
        resources = container.resources or _ContainerResources()
        requests: dict[str, int] = {}
        # Requests come last and replace limits; of chips, Kubernetes demands that both are equal.
        for field, amounts in (("limits", resources.limits), ("requests", resources.requests)):
            for resource, quantity in (amounts or {}).items():
                if resource.startswith(scheduling.RESOURCE_DOMAIN):
                    text = str(quantity)
                    requests[resource] = int(text) if text.isascii() and text.isdigit() else 0
                    places.append((index, field))
        for resource, number in requests.items():
            counts[resource] = counts.get(resource, 0) + number
    return snapshot.VcJobTask(
        name=read.name,
        replicas=1 if read.replicas is None else read.replicas,
        min_available=read.min_available,
        resource=",".join(counts),
        cards=sum(counts.values()),
        places=tuple(places),
        is_partitioned=bool(read.partition_policy),
        policies=_policies(read.policies),
    )


def _writer(managed: Sequence[_ManagedFields] | None) -> str:
    """Return which other program wrote the tasks of a vcjob last, by the API server's record."""
    others = (
        entry
        for entry in managed or ()
        if not entry.subresource
        # Our own changes of the size are not those of another program.
        and entry.manager != "npu-vigil"
        and b'"f:tasks"' in bytes(entry.fields)
    )
    last = max(others, key=lambda entry: _milliseconds(entry.time or "") or 0, default=None)
    return "" if last is None else last.manager


def _template(metadata: ObjectMetadata, tasks: Sequence[_Task]) -> snapshot.SchedulerPod | None:
    """Return a pod of the task that asks for most chips; ``None`` where none asks for any."""
    from_template: snapshot.SchedulerPod | None = None
    most = 0
    for task in tasks:
        template = task.template or _Template()
        spec, own = template.spec or _PodSpec(), template.metadata or _TemplateMetadata()
        requests = _requests(spec, f"Job {metadata.namespace}/{metadata.name}")
        chips = [n for name, n in requests.items() if name.startswith(scheduling.RESOURCE_DOMAIN)]
        if sum(chips) > most:
            most = sum(chips)
            from_template = snapshot.SchedulerPod(
                metadata.namespace,
                f"{metadata.name}-{task.name}-0",
                "",
                labels=shared(own.labels or {}),
                annotations=_of_shared_texts(own.annotations),
                requests=shared(requests),
                node_selector=shared(spec.node_selector or {}),
                node_affinity=_affinity(spec),
                anti_affinity=_anti_affinity(spec, metadata.namespace),
                tolerations=_one_of(_tolerations(spec)),
            )
    return from_template


@_of_kind("AscendJob")
def ascend_job(item: KubernetesObject) -> snapshot.AscendJob:
    """Return an AscendJob."""
    metadata, spec = item.metadata, _ascend_job_spec(item) or _AscendJobSpec()
    status = _ascend_job_status(item) or _AscendJobStatus()
    return snapshot.AscendJob(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        labels=_labels(item) or {},
        annotations=_annotations(item) or {},
        replicas=sum(
            1 if replicas.replicas is None else replicas.replicas
            for replicas in (spec.replica_specs or {}).values()
        ),
        backoff_limit=spec.run_policy.backoff_limit if spec.run_policy else None,
        is_over=any(
            condition.type in ("Succeeded", "Failed") and condition.status == "True"
            for condition in status.conditions or ()
        ),
        created_at_ms=_created_at_ms(item, f"AscendJob {metadata.namespace}/{metadata.name}"),
    )


@_of_kind("ReplicaSet")
def replica_set(item: KubernetesObject) -> snapshot.ReplicaSet:
    """Return a ReplicaSet."""
    metadata, spec = item.metadata, _replicas(item) or _Replicas()
    return snapshot.ReplicaSet(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        replicas=1 if spec.replicas is None else spec.replicas,
        labels=_labels(item) or {},
        annotations=_annotations(item) or {},
        owner=_owner(item),
    )


@_of_kind("LeaderWorkerSet")
def leader_worker_set(item: KubernetesObject) -> snapshot.WorkloadObject:
    """Return a LeaderWorkerSet with the ``restartPolicy`` that counts.

    Source: docs/spec/consumers.md#2.9.
    """
    spec = _workload_spec(item) or _WorkloadSpec()
    template = spec.leader_worker_template or _GroupTemplate()
    policy = template.restart_policy or scheduling.LWS_RECREATE_ON_RESTART
    # Objects of older releases of LWS still have the old name of this policy.
    if policy == scheduling.LWS_NONE_BEFORE:
        policy = scheduling.LWS_NONE
    waits = scheduling.LWS_AFTER_START_ANNOTATION in (_annotations(item) or {})
    if waits and policy == scheduling.LWS_RECREATE_ON_RESTART:
        policy = scheduling.LWS_RECREATE_AFTER_START
    size = 1 if template.size is None else template.size
    whole = _workload("LeaderWorkerSet", item, spec)
    return msgspec.structs.replace(whole, policy=policy, size=size)


@_of_kind("PodSet")
def pod_set(item: KubernetesObject) -> snapshot.WorkloadObject:
    """Return a PodSet of AIBrix with its ``recoveryPolicy`` (consumers#2.9)."""
    spec = _workload_spec(item) or _WorkloadSpec()
    policy = spec.recovery_policy or scheduling.POD_SET_REPLACE
    return msgspec.structs.replace(_workload("PodSet", item, spec), policy=policy)


def workload(kind: str) -> Callable[[AnyObject], snapshot.WorkloadObject]:
    """Return what reads an object of ``kind``, of which only its owner and its replicas matter."""

    @_of_kind(kind)
    def read_workload(item: KubernetesObject) -> snapshot.WorkloadObject:
        return _workload(kind, item, _workload_spec(item) or _WorkloadSpec())

    return read_workload


def _workload(kind: str, item: KubernetesObject, spec: _WorkloadSpec) -> snapshot.WorkloadObject:
    return snapshot.WorkloadObject(
        kind=kind,
        # A manifest may leave out what the API server fills in.
        namespace=item.metadata.namespace or "default",
        name=item.metadata.name,
        uid=item.metadata.uid,
        replicas=spec.replicas,
        owner=_owner(item),
    )


@_of_kind("ConfigMap")
def configmap(item: KubernetesObject) -> snapshot.StoredConfigMap:
    """Return a ConfigMap."""
    metadata = item.metadata
    return snapshot.StoredConfigMap(
        namespace=metadata.namespace,
        name=metadata.name,
        data=_data(item) or {},
        labels=_labels(item) or {},
        annotations=_annotations(item) or {},
        uid=metadata.uid,
        resource_version=metadata.resource_version,
    )


def shared(values: dict[str, T]) -> dict[str, T]:
    """Return one value for all objects that have the same; it is never changed."""
    values_of_all: dict[str, T] = _one_dict(tuple(values.items()))
    return values_of_all


@lru_cache(maxsize=4096)
def _one_dict(items: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    return dict(items)


@lru_cache(maxsize=1024)
def _one_of(value: T) -> T:
    return value


def _one_text(text: str) -> str:
    """Return one value for all texts that are equal, but for long ones: few objects share them."""
    return _known_text(text) if len(text) <= _MAX_SHARED_LENGTH else text


@lru_cache(maxsize=4096)
def _known_text(text: str) -> str:
    # Not ``sys.intern``: in Python 3.12 that keeps a text for ever.
    return text


def _of_shared_texts(texts: _Texts) -> dict[str, str]:
    """Return texts of which equal ones are one value: most objects have the same ones."""
    return {_one_text(key): _one_text(text) for key, text in (texts or {}).items()}


def _owner(item: KubernetesObject) -> snapshot.ControllingOwner | None:
    for owner in _owners(item) or ():
        if owner.controller:
            shared_owner: snapshot.ControllingOwner = _one_of(
                snapshot.ControllingOwner(owner.kind, owner.name, owner.uid)
            )
            return shared_owner
    return None


def _created_at_ms(item: KubernetesObject, called: str) -> int:
    return _time_ms(_created(item), called, "$.metadata.creationTimestamp")


def _time_ms(text: str | None, called: str, where: str) -> int:
    """Return a time in Unix milliseconds; 0 for none."""
    if text is None:
        return 0
    parsed = _milliseconds(text)
    if parsed is None:
        raise DocumentError(called, where, f"{text[:40]!r} is not a valid time")
    return parsed


@lru_cache(maxsize=1024)
def _milliseconds(text: str) -> int | None:
    try:
        parsed = datetime.fromisoformat(text)
        return None if parsed.tzinfo is None else int(parsed.timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def _amounts(quantities: dict[str, str | int] | None, called: str, where: str) -> snapshot.Amounts:
    amounts = {}
    for resource, text in (quantities or {}).items():
        value = amount(str(text), resource)
        if value is None:
            problem = f"{text!r:.60} is not a valid quantity"
            raise DocumentError(called, f"{where}[{resource!r}]", problem)
        amounts[resource] = value
    return amounts


def _requests(spec: _PodSpec, called: str) -> snapshot.Amounts:
    """Return what the scheduler counts: all containers, or one init container where that is more.

    A limit without a request counts as the request, as the API server stores it.
    """
    total: dict[str, int] = {}
    for container in spec.containers or ():
        for resource, value in _asked(container, called, "$.spec.containers").items():
            total[resource] = total.get(resource, 0) + value
    for container in spec.init_containers or ():
        for resource, value in _asked(container, called, "$.spec.initContainers").items():
            total[resource] = max(total.get(resource, 0), value)
    for resource, value in _amounts(spec.overhead, called, "$.spec.overhead").items():
        total[resource] = total.get(resource, 0) + value
    return total


def _asked(container: _PodContainer, called: str, where: str) -> snapshot.Amounts:
    if container.resources is None:
        return {}
    quantities = {**(container.resources.limits or {}), **(container.resources.requests or {})}
    return _amounts(quantities, called, f"{where}[{container.name!r}].resources")


def _affinity(spec: _PodSpec) -> tuple[snapshot.SelectorTerm, ...] | None:
    required = spec.affinity and spec.affinity.node and spec.affinity.node.required
    if not required:
        return None
    return tuple(
        snapshot.SelectorTerm(_requirements(term.labels), _requirements(term.fields))
        for term in required.terms or ()
    )


def _anti_affinity(spec: _PodSpec, namespace: str) -> tuple[snapshot.ApartTerm, ...]:
    required = spec.affinity and spec.affinity.apart and spec.affinity.apart.required
    terms = []
    for term in required or ():
        labels: tuple[snapshot.Requirement, ...] | None = None
        if term.selector is not None:
            equal = (term.selector.labels or {}).items()
            labels = (
                *(snapshot.Requirement(key, "In", (value,)) for key, value in equal),
                *_requirements(term.selector.expressions),
            )
        named = tuple(term.namespaces or ())
        # Labels of namespaces are not read: a selector of them is taken for one of all.
        namespaces = None if term.namespace_selector is not None else named or (namespace,)
        terms.append(snapshot.ApartTerm(term.topology, labels, namespaces))
    return tuple(terms)


def _requirements(listed: list[_Requirement] | None) -> tuple[snapshot.Requirement, ...]:
    return tuple(
        snapshot.Requirement(requirement.key, requirement.operator, tuple(requirement.values or ()))
        for requirement in listed or ()
    )


def _task_index(spec: _PodSpec) -> str:
    for container in spec.containers or ():
        for env in container.env or ():
            if env.name == scheduling.TASK_INDEX_ENV:
                return env.value or ""
    return ""


def _container(status: _ContainerStatus) -> snapshot.Container:
    state, last = status.state, status.last
    return snapshot.Container(
        name=status.name,
        exit_code=state.terminated.exit_code if state and state.terminated else None,
        last_exit_code=last.terminated.exit_code if last and last.terminated else None,
        restarts=status.restarts,
    )
