"""The objects of one kind each, as workloads: which pods are in one PodGroup (consumers#2.9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.lint.elastic import read_elastic
from advisor.lint.labels import both_kept
from advisor.lint.model import Mapping, empty, whole
from advisor.lint.pods import role_of, text_of
from advisor.lint.workload import Controller, Role, Workload, WorkloadForm, WorkloadGroup
from contract.scheduling import ELASTIC_SCHEDULING, MIN_REPLICAS

if TYPE_CHECKING:
    from advisor.lint.finding import FindingPlace, PlacedText

_LEADER_READY = "LeaderReady"


def _workload(
    form: WorkloadForm, root: Mapping, place: FindingPlace, groups: tuple[WorkloadGroup, ...]
) -> Workload:
    metadata = root.mapping("metadata") or empty(root.line)
    line = root.line_of("metadata")
    return Workload(
        form,
        place,
        metadata.text("name"),
        metadata.text("namespace") or "default",
        groups,
        *both_kept(metadata, place.file),
        metadata.line_of("labels", line),
        metadata.line_of("annotations", line),
        controller=controller_of(root),
    )


def controller_of(root: Mapping) -> Controller | None:
    """Return the object that made this one; ``None`` for what people write."""
    for owner in root.sequence("metadata", "ownerReferences"):
        if owner.text("controller") == "true":
            return Controller(owner.text("kind"), owner.text("name"))
    return None


def _spec(root: Mapping) -> Mapping:
    return root.mapping("spec") or empty(root.line)


def vcjob(root: Mapping, place: FindingPlace) -> Workload:
    """Return a Job of Volcano: all its tasks are one PodGroup with its labels and annotations."""
    spec = _spec(root)
    roles = []
    for task in spec.sequence("tasks"):
        pods, template = task.count("replicas"), task.mapping("template")
        roles.append(role_of(task.text("name"), template, place.file, task.line, pods))
    job = _workload(WorkloadForm.VCJOB, root, place, ())
    members = whole(spec.scalar("minAvailable"))
    job.groups = (WorkloadGroup(tuple(roles), job.labels, job.annotations, members),)
    job.scheduler_line = root.line_of("spec")
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
    roles = []
    replicas = spec.mapping("replicaSpecs")
    for name, replica in replicas.items() if replicas is not None else ():
        if isinstance(replica, Mapping):
            pods = replica.count("replicas")
            role = role_of(name, replica.mapping("template"), place.file, replica.line, pods)
            role.restart = text_of(replica.scalar("restartPolicy"), place.file) or role.restart
            roles.append(role)
    job = _workload(WorkloadForm.ASCENDJOB, root, place, ())
    members = whole(spec.scalar("runPolicy", "schedulingPolicy", "minAvailable"))
    group = WorkloadGroup(tuple(roles), job.labels, job.annotations, members)
    job.groups = (group,)
    if members is None:
        group.members = group.pods()
    job.scheduler_line = root.line_of("spec")
    job.backoff = text_of(spec.scalar("runPolicy", "backoffLimit"), place.file)
    _inherit_scheduler(roles, text_of(spec.scalar("schedulerName"), place.file))
    return job


def deployment(root: Mapping, place: FindingPlace) -> Workload:
    """Return a Deployment: one PodGroup for each of its ReplicaSets, with minMember 1."""
    spec = _spec(root)
    pods = spec.count("replicas")
    role = role_of("pods", spec.mapping("template"), place.file, spec.line_of("template"), pods)
    job = _workload(WorkloadForm.DEPLOYMENT, root, place, ())
    job.groups = (WorkloadGroup((role,), annotations=job.annotations, members=1, is_shared=True),)
    return job


def leader_worker_set(root: Mapping, place: FindingPlace) -> Workload:
    """Return a LeaderWorkerSet: one PodGroup for each group of a leader and its workers."""
    spec = _spec(root)
    template = spec.mapping("leaderWorkerTemplate")
    job = _workload(WorkloadForm.LWS, root, place, ())
    if template is None:
        return job
    size = template.count("size")
    worker = template.mapping("workerTemplate")
    leader = template.mapping("leaderTemplate")
    line = template.line_of("workerTemplate")
    roles = [role_of("worker", worker, place.file, line, None if size is None else size - 1)]
    line = template.line_of("leaderTemplate")
    roles.insert(0, role_of("leader", leader or worker, place.file, line, 1))
    if size == 1:
        roles.pop()
    # LWS wants the whole group placed at once, unless its workers wait for their leader.
    members = 1 if spec.text("startupPolicy") == _LEADER_READY else size
    job.groups = (WorkloadGroup(tuple(roles), members=members),)
    return job


def storm_service(root: Mapping, place: FindingPlace) -> Workload:
    """Return a StormService: roles of podGroupSize 1 share a PodGroup, others have one each."""
    job = _workload(WorkloadForm.STORM, root, place, ())
    shared: list[Role] = []
    groups = []
    for one in root.sequence("spec", "template", "spec", "roles"):
        pods = one.count("podGroupSize")
        role = role_of(one.text("name"), one.mapping("template"), place.file, one.line, pods)
        if pods == 1:
            role.pods = one.count("replicas")
            # The router of a service without podGroupSize has no chips and no gang.
            if one.scalar("podGroupSize") is not None or role.cards:
                shared.append(role)
                continue
        groups.append(WorkloadGroup((role,)))
    job.groups = (*groups, *([WorkloadGroup(tuple(shared), is_shared=True)] if shared else ()))
    return job


def pod_group(root: Mapping, place: FindingPlace) -> Workload:
    """Return a PodGroup without its pods."""
    job = _workload(WorkloadForm.POD_GROUP, root, place, ())
    members = whole(_spec(root).scalar("minMember"))
    job.groups = (WorkloadGroup((), job.labels, job.annotations, members),)
    return job
