"""Which labels and annotations reach PodGroups and pods, with the controllers that copy them.

Each place of an object gets a label and an annotation with a key of its own, and what the real
controllers made of it is compared with the table of ``advisor/lint/reach.py``.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from advisor.lint.reach import JOB_LABELS, PLACES, Reach
from contract.scheduling import GROUP_ANNOTATION, POD_TO_JOB_ANNOTATIONS
from tests.parts.controlplane import ControlPlane
from tests.parts.deadlines import nothing_happens_for, wait_until
from tests.vigil.lint.live_server import lint_live
from tests.vigil.lint.manifests import RESOURCE
from tests.volcano import programs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

_SECONDS = 60.0
_SETTLED_SECONDS = 2.0
"""In which the controllers would have written more; they took less than one."""
_APPS, _BATCH = "/apis/apps/v1", "/apis/batch/v1"
_AIBRIX = "/apis/orchestration.aibrix.ai/v1alpha1"
_POD: dict[str, Any] = {
    "schedulerName": "volcano",
    "containers": [{"name": "c", "image": "i", "resources": {"limits": {RESOURCE: "8"}}}],
}
_SELECTED = {"app": "x"}
_STRATEGY = {"schedulingStrategy": {"volcanoSchedulingStrategy": {"minMember": 1}}}


class Real(NamedTuple):
    """An object of a kind, made anew for each test, and its pods.

    ``api``, ``plural``: where it is posted. ``places``: its metadata by path, as in ``PLACES``.
    """

    kind: str
    api: str
    plural: str
    body: dict[str, Any]
    places: dict[str, dict[str, Any]]
    pods: int


class Reached(NamedTuple):
    """Whether a place's label and annotation are at the PodGroup, and at a pod."""

    label_at_group: bool
    label_at_pod: bool
    annotation_at_group: bool
    annotation_at_pod: bool


def _metadata(**labels: str) -> dict[str, Any]:
    return {"labels": dict(labels), "annotations": {}}


def _template(**labels: str) -> dict[str, Any]:
    return {"metadata": _metadata(**labels), "spec": _POD}


def _of_template(kind: str, api: str, pods: int, **spec: Any) -> Real:
    """Return an object with one template below ``spec``."""
    template = _template(**_SELECTED)
    if api == _BATCH:
        template["spec"] = _POD | {"restartPolicy": "Never"}
    metadata = _metadata()
    body = {"metadata": metadata, "spec": {**spec, "template": template}}
    places = {"metadata": metadata, "spec.template.metadata": template["metadata"]}
    return Real(kind, api, f"{kind.lower()}s", body, places, pods)


def _vcjob() -> Real:
    template, metadata = _template(), _metadata()
    tasks = [{"name": "t", "replicas": 2, "template": template}]
    spec = {"minAvailable": 2, "schedulerName": "volcano", "queue": "default", "tasks": tasks}
    places = {"metadata": metadata, "spec.tasks[].template.metadata": template["metadata"]}
    body = {"metadata": metadata, "spec": spec}
    return Real("Job", "/apis/batch.volcano.sh/v1alpha1", "jobs", body, places, 2)


def _pod() -> Real:
    metadata = _metadata()
    body = {"metadata": metadata, "spec": _POD}
    return Real("Pod", "/api/v1", "pods", body, {"metadata": metadata}, 1)


def _leader_worker_set() -> Real:
    metadata, leader, worker = _metadata(), _template(), _template()
    inside = {"size": 2, "leaderTemplate": leader, "workerTemplate": worker}
    spec = {"replicas": 1, "leaderWorkerTemplate": inside}
    places = {"metadata": metadata}
    for name, template in (("leader", leader), ("worker", worker)):
        places[f"spec.leaderWorkerTemplate.{name}Template.metadata"] = template["metadata"]
    body = {"metadata": metadata, "spec": spec}
    api = "/apis/leaderworkerset.x-k8s.io/v1"
    return Real("LeaderWorkerSet", api, "leaderworkersets", body, places, 2)


def _rescheduled() -> Real:
    """Return a LeaderWorkerSet that takes part in rescheduling."""
    real = _leader_worker_set()
    for path, metadata in real.places.items():
        if path != "metadata":
            metadata["labels"] |= {"fault-scheduling": "force", "pod-rescheduling": "on"}
    return real


def _roles(size: int) -> tuple[list[dict[str, Any]], dict[str, Any], int]:
    """Return a role of two instances with its template's metadata and the pods of all."""
    template = _template()
    role = {"name": "r", "replicas": 2, "stateful": True, "template": template}
    if size > 1:
        role |= {"podGroupSize": size, **_STRATEGY}
    return [role], template["metadata"], 2 * size


def _storm_service(size: int) -> Real:
    roles, role, pods = _roles(size)
    # AIBrix counts the RoleSets of all namespaces that its selector takes.
    selected = {"app": f"size-{size}"}
    metadata, template = _metadata(), _metadata(**selected)
    inside: dict[str, Any] = {"roles": roles}
    if size == 1:
        inside |= _STRATEGY
    spec = {"replicas": 1, "stateful": True, "selector": {"matchLabels": selected}}
    spec |= {"template": {"metadata": template, "spec": inside}}
    places = {"metadata": metadata, "spec.template.metadata": template}
    places["spec.template.spec.roles[].template.metadata"] = role
    body = {"metadata": metadata, "spec": spec}
    return Real("StormService", _AIBRIX, "stormservices", body, places, pods)


def _role_set(size: int) -> Real:
    roles, role, pods = _roles(size)
    metadata = _metadata()
    spec: dict[str, Any] = {"roles": roles}
    if size == 1:
        spec |= _STRATEGY
    places = {"metadata": metadata, "spec.roles[].template.metadata": role}
    body = {"metadata": metadata, "spec": spec}
    return Real("RoleSet", _AIBRIX, "rolesets", body, places, pods)


_OF_APPS = {"replicas": 2, "selector": {"matchLabels": _SELECTED}}
_OF_SETS = {"serviceName": "x", "podManagementPolicy": "Parallel"}
KINDS: dict[str, list[Callable[[], Real]]] = {
    "Job (batch.volcano.sh)": [_vcjob],
    "Deployment": [partial(_of_template, "Deployment", _APPS, 2, **_OF_APPS)],
    "ReplicaSet": [partial(_of_template, "ReplicaSet", _APPS, 2, **_OF_APPS)],
    "StatefulSet": [partial(_of_template, "StatefulSet", _APPS, 2, **_OF_APPS, **_OF_SETS)],
    "Job (batch)": [partial(_of_template, "Job", _BATCH, 2, parallelism=2)],
    "Pod": [_pod],
    "LeaderWorkerSet": [_leader_worker_set],
    "StormService": [partial(_storm_service, size) for size in (1, 2)],
    "RoleSet": [partial(_role_set, size) for size in (1, 2)],
    "PodSet": [partial(_of_template, "PodSet", _AIBRIX, 2, podGroupSize=2, **_STRATEGY)],
}
"""The objects of each kind of the table whose controller can run here."""
_CASES = [(kind, index) for kind, made in KINDS.items() for index in range(len(made))]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory, volcano_built: Path) -> Iterator[ControlPlane]:
    """Run an API server with Volcano's controllers, Kubernetes' own, AIBrix' and LWS.

    One LeaderWorkerSet was made before LWS had gang scheduling.
    """
    lws, aibrix = programs.build("lws"), programs.build("aibrix")
    with (
        ControlPlane(tmp_path_factory.mktemp("labels")) as running,
        contextlib.ExitStack() as stack,
    ):
        programs.install(running, volcano_built)
        for built in (lws, aibrix):
            programs.install_kinds(running, built)
        names = "gc,job,pg,queue"
        stack.enter_context(programs.controllers(running, volcano_built, names))
        stack.enter_context(programs.workloads(running, volcano_built))
        stack.enter_context(programs.aibrix(running, aibrix))
        with programs.leader_worker_sets(running, lws, gang=False):
            _create(running, "without-gangs", _rescheduled())
            _made(running, "without-gangs", 2)
        stack.enter_context(programs.leader_worker_sets(running, lws, gang=True))
        yield running


def _create(plane: ControlPlane, namespace: str, real: Real) -> None:
    plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    real.body["metadata"]["name"] = "x"
    real.body.update(apiVersion=real.api.split("/", 2)[2], kind=real.kind)
    path = f"{real.api}/namespaces/{namespace}/{real.plural}"
    plane.request("POST", path, real.body)


def _made(
    plane: ControlPlane, namespace: str, pods: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the PodGroups of a namespace and its pods, once each of them is in a PodGroup."""
    groups = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{namespace}/podgroups"
    made: list[dict[str, Any]] = []
    here: list[dict[str, Any]] = []

    def are_complete() -> bool:
        nonlocal made, here
        made = plane.request("GET", groups)["items"]
        for group in made:
            # The job controller makes pods once the scheduler lets the job in.
            if group.get("status", {}).get("phase") != "Inqueue":
                path = f"{groups}/{group['metadata']['name']}"
                plane.ask("PATCH", path, {"status": {"phase": "Inqueue"}})
        here = plane.request("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
        named = [pod for pod in here if GROUP_ANNOTATION in pod["metadata"].get("annotations", {})]
        return len(named) == pods and bool(made)

    wait_until(
        are_complete,
        lambda: f"{len(here)} of {pods} pods, {len(made)} PodGroups",
        _SECONDS,
        0.1,
    )
    return made, here


def _reached(plane: ControlPlane, namespace: str, real: Real) -> dict[str, Reached]:
    """Return what came from each place, of an object whose places have keys of their own."""
    for number, metadata in enumerate(real.places.values()):
        metadata["labels"][JOB_LABELS[number]] = "v"
        metadata["annotations"][POD_TO_JOB_ANNOTATIONS[number]] = "v"
    _create(plane, namespace, real)
    _made(plane, namespace, real.pods)
    nothing_happens_for(_SETTLED_SECONDS, because="labels are copied when the pods are made")
    made = _made(plane, namespace, real.pods)
    answers = {}
    for number, path in enumerate(real.places):
        seen = []
        for side, key in (
            ("labels", JOB_LABELS[number]),
            ("annotations", POD_TO_JOB_ANNOTATIONS[number]),
        ):
            seen += [any(key in item["metadata"].get(side, {}) for item in items) for items in made]
        answers[path] = Reached(*seen)
    return answers


@pytest.mark.parametrize(("kind", "index"), _CASES)
def test_each_row_of_the_table_is_what_the_controllers_do(
    plane: ControlPlane, kind: str, index: int
) -> None:
    """Ascend Operator, on which metadata of a Deployment depends, is not there."""
    namespace = f"{kind.lower().replace(' (', '-').replace('.', '-').rstrip(')')}-{index}"
    reached = _reached(plane, namespace, KINDS[kind][index]())
    rows = {row.path: row.reach for row in PLACES if row.kind == kind}
    assert rows.keys() == reached.keys()
    for path, row in rows.items():
        at_group = row is Reach.GROUP
        at_pod = row is Reach.PODS
        seen = reached[path]
        assert (seen.label_at_group, seen.annotation_at_group) == (at_group, at_group), path
        if not at_group:
            assert (seen.label_at_pod, seen.annotation_at_pod) == (at_pod, at_pod), path


def test_lint_finds_that_lws_had_no_gang_scheduling(plane: ControlPlane) -> None:
    """Volcano makes PodGroups for the StatefulSets of a set that is right in all else."""
    _create(plane, "with-gangs", _rescheduled())
    _made(plane, "with-gangs", 2)
    _, findings, _ = lint_live(plane.kubeconfig)
    shown = [
        (finding["code"], finding["object"])
        for finding in findings
        if finding["object"].startswith("LeaderWorkerSet") and finding["severity"] != "info"
    ]
    assert ("LWS_WITHOUT_GANG", "LeaderWorkerSet without-gangs/x") in shown
    assert "LeaderWorkerSet with-gangs/x" not in [name for _, name in shown]


def test_lint_judges_an_elastic_job_and_not_its_pod_group(plane: ControlPlane) -> None:
    """The job controller copies the labels of an elastic job to its PodGroup."""
    real = _vcjob()
    labels = {"fault-scheduling": "grace", "elastic-scheduling": "on"}
    real.body["metadata"]["labels"] |= labels | {"ring-controller.atlas": "ascend-910"}
    real.body["metadata"]["annotations"] |= {"minReplicas": "1"}
    real.body["spec"]["policies"] = [{"event": "PodEvicted", "action": "TerminateJob"}]
    _create(plane, "elastic", real)
    groups, _ = _made(plane, "elastic", real.pods)
    assert labels.items() <= groups[0]["metadata"]["labels"].items()
    _, findings, _ = lint_live(plane.kubeconfig)
    codes = {finding["code"] for finding in findings if "elastic/" in finding["object"]}
    assert "ELASTIC_CONDITION" not in codes
