"""The component of elastic training: what its account may do, and what the API server refuses."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from contract.documents.elastic_job import CAUSE, DISTRIBUTED, KEPT, LEASE, RESTORE
from elastic.config import load_elastic
from elastic.job_cache import KINDS
from tests.elastic.jobs import vcjob
from tests.parts.controlplane import LEASES, path_of
from tests.parts.deadlines import wait_until
from tests.parts.kustomize import MANIFESTS, aggregator_container, build_with, object_of, take_back
from tests.parts.volcano import COMMANDS, JOBS, PODS, install, uninstall

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tests.parts.controlplane import ControlPlane

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
EVENTS = "/api/v1/namespaces/default/events"
CHIPS = "/spec/tasks/0/template/spec/containers/0/resources/limits/huawei.com~1Ascend910"


class Row(NamedTuple):
    """A request, and the status of its answer."""

    method: str
    path: str
    body: Any
    status: int


def size(job: str, status: int, *operations: tuple[str, Any]) -> Row:
    patch = [{"op": "add", "path": path, "value": value} for path, value in operations]
    return Row("PATCH", f"{JOBS}/{job}", patch, status)


def phase(job: str, status: int, **fields: Any) -> Row:
    state = {"phase": "Pending"} | fields.pop("state", {})
    body = {"status": {"state": state} | fields}
    return Row("PATCH", f"{JOBS}/{job}/status", body, status)


def event(component: str, kind: str, status: int) -> Row:
    body = {
        "metadata": {"name": "one", "namespace": "default"},
        "involvedObject": {"kind": kind, "name": "ended", "namespace": "default"},
        "source": {"component": component},
        "reason": "x",
        "message": "x",
        "type": "Normal",
    }
    return Row("POST", EVENTS, body, status)


def lease(name: str, status: int) -> Row:
    return Row("POST", LEASES, {"metadata": {"name": name}}, status)


PARTS = ("advice", "elastic", "elastic-network-faults", "elastic-dead-nodes")
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x"}
STATE = ("/metadata/annotations/npu-vigil~1elastic-state", "{}")
NOTE = ("/metadata/annotations/npu-vigil~1elastic-cause", "{}")
NOTE_GONE = ("/metadata/annotations", {"minReplicas": "1"})
OTHERS_GONE = ("/metadata/annotations", {CAUSE: "{}"})
REPLICAS = ("/spec/tasks/0/replicas", 2)
ROWS = {
    "the size of an ended job": size(
        "ended", 200, REPLICAS, ("/spec/minAvailable", 2), ("/spec/tasks/0/minAvailable", 2), STATE
    ),
    "the chips of an ended job": size("ended", 200, (CHIPS, "4"), STATE),
    "the size of a job without pods": size("empty", 200, REPLICAS, STATE),
    "the size of a running job": size("running", 422, REPLICAS),
    "the size of a completed job": size("completed", 422, REPLICAS),
    "a job without the labels": size("foreign", 422, REPLICAS),
    "a job with one label": size("forced", 422, REPLICAS),
    "a label": size("ended", 422, ("/metadata/labels/fault-scheduling", "force")),
    "another annotation": size("ended", 422, ("/metadata/annotations/minReplicas", "4")),
    "the image": size("ended", 422, ("/spec/tasks/0/template/spec/containers/0/image", "evil")),
    "a command": size("ended", 422, ("/spec/tasks/0/template/spec/containers/0/command", ["sh"])),
    "another container": size(
        "ended", 422, ("/spec/tasks/0/template/spec/containers/-", {"name": "evil"})
    ),
    "a host path": size("ended", 422, ("/spec/tasks/0/template/spec/volumes", [])),
    "memory": size(
        "ended",
        422,
        ("/spec/tasks/0/template/spec/containers/0/resources/limits/memory", "1Gi"),
    ),
    "other chips": size(
        "ended",
        422,
        ("/spec/tasks/0/template/spec/containers/0/resources/limits/huawei.com~1npu", "1"),
    ),
    "the queue": size("ended", 422, ("/spec/queue", "other")),
    "the policies": size("ended", 422, ("/spec/policies", [])),
    "another task": size("ended", 422, ("/spec/tasks/-", {"name": "x"})),
    "an owner": size("ended", 422, ("/metadata/ownerReferences", [OWNER])),
    "Pending for an ended job": phase("ended", 200),
    "Pending for a running job": phase("running", 422),
    "Pending for a job without the labels": phase("foreign", 422),
    "another phase": phase("ended", 422, state={"phase": "Completed"}),
    "what ends a running job": size("running", 200, NOTE),
    "that taken away again": size("running", 200, NOTE_GONE),
    "an annotation of others taken away": size("running", 422, OTHERS_GONE),
    "a size with that": size("running", 422, NOTE, REPLICAS),
    "another annotation of ours on a running job": size("running", 422, STATE),
    "that on a job without the labels": size("foreign", 422, NOTE),
    "another field of the status": phase("ended", 422, retryCount=0),
    "deletion": Row("DELETE", f"{JOBS}/ended", None, 403),
    "creation": Row("POST", JOBS, {"metadata": {"name": "new"}}, 403),
    "a full write": Row("PUT", f"{JOBS}/ended", {"metadata": {"name": "ended"}}, 403),
    "deletion of a pod": Row("DELETE", f"{PODS}/any", None, 403),
    "a Command": Row("POST", COMMANDS, {"metadata": {"name": "x"}}, 403),
    "a Node": Row("GET", "/api/v1/nodes/any", None, 403),
    "an Event on a job": event("npu-vigil-elastic", "Job", 201),
    "an Event on a node": event("npu-vigil-elastic", "Node", 422),
    "an Event of another program": event("kubelet", "Job", 422),
    "its Lease": lease(LEASE, 201),
    "the Lease of the aggregator": lease("npu-vigil-aggregator", 422),
    "the heartbeat of a node": lease("npu-vigil-n1", 422),
    "a secret": Row("GET", "/api/v1/namespaces/mindx-dl/secrets", None, 403),
}


class Account:
    """Asks with the token of the account, which ``items`` give its rights."""

    def __init__(self, plane: ControlPlane, items: Sequence[dict[str, Any]]) -> None:
        self.plane = plane
        self.items = items
        kubeconfig = plane.service_account("mindx-dl", "npu-vigil-elastic")
        self._token = json.loads(kubeconfig.read_text())["users"][0]["user"]["token"]
        self._port = plane.port
        self._tls = ssl.create_default_context(cafile=str(plane.directory / "ca.crt"))

    def ask(self, row: Row) -> tuple[int, str]:
        """Ask, as a rehearsal; status and text of the answer."""
        kind = "application/json"
        if row.method == "PATCH":
            kind = JSON_PATCH if isinstance(row.body, list) else MERGE_PATCH
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, context=self._tls)
        try:
            content = None if row.body is None else json.dumps(row.body)
            # The options of a deletion with a body are in it.
            is_asked = row.method == "GET" or (row.method == "DELETE" and row.body is not None)
            dry = "" if is_asked else "?dryRun=All"
            connection.request(row.method, f"{row.path}{dry}", content, headers)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()


def made(name: str, phase: str, replicas: int = 4, scheduling: str = "grace") -> dict[str, Any]:
    """Return a job as the API server takes it."""
    item = vcjob(name, replicas, phase=phase)
    for field in ("uid", "resourceVersion", "creationTimestamp"):
        del item["metadata"][field]
    item["metadata"]["labels"]["fault-scheduling"] = scheduling
    return item


@pytest.fixture(scope="module")
def account(
    running_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Account]:
    """Return the account, with the policy in force, and jobs of each kind.

    The policies concern this account only, so other tests do not meet them.
    """
    plane = running_control_plane
    plane.recover()
    plane.clean()
    items = build_with(tmp_path_factory.mktemp("k"), "base", "advice", "elastic")
    try:
        install(plane)
        for item in items:
            plane.apply(item)
        foreign = made("foreign", "Failed")
        foreign["metadata"]["labels"] = {}
        running = made("running", "Running")
        running["metadata"]["annotations"][CAUSE] = "{}"
        jobs = [
            made("ended", "Failed"),
            running,
            made("completed", "Completed"),
            made("empty", "Running", 0),
            made("forced", "Failed", scheduling="force"),
            foreign,
        ]
        for job in jobs:
            plane.request("POST", JOBS, job)
            path = f"{JOBS}/{job['metadata']['name']}/status"
            plane.request("PATCH", path, {"status": job["status"] | {"retryCount": 3}})
        asker = Account(plane, items)
        wait_until(
            lambda: asker.ask(ROWS["the size of a running job"])[0] == 422,
            "the policy is not in force",
            20,
        )
        yield asker
    finally:
        take_back(plane, items)
        uninstall(plane)


@pytest.mark.apiserver
def test_account_may_do_what_elastic_training_needs(account: Account) -> None:
    _until_answered(account, ROWS)


def _until_answered(account: Account, rows: Mapping[str, Row]) -> None:
    """Wait until each request has its status: rights and policies are in force a moment later."""
    wrong: dict[str, tuple[int, str]] = {}

    def are_right() -> bool:
        answers = {name: account.ask(row) for name, row in rows.items()}
        wrong.clear()
        for name, (status, text) in answers.items():
            if status != rows[name].status:
                wrong[name] = (status, text[:300])
        return not wrong

    wait_until(are_right, lambda: f"all answers are right: {wrong}", 20)


@pytest.mark.apiserver
def test_refused_request_of_the_account_names_the_reason(account: Account) -> None:
    _, text = account.ask(ROWS["the image"])
    assert "how many chips a container asks for" in text
    _, text = account.ask(ROWS["the size of a running job"])
    assert "have ended" in text


def command(action: str, owner: dict[str, Any], status: int) -> Row:
    """Return a Command for the job ``running``, which ``owner`` owns."""
    body = {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {"name": "one", "ownerReferences": [owner]},
        "action": action,
        "target": JOB,
    }
    return Row("POST", COMMANDS, body, status)


def deletion(pod: str, uid: str | None, status: int) -> Row:
    """Return the deletion of a pod by force, with a uid as precondition."""
    options: dict[str, Any] = {"gracePeriodSeconds": 0, "dryRun": ["All"]}
    if uid is not None:
        options["preconditions"] = {"uid": uid}
    return Row("DELETE", f"{PODS}/{pod}", options, status)


JOB = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "running", "uid": "u"}
DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "running", "uid": "u"}


@pytest.mark.apiserver
def test_optional_components_may_do_what_they_need(
    account: Account, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """End jobs of Volcano by Commands, and delete pods of theirs that are in deletion."""
    plane = account.plane
    built = build_with(tmp_path, "base", *PARTS)
    items = [item for item in built if item["metadata"]["name"].startswith("npu-vigil-elastic-")]
    usual = {path_of(item): item for item in account.items}

    def put_back() -> None:
        take_back(plane, [item for item in items if path_of(item) not in usual])
        # Other tests of this account may follow; those of ``items`` may have other content.
        for item in items:
            if path_of(item) in usual:
                plane.apply(usual[path_of(item)])

    request.addfinalizer(put_back)
    for item in items:
        plane.apply(item)
    uids = {}
    for name, owner in (("leaving", JOB), ("stays", JOB), ("other", DEPLOYMENT)):
        container_ = {"name": "c", "image": "any"}
        metadata = {"name": name, "ownerReferences": [owner | {"controller": True}]}
        spec = {"containers": [container_], "nodeName": "n1"}
        pod = plane.request("POST", PODS, {"metadata": metadata, "spec": spec})
        uids[name] = pod["metadata"]["uid"]
    for name in ("leaving", "other"):
        plane.request("DELETE", f"{PODS}/{name}?gracePeriodSeconds=600")
    rows = {
        "an end": command("TerminateJob", JOB, 201),
        "another action": command("RestartJob", JOB, 422),
        "a Command that the job does not own": command(
            "TerminateJob", DEPLOYMENT | {"uid": "x"}, 422
        ),
        "whether a Command waits": Row("GET", f"{COMMANDS}/two", None, 404),
        "all Commands": Row("GET", COMMANDS, None, 403),
        "a Command that is deleted": Row("DELETE", f"{COMMANDS}/one", None, 403),
        "a pod in deletion": deletion("leaving", uids["leaving"], 200),
        "a pod whose uid is not named": deletion("leaving", None, 422),
        "a pod that is not in deletion": deletion("stays", uids["stays"], 422),
        "a pod of a Deployment": deletion("other", uids["other"], 422),
        "a Node": Row("GET", "/api/v1/nodes/any", None, 404),
        "all Nodes": Row("GET", "/api/v1/nodes", None, 403),
        "the size of a running job": ROWS["the size of a running job"],
    }
    _until_answered(account, rows)


@pytest.mark.parametrize("part", ["network-faults", "dead-nodes"])
def test_a_part_is_off_by_default_and_needs_act_as_well(part: str, tmp_path: Path) -> None:
    plain = build_with(tmp_path, "base", "advice", "elastic")
    items = build_with(tmp_path, "base", "advice", "elastic", f"elastic-{part}")
    before, after = (
        object_of(found, "Deployment", "npu-vigil-elastic")["spec"]["template"]["spec"][
            "containers"
        ][0]
        for found in (plain, items)
    )
    assert after["args"] == [*before["args"], f"--{part}"]
    configuration = load_elastic(None, {}, {})
    assert not getattr(configuration, part.replace("-", "_"))
    rights = object_of(items, "ClusterRole", f"npu-vigil-elastic-{part}")["rules"]
    verbs = {verb for rule in rights for verb in rule["verbs"]}
    assert verbs == ({"create", "get"} if part == "network-faults" else {"get", "delete"})


def test_the_danger_stands_where_dead_nodes_are_switched_on() -> None:
    text = (MANIFESTS / "components/elastic-dead-nodes/kustomization.yaml").read_text()
    assert "DANGER" in text
    assert "may write the checkpoint" in text


def test_it_is_a_dry_run_and_may_read_each_kind(tmp_path: Path) -> None:
    items = build_with(tmp_path, "overlays/beside-device-plugin", "advice", "elastic")
    deployment = object_of(items, "Deployment", "npu-vigil-elastic")
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--act" not in arguments
    assert not load_elastic(None, {}, {}).act
    image = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    assert image == aggregator_container(items)["image"] != "npu-vigil"
    granted = {
        (group, resource, verb)
        for item in items
        if item["kind"] in ("ClusterRole", "Role")
        and item["metadata"]["name"] == "npu-vigil-elastic"
        for rule in item["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    for kind in KINDS.values():
        parts = kind.path.split("/")
        group = "" if parts[1] == "api" else parts[2]
        assert {(group, parts[-1], "list"), (group, parts[-1], "watch")} <= granted, kind.name
    verbs = {verb for _, _, verb in granted}
    assert not verbs & {"delete", "deletecollection", "*"}
    creates = {resource for _, resource, verb in granted if verb == "create"}
    assert creates == {"events", "leases"}


def test_the_policy_names_our_annotations(tmp_path: Path) -> None:
    items = build_with(tmp_path, "base", "advice", "elastic")
    policy = object_of(items, "ValidatingAdmissionPolicy", "npu-vigil-elastic-ended-jobs-only")
    text = json.dumps(policy)
    assert [name for name in (KEPT, RESTORE, CAUSE, DISTRIBUTED) if name not in text] == []
