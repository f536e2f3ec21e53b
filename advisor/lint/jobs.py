"""The objects of one kind each, as workloads: which pods are in one PodGroup (consumers#2.9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.lint.elastic import action_after, read_elastic
from advisor.lint.finding import PlacedText
from advisor.lint.labels import both_kept
from advisor.lint.model import Mapping, empty, whole
from advisor.lint.pods import role_of, text_of
from advisor.lint.reach import take_read
from advisor.lint.workload import (
    VOLCANO,
    Controller,
    Role,
    Workload,
    WorkloadForm,
    WorkloadGroup,
)
from contract.scheduling import ELASTIC_SCHEDULING, LWS_LABEL_PREFIX, MIN_REPLICAS
from contract.sentences import sentence

if TYPE_CHECKING:
    from advisor.lint.finding import FindingPlace

VCJOB = "Job (batch.volcano.sh)"
FAILED_EVENTS = ("PodFailed", "*")
_VOLCANO_STRATEGY = "volcanoSchedulingStrategy"
_LEADER_READY = "LeaderReady"


def _workload(form: WorkloadForm, kind: str, root: Mapping, place: FindingPlace) -> Workload:
    metadata = root.mapping("metadata") or empty(root.line)
    line = root.line_of("metadata")
    labels, annotations = both_kept(metadata, place.file)
    job = Workload(
        form,
        place,
        metadata.text("name"),
        metadata.text("namespace") or "default",
        (),
        labels,
        annotations,
        metadata.line_of("labels", line),
        metadata.line_of("annotations", line),
        controller=controller_of(metadata) if "ownerReferences" in metadata else None,
    )
    job.unread = take_read(kind, "metadata", labels, annotations, place)
    return job


def controller_of(metadata: Mapping) -> Controller | None:
    """Return the object that made this one; ``None`` for what people write."""
    for owner in metadata.sequence("ownerReferences"):
        if owner.text("controller") == "true":
            kind, name = owner.text("kind"), owner.text("name")
            # A LeaderWorkerSet makes the rest of a group in the name of its leader.
            group = metadata.text("labels", f"{LWS_LABEL_PREFIX}name") if kind == "Pod" else ""
            return Controller("LeaderWorkerSet", group) if group else Controller(kind, name)
    return None


def _role(
    job: Workload, source: tuple[str, str], name: str, template: Mapping | None, *, line: int
) -> Role:
    """Return the role that a template of ``job`` makes; ``source`` is a row of ``PLACES``."""
    role = role_of(name, template, job.place.file, line, None)
    job.unread += take_read(*source, role.labels, role.annotations, job.place)
    return role


def _spec(root: Mapping) -> Mapping:
    return root.mapping("spec") or empty(root.line)


def vcjob(root: Mapping, place: FindingPlace) -> Workload:
    """Return a Job of Volcano: all its tasks are one PodGroup with its labels and annotations."""
    spec = _spec(root)
    job = _workload(WorkloadForm.VCJOB, VCJOB, root, place)
    source = (VCJOB, "spec.tasks[].template.metadata")
    roles = []
    for task in spec.sequence("tasks"):
        name, template = task.text("name"), task.mapping("template")
        role = _role(job, source, name, template, line=task.line)
        role.pods = task.count("replicas")
        roles.append(role)
    members = whole(spec.scalar("minAvailable"))
    job.groups = (WorkloadGroup(tuple(roles), job.labels, job.annotations, members),)
    job.scheduler_line = root.line_of("spec")
    job.after_failure = action_after(spec, FAILED_EVENTS, place)
    job.filled_by = sentence(
        "the webhook of Volcano, which the manifests of MindCluster do not install,"
    )
    _inherit_scheduler(roles, text_of(spec.scalar("schedulerName"), place.file))
    if ELASTIC_SCHEDULING in job.labels or MIN_REPLICAS in job.annotations:
        job.elastic = read_elastic(root, spec, roles, place)
    return job


def _inherit_scheduler(roles: list[Role], scheduler: PlacedText | None) -> None:
    for role in roles:
        role.scheduler = role.scheduler or scheduler


def ascendjob(root: Mapping, place: FindingPlace) -> Workload:
    """Return an AscendJob: all its replicas are one PodGroup, which has the job's labels."""
    spec = _spec(root)
    job = _workload(WorkloadForm.ASCENDJOB, "AscendJob", root, place)
    source = ("AscendJob", "spec.replicaSpecs.*.template.metadata")
    roles = []
    replicas = spec.mapping("replicaSpecs")
    for name, replica in replicas.items() if replicas is not None else ():
        if isinstance(replica, Mapping):
            role = _role(job, source, name, replica.mapping("template"), line=replica.line)
            role.pods = replica.count("replicas")
            role.restart = text_of(replica.scalar("restartPolicy"), place.file) or role.restart
            roles.append(role)
    members = whole(spec.scalar("runPolicy", "schedulingPolicy", "minAvailable"))
    group = WorkloadGroup(tuple(roles), job.labels, job.annotations, members)
    job.groups = (group,)
    if members is None:
        group.members = group.pods()
    job.scheduler_line = root.line_of("spec")
    job.backoff = text_of(spec.scalar("runPolicy", "backoffLimit"), place.file)
    # The operator writes Volcano into pods that name no scheduler.
    written = text_of(spec.scalar("schedulerName"), place.file)
    default = PlacedText(VOLCANO, job.scheduler_line, place.file)
    _inherit_scheduler(roles, written or default)
    return job


def deployment(root: Mapping, place: FindingPlace) -> Workload:
    """Return a Deployment or ReplicaSet: a PodGroup for each ReplicaSet, with minMember 1."""
    kind, _, _ = place.object.partition(" ")
    return _of_template(WorkloadForm.DEPLOYMENT, kind, root, place, "replicas")


def stateful_set(root: Mapping, place: FindingPlace) -> Workload:
    """Return a StatefulSet: one PodGroup, with minMember 1."""
    return _of_template(WorkloadForm.STATEFUL_SET, "StatefulSet", root, place, "replicas")


def batch_job(root: Mapping, place: FindingPlace) -> Workload:
    """Return a Job of Kubernetes: one PodGroup, with minMember 1."""
    return _of_template(WorkloadForm.BATCH_JOB, "Job (batch)", root, place, "parallelism")


def _of_template(
    form: WorkloadForm, kind: str, root: Mapping, place: FindingPlace, count: str
) -> Workload:
    spec = _spec(root)
    job = _workload(form, kind, root, place)
    template, line = spec.mapping("template"), spec.line_of("template")
    role = _role(job, (kind, "spec.template.metadata"), "pods", template, line=line)
    role.pods = spec.count(count)
    is_shared = form is WorkloadForm.DEPLOYMENT
    job.groups = (WorkloadGroup((role,), members=1, is_shared=is_shared),)
    return job


def pod(root: Mapping, place: FindingPlace) -> Workload:
    """Return a Pod that no controller made: a PodGroup of its own, unless it names one."""
    job = _workload(WorkloadForm.POD, "Pod", root, place)
    role = role_of("pod", root, place.file, root.line, 1)
    role.labels, role.annotations = job.labels, job.annotations
    job.groups = (WorkloadGroup((role,), members=1),)
    return job


def leader_worker_set(root: Mapping, place: FindingPlace) -> Workload:
    """Return a LeaderWorkerSet: one PodGroup for each group of a leader and its workers."""
    spec = _spec(root)
    template = spec.mapping("leaderWorkerTemplate")
    kind = "LeaderWorkerSet"
    job = _workload(WorkloadForm.LWS, kind, root, place)
    if template is None:
        return job
    size = template.count("size")
    roles = []
    for name in ("leader", "worker"):
        line = template.line_of(f"{name}Template")
        # Without a template of its own the leader is made of the worker's.
        key = f"{name}Template" if template.mapping(f"{name}Template") else "workerTemplate"
        source = (kind, f"spec.leaderWorkerTemplate.{key}.metadata")
        roles.append(_role(job, source, name, template.mapping(key), line=line))
    roles[0].pods, roles[1].pods = 1, None if size is None else size - 1
    if size == 1:
        roles.pop()
    job.after_failure = text_of(template.scalar("restartPolicy"), place.file)
    # LWS wants the whole group placed at once, unless its workers wait for their leader.
    members = 1 if spec.text("startupPolicy") == _LEADER_READY else size
    job.groups = (WorkloadGroup(tuple(roles), members=members),)
    return job


def storm_service(root: Mapping, place: FindingPlace) -> Workload:
    """Return a StormService: roles of podGroupSize 1 share a PodGroup, others have one each."""
    kind = "StormService"
    job = _workload(WorkloadForm.STORM, kind, root, place)
    template = root.mapping("spec", "template") or empty(root.line)
    metadata = template.mapping("metadata")
    if metadata is not None:
        path, texts = "spec.template.metadata", both_kept(metadata, place.file)
        job.unread += take_read(kind, path, *texts, place)
    _take_roles(job, (kind, "spec.template.spec.roles[].template.metadata"), _spec(template))
    return job


def role_set(root: Mapping, place: FindingPlace) -> Workload:
    """Return a RoleSet: the instance of a StormService."""
    job = _workload(WorkloadForm.STORM, "RoleSet", root, place)
    _take_roles(job, ("RoleSet", "spec.roles[].template.metadata"), _spec(root))
    return job


def _take_roles(job: Workload, source: tuple[str, str], spec: Mapping) -> None:
    shared: list[Role] = []
    groups = []
    strategy = spec.mapping("schedulingStrategy", _VOLCANO_STRATEGY)
    for role_object in spec.sequence("roles"):
        role = _role(
            job,
            source,
            role_object.text("name"),
            role_object.mapping("template"),
            line=role_object.line,
        )
        role.pods = role_object.count("podGroupSize")
        if strategy or role_object.mapping("schedulingStrategy", _VOLCANO_STRATEGY):
            job.filled_by = sentence("a release of AIBrix after v0.7.0-rc.3")
        if role.pods == 1:
            role.pods = role_object.count("replicas")
            # The router of a service without podGroupSize has no chips and no gang.
            if role_object.scalar("podGroupSize") is not None or role.cards:
                shared.append(role)
                continue
        groups.append(WorkloadGroup((role,)))
    job.groups = (*groups, *([WorkloadGroup(tuple(shared), is_shared=True)] if shared else ()))


def pod_set(root: Mapping, place: FindingPlace) -> Workload:
    """Return a PodSet: one instance of a role, which gives its pods its own metadata too."""
    spec = _spec(root)
    job = _workload(WorkloadForm.STORM, "PodSet", root, place)
    template, line = spec.mapping("template"), spec.line_of("template")
    role = _role(job, ("PodSet", "spec.template.metadata"), "pods", template, line=line)
    role.pods = spec.count("podGroupSize")
    role.labels = {**job.labels, **role.labels}
    role.annotations = {**job.annotations, **role.annotations}
    job.groups = (WorkloadGroup((role,)),)
    return job


def pod_group(root: Mapping, place: FindingPlace) -> Workload:
    """Return a PodGroup without its pods."""
    job = _workload(WorkloadForm.POD_GROUP, "PodGroup", root, place)
    members = whole(_spec(root).scalar("minMember"))
    job.groups = (WorkloadGroup((), job.labels, job.annotations, members),)
    return job
