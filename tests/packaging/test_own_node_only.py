"""The admission policy: what an agent's token may write, row by row, with the policy and without.

The rows are those of the table in ``docs/installation.md``.
"""

from __future__ import annotations

import asyncio
import copy
import http.client
import json
import re
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from msgspec.structs import replace

from agent.node.labels import SERVER_TYPE, desired_labels, obsolete_keys
from agent.node.serial_number import ANNOTATION as SERIAL_NUMBER
from contract.codes.families import FAMILIES
from contract.documents.write_numbers import encode_writes
from contract.errors import StoreRefused
from contract.names import HEARTBEAT_ANNOTATION, INTERVAL_ANNOTATION
from dcmi_shim.values import NodeFacts
from stores.address import open_store
from stores.base import Beat, Document, Involved, KubernetesEvent, NodeObject
from tests.agent.node.test_labels import POD, inventory
from tests.parts.controlplane import ControlPlane, path_of
from tests.parts.deadlines import wait_until
from tests.parts.kustomize import MANIFESTS, apply, build, build_with

if TYPE_CHECKING:
    from collections.abc import Iterator

POLICY = "npu-vigil-agent-own-node-only"
COMPONENT = "without-own-node-only"
GUIDE = Path(__file__).parents[2] / "docs/installation.md"
OVERLAYS = sorted(f"overlays/{folder.name}" for folder in (MANIFESTS / "overlays").iterdir())
OK, CREATED, FORBIDDEN, REFUSED = 200, 201, 403, 422
"""What RBAC does not grant is forbidden; what the policy does not let through is refused."""

NODE = "worker-1"
REPORT = {"mx-consumer-cim": "true"}
PUBLIC_FAULT = {"mc-consumer-publicfault": "true"}
STATUS = f"/api/v1/nodes/{NODE}/status"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/mindx-dl/leases"
BEGAN = "2026-01-01T00:00:00Z"
FOREIGN = "example.com/not-ours"
"""A label and an annotation of the Node that others keep."""


class Row(NamedTuple):
    """A request, and its status with the policy and without."""

    method: str
    path: str
    body: dict[str, Any] | None
    with_policy: int
    without: int


def config_map(namespace: str, name: str, **labels: dict[str, str]) -> tuple[str, dict[str, Any]]:
    """Return the path and the content of a ConfigMap."""
    metadata = {"name": name, "namespace": namespace, "labels": labels.get("labels", {})}
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    return path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}}


def write(namespace: str, name: str, with_policy: int, **labels: dict[str, str]) -> Row:
    """Return the replacement of a ConfigMap that is there."""
    path, body = config_map(namespace, name, **labels)
    return Row("PUT", f"{path}/{name}", body, with_policy, OK)


def create(namespace: str, name: str, with_policy: int, **labels: dict[str, str]) -> Row:
    """Return the creation of a ConfigMap."""
    path, body = config_map(namespace, name, **labels)
    return Row("POST", path, body, with_policy, CREATED)


def delete(namespace: str, name: str, with_policy: int, without: int) -> Row:
    """Return the deletion of a ConfigMap that is there."""
    path, _ = config_map(namespace, name)
    return Row("DELETE", f"{path}/{name}", None, with_policy, without)


def node(change: dict[str, Any], with_policy: int, name: str = NODE) -> Row:
    """Return a change of a Node by way of its status."""
    return Row("PATCH", f"/api/v1/nodes/{name}/status", change, with_policy, OK)


def lease(name: str, with_policy: int, **labels: str) -> Row:
    """Return a change of a Lease that is there, as a heartbeat makes it."""
    annotations = {"npu-vigil/writes": encode_writes({"device-info": 1_764_000_000})}
    metadata = {"labels": labels, "annotations": annotations}
    body = {"metadata": metadata, "spec": {"holderIdentity": "me"}}
    return Row("PATCH", f"{LEASES}/{name}", body, with_policy, OK)


def event(host: str, kind: str, name: str, with_policy: int) -> Row:
    """Return an Event that ``host`` reports of an object."""
    body = {
        "metadata": {"generateName": "one-", "namespace": "kube-system"},
        "involvedObject": {"kind": kind, "name": name, "namespace": "kube-system"},
        "source": {"component": "npu-vigil", "host": host},
        "reason": "Any",
        "message": "any",
    }
    return Row("POST", "/api/v1/namespaces/kube-system/events", body, with_policy, CREATED)


ROWS = {
    "its device-info": [
        write("kube-system", "mindx-dl-deviceinfo-worker-1", OK, labels=REPORT),
        delete("kube-system", "mindx-dl-deviceinfo-worker-1", OK, FORBIDDEN),
    ],
    "its node-info": [
        write("mindx-dl", "mindx-dl-nodeinfo-worker-1", OK, labels=REPORT),
        delete("mindx-dl", "mindx-dl-nodeinfo-worker-1", OK, OK),
    ],
    "its two documents of public faults": [
        create("mindx-dl", "npu-vigil-dpc-fault-worker-1", CREATED, labels=PUBLIC_FAULT),
        create("mindx-dl", "npu-vigil-dtfs-fault-worker-1", CREATED, labels=PUBLIC_FAULT),
    ],
    "the label of public faults, or any other, on its device-info or node-info": [
        write("kube-system", "mindx-dl-deviceinfo-worker-1", REFUSED, labels=PUBLIC_FAULT | REPORT),
        write("mindx-dl", "mindx-dl-nodeinfo-worker-1", REFUSED, labels=PUBLIC_FAULT),
        write("mindx-dl", "mindx-dl-nodeinfo-worker-1", REFUSED, labels={"npu-vigil/state": "x"}),
    ],
    "the label of device-info, or any other, on its documents of public faults": [
        create("mindx-dl", "npu-vigil-dpc-fault-worker-1", REFUSED, labels=REPORT),
        create("mindx-dl", "npu-vigil-dtfs-fault-worker-1", REFUSED, labels=PUBLIC_FAULT | REPORT),
    ],
    "a document of another node": [
        write("kube-system", "mindx-dl-deviceinfo-worker-2", REFUSED, labels=REPORT),
        create("mindx-dl", "mindx-dl-nodeinfo-worker-2", REFUSED, labels=REPORT),
        create("mindx-dl", "npu-vigil-dpc-fault-worker-2", REFUSED, labels=PUBLIC_FAULT),
        create("mindx-dl", "npu-vigil-dtfs-fault-worker-2", REFUSED, labels=PUBLIC_FAULT),
        delete("kube-system", "mindx-dl-deviceinfo-worker-2", REFUSED, FORBIDDEN),
    ],
    "a name of its own in the other namespace, or one that belongs to its Lease": [
        create("mindx-dl", "mindx-dl-deviceinfo-worker-1", REFUSED, labels=REPORT),
        create("kube-system", "npu-vigil-dpc-fault-worker-1", REFUSED, labels=PUBLIC_FAULT),
        create("mindx-dl", "npu-vigil-worker-1", REFUSED),
    ],
    "a document of the aggregator": [
        write("mindx-dl", "cluster-info-device-0", REFUSED),
        delete("mindx-dl", "cluster-info-device-0", REFUSED, OK),
        create("mindx-dl", "npu-vigil-state-one", REFUSED, labels={"npu-vigil/state": "one"}),
    ],
    "another ConfigMap of kube-system, such as coredns": [
        write("kube-system", "coredns", REFUSED),
        delete("kube-system", "coredns", REFUSED, FORBIDDEN),
    ],
    "its heartbeat": [lease("npu-vigil-worker-1", OK, **{"npu-vigil/heartbeat": "true"})],
    "the heartbeat of another node, or another label on its own": [
        lease("npu-vigil-worker-2", REFUSED),
        lease("npu-vigil-worker-1", REFUSED, other="label"),
    ],
    "the Lease by which aggregators elect their leader": [
        lease("npu-vigil-aggregator", REFUSED),
    ],
    "labels and annotations that it keeps on its Node": [
        node({"metadata": {"labels": {"accelerator": "huawei-Ascend910"}}}, OK),
        node({"metadata": {"labels": {"huawei.com/Ascend910-Recover": None}}}, OK),
        node({"metadata": {"annotations": {"baseDeviceInfos": "{}"}}}, OK),
        node({"metadata": {"annotations": {"noded/heartbeat": "1"}}}, OK),
    ],
    "other labels and annotations of its Node": [
        node({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}, REFUSED),
        node({"metadata": {"labels": {"node-restriction.kubernetes.io/team": "a"}}}, REFUSED),
        node({"metadata": {"labels": {FOREIGN: "changed"}}}, REFUSED),
        node({"metadata": {"labels": {FOREIGN: None}}}, REFUSED),
        node({"metadata": {"annotations": {FOREIGN: "changed"}}}, REFUSED),
        node({"metadata": {"annotations": {FOREIGN: None}}}, REFUSED),
    ],
    "the status of its Node: capacity, conditions, addresses": [
        node({"status": {"capacity": {"huawei.com/Ascend910": "99"}}}, REFUSED),
        node({"status": {"allocatable": {"huawei.com/Ascend910": "99"}}}, REFUSED),
        node({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, REFUSED),
        node({"status": {"images": []}}, REFUSED),
        node({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}}, REFUSED),
    ],
    "finalizers and owners of its Node": [
        node({"metadata": {"finalizers": ["example.com/never"]}}, REFUSED),
        node(
            {
                "metadata": {
                    "ownerReferences": [
                        {"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "none"}
                    ]
                }
            },
            REFUSED,
        ),
    ],
    "anything of another Node": [
        node({"metadata": {"labels": {"accelerator": "none"}}}, REFUSED, "worker-2"),
        node({"status": {"capacity": {"huawei.com/Ascend910": "0"}}}, REFUSED, "worker-2"),
    ],
    "Events that name its node as their source": [
        event(NODE, "Node", NODE, CREATED),
        event(NODE, "ConfigMap", "mindx-dl-fault-config", CREATED),
    ],
    "Events in the name of another node, or about another Node": [
        event("worker-2", "Node", "worker-2", REFUSED),
        event("", "Node", NODE, REFUSED),
        event(NODE, "Node", "worker-2", REFUSED),
    ],
    "taints and cordoning, Secrets, pods, the policy itself": [
        Row("PATCH", f"/api/v1/nodes/{NODE}", {"spec": {"unschedulable": True}}, 403, 403),
        Row("POST", "/api/v1/namespaces/mindx-dl/secrets", {"metadata": {"name": "a"}}, 403, 403),
        Row("DELETE", "/api/v1/namespaces/mindx-dl/pods/any", None, 403, 403),
        Row(
            "DELETE",
            f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{POLICY}",
            None,
            *(403, 403),
        ),
    ],
}


OF_ANOTHER = ROWS["a document of another node"][1]


class Agent:
    """Asks the API server with the token of an agent's pod. Nothing is kept of it."""

    patch_type = "application/merge-patch+json"

    def __init__(self, plane: ControlPlane, kubeconfig: Path) -> None:
        self._token = json.loads(kubeconfig.read_text())["users"][0]["user"]["token"]
        self._port = plane.port
        self._tls = ssl.create_default_context(cafile=str(plane.directory / "ca.crt"))

    def ask(self, method: str, path: str, body: dict[str, Any] | None) -> tuple[int, str]:
        """Ask, as a rehearsal; status and text of the answer."""
        kind = self.patch_type if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, context=self._tls)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, f"{path}?dryRun=All", content, headers)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def until(self, status: int, row: Row | None = None) -> None:
        """Wait until ``row``, else a document of another node, is answered so.

        Policies come with a delay.
        """
        row = row or OF_ANOTHER
        wait_until(
            lambda: self.ask(row.method, row.path, row.body)[0] == status,
            lambda: f"the answer never was {status}",
            20,
        )


def _account(plane: ControlPlane, node: str | None) -> Path:
    """Return the kubeconfig of an agent's pod on ``node``, or of one without a node."""
    return plane.service_account("mindx-dl", "npu-vigil-agent", node)


def _as_kubelets_write_it() -> dict[str, Any]:
    """Return a Node's status, with quantities that the API server may write otherwise."""
    resources = {"cpu": "192000m", "memory": "2113450712Ki", "huawei.com/Ascend910": "8"}
    conditions = [
        {"type": kind, "status": "False", "reason": "Kubelet", "lastHeartbeatTime": BEGAN}
        for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    ]
    images = [{"names": [f"registry.example/{n}:1"], "sizeBytes": n} for n in range(1, 101)]
    return {
        "capacity": resources,
        "allocatable": resources | {"ephemeral-storage": "1.5e12"},
        "conditions": conditions,
        "images": images,
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
    }


def _fill(plane: ControlPlane) -> None:
    """Create what the rows are about, as an administrator."""
    for namespace, name in (
        *(("kube-system", f"mindx-dl-deviceinfo-worker-{n}") for n in (1, 2)),
        *(("mindx-dl", name) for name in ("mindx-dl-nodeinfo-worker-1", "cluster-info-device-0")),
        ("kube-system", "coredns"),
    ):
        path, body = config_map(namespace, name)
        plane.request("POST", path, body)
    for name in ("npu-vigil-worker-1", "npu-vigil-worker-2", "npu-vigil-aggregator"):
        plane.request("POST", LEASES, {"metadata": {"name": name}})
    plane.request("PATCH", STATUS, {"status": _as_kubelets_write_it()})
    kept = {FOREIGN: "kept"}
    labels = kept | {"huawei.com/Ascend910-Recover": ""}
    plane.request(
        "PATCH", f"/api/v1/nodes/{NODE}", {"metadata": {"labels": labels, "annotations": kept}}
    )


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Start an API server with the base; other tests must not meet its policy."""
    with ControlPlane(tmp_path_factory.mktemp("restricted")) as plane:
        apply(plane, "base")
        yield plane


@pytest.fixture(scope="module")
def agent(plane: ControlPlane) -> Agent:
    """Return the agent of ``worker-1``, with the policy in force."""
    plane.request("POST", "/api/v1/nodes", {"metadata": {"name": "worker-2"}})
    agent = Agent(plane, _account(plane, NODE))
    _fill(plane)
    agent.until(REFUSED)
    return agent


def test_the_rows_are_those_of_the_guide() -> None:
    table = re.search(
        r"^\| what an agent's token may write .*?\n\n", GUIDE.read_text(), re.MULTILINE | re.DOTALL
    )
    assert table is not None
    shown = {}
    for line in table[0].strip().splitlines()[2:]:
        what, with_policy, without = (cell.strip() for cell in line.strip("| ").split("|"))
        shown[what] = (with_policy, without)
    assert list(shown) == list(ROWS)
    for what, rows in ROWS.items():
        may = {row.with_policy in (OK, CREATED) for row in rows}
        could = {row.without in (OK, CREATED) for row in rows}
        assert may in ({True}, {False})
        assert shown[what][0] == ("yes" if may == {True} else "no")
        if len(could) == 1:
            assert shown[what][1] == ("yes" if could == {True} else "no")
        else:
            assert shown[what][1] == "yes, but not delete in `kube-system`"


def _otherwise(agent: Agent, *, with_policy: bool) -> list[tuple[str, Row, int, str]]:
    """Return the rows that are answered with another status than they should be."""
    found = []
    for what, rows in ROWS.items():
        for row in rows:
            status, answer = agent.ask(row.method, row.path, row.body)
            desired_labels = row.with_policy if with_policy else row.without
            is_named = status != REFUSED or (POLICY in answer and NODE in answer)
            if status != desired_labels or not is_named:
                found.append((what, row, status, answer))
    return found


@pytest.mark.apiserver
def test_policy_decides_each_request_as_the_table_states(agent: Agent) -> None:
    assert _otherwise(agent, with_policy=True) == []


@pytest.mark.apiserver
def test_roles_alone_decide_without_the_policy(
    plane: ControlPlane, agent: Agent, tmp_path: Path
) -> None:
    """The component for old clusters takes the policy away, and the right that needs it."""
    there = {path_of(item): item for item in build("base")}
    left = {path_of(item) for item in build_with(tmp_path, "base", COMPONENT)}
    taken = [item for path, item in there.items() if path not in left]
    assert sorted(item["kind"] for item in taken) == [
        "Role",
        "RoleBinding",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ]
    for item in taken:
        plane.request("DELETE", path_of(item))
    try:
        agent.until(CREATED)
        assert _otherwise(agent, with_policy=False) == []
        assert _is_in_force(plane, NODE) is False
    finally:
        for item in taken:
            plane.apply(item)
        agent.until(REFUSED)


@pytest.mark.server
@pytest.mark.parametrize("folder", ["base", *OVERLAYS])
def test_every_overlay_has_the_policy_and_can_be_had_without(folder: str, tmp_path: Path) -> None:
    policy = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    assert policy <= {item["kind"] for item in build(folder)}
    # The other policy of that overlay goes with a component of its own.
    more = ["device-plugin-roles"] if folder == "overlays/beside-device-plugin" else []
    left = build_with(tmp_path, folder, COMPONENT, *more)
    assert not policy & {item["kind"] for item in left}
    deleting = [
        item["metadata"]["name"]
        for item in left
        if item["kind"] in ("Role", "ClusterRole") and "agent" in item["metadata"]["name"]
        for rule in item["rules"]
        if "delete" in rule["verbs"] and item["metadata"].get("namespace") != "mindx-dl"
    ]
    assert deleting == []


@pytest.mark.server
def test_the_policy_names_the_keys_that_agents_keep() -> None:
    (policy,) = (item for item in build("base") if item["kind"] == "ValidatingAdmissionPolicy")
    variables = {one["name"]: one["expression"] for one in policy["spec"]["variables"]}
    labels, annotations = _kept()
    _, _, of_nodes = variables["keptLabels"].partition('"nodes"')
    assert set(re.findall(r'"([^"]+)"', of_nodes)) == labels
    assert set(re.findall(r'"([^"]+)"', variables["keptAnnotations"])) == annotations


def _kept() -> tuple[set[str], set[str]]:
    """Return every label and annotation that an agent of any family may write or remove."""
    labels = {SERVER_TYPE}
    annotations = {SERIAL_NUMBER, HEARTBEAT_ANNOTATION, INTERVAL_ANNOTATION}
    for family in FAMILIES:
        for board in (0, 0x1A, 0x28):
            for main_board in (0, 0x68):
                chips = replace(inventory(family, family, board), super_pod=POD)
                facts = NodeFacts(1, 1024, main_board, ("Atlas 300I Duo",))
                found = desired_labels(chips, facts, {})
                labels |= found.labels.keys()
                annotations |= found.annotations.keys()
                ends = ("", "-Unhealthy", "-NetworkUnhealthy", "-Fault", "-Recovering")
                old = {
                    FAMILIES[family].resource + end: "x"
                    for end in (*ends, "-Recover", "-NetworkRecover", "-Other")
                }
                gone = obsolete_keys(NodeObject(old, old), chips)
                labels |= gone[0]
                annotations |= gone[1]
    return labels, annotations


@pytest.mark.apiserver
async def test_the_store_of_an_agent_can_do_what_it_has_to(
    plane: ControlPlane, agent: Agent
) -> None:
    """For real, not as a rehearsal."""
    del agent
    kubeconfig = plane.service_account("mindx-dl", "npu-vigil-agent", "worker-3")
    store = open_store("kubernetes:", kubeconfig)
    objects = store.objects
    assert objects is not None
    involved = Involved("Node", "worker-3")
    shown = KubernetesEvent("kube-system", "one", involved, True, "Reason", "Action", "text", 0, 0)
    try:
        for namespace, prefix, labels in (
            ("kube-system", "mindx-dl-deviceinfo-", REPORT),
            ("mindx-dl", "mindx-dl-nodeinfo-", REPORT),
            ("mindx-dl", "npu-vigil-dpc-fault-", PUBLIC_FAULT),
            ("mindx-dl", "npu-vigil-dtfs-fault-", PUBLIC_FAULT),
        ):
            for text in ("first", "second"):
                await store.put(Document(namespace, f"{prefix}worker-3", {"key": text}, labels))
            with pytest.raises(StoreRefused, match=r"worker-3.*own node only.*worker-2"):
                await store.put(Document(namespace, f"{prefix}worker-2", {"key": "value"}, labels))
            await store.delete(namespace, f"{prefix}worker-3")
        for at_ms in (1, 2):
            await store.beat(Beat("worker-3", "holder", 5.0, at_ms))
        await objects.set_node("worker-3", {"accelerator": "b"}, {"superPodID": "d"})
        await objects.record(replace(shown, name="one", host="worker-3"))
    finally:
        await store.close()


def _is_in_force(plane: ControlPlane, node: str) -> bool | None:
    """Return what the agent of this node finds."""

    async def look() -> bool | None:
        store = open_store(
            "kubernetes:", plane.directory / f"mindx-dl-npu-vigil-agent-{node}.kubeconfig"
        )
        try:
            assert store.objects is not None
            return await store.objects.is_own_node_only(node)
        finally:
            await store.close()

    return asyncio.run(look())


def _count(plane: ControlPlane) -> int:
    """Return the number of ConfigMaps."""
    return len(plane.request("GET", "/api/v1/configmaps")["items"])


@pytest.mark.apiserver
def test_an_agent_finds_whether_it_is_in_force_and_changes_nothing(
    plane: ControlPlane, agent: Agent
) -> None:
    del agent
    before = _count(plane), plane.request("GET", f"/api/v1/nodes/{NODE}")
    assert _is_in_force(plane, NODE) is True
    assert (_count(plane), plane.request("GET", f"/api/v1/nodes/{NODE}")) == before


@pytest.mark.apiserver
def test_a_policy_that_lets_other_annotations_through_is_not_enough(
    plane: ControlPlane, agent: Agent
) -> None:
    """As the component of the first release did."""
    (policy,) = (item for item in build("base") if item["kind"] == "ValidatingAdmissionPolicy")
    weaker = copy.deepcopy(policy)
    del weaker["spec"]["validations"][1:]
    annotation = ROWS["other labels and annotations of its Node"][-1]
    try:
        plane.apply(weaker)
        agent.until(OK, annotation)
        assert agent.ask(*OF_ANOTHER[:3])[0] == REFUSED
        assert _is_in_force(plane, NODE) is False
    finally:
        plane.apply(policy)
        agent.until(REFUSED, annotation)


@pytest.mark.apiserver
def test_who_may_write_nothing_does_not_know(plane: ControlPlane, agent: Agent) -> None:
    del agent
    stranger = plane.kubeconfig_of("stranger-token")
    (plane.directory / "mindx-dl-npu-vigil-agent-worker-9.kubeconfig").write_text(
        stranger.read_text()
    )
    assert _is_in_force(plane, "worker-9") is None


@pytest.mark.apiserver
def test_metadata_of_other_programs_is_no_obstacle(plane: ControlPlane, agent: Agent) -> None:
    """A foreign label may stay or go; the agent just cannot set one."""
    path, body = config_map("mindx-dl", "mindx-dl-nodeinfo-worker-1", labels=PUBLIC_FAULT)
    one = f"{path}/mindx-dl-nodeinfo-worker-1"
    before = plane.request("GET", one)
    plane.request("PATCH", one, {"metadata": {"labels": PUBLIC_FAULT | {FOREIGN: "kept"}}})
    try:
        for labels in ({}, PUBLIC_FAULT | REPORT, {FOREIGN: "kept"}):
            body["metadata"]["labels"] = labels
            assert agent.ask("PUT", one, body)[0] == OK
        body["metadata"]["labels"] = {FOREIGN: "changed"}
        assert agent.ask("PUT", one, body)[0] == REFUSED
    finally:
        del before["metadata"]["resourceVersion"]
        plane.request("PUT", one, before)


@pytest.mark.apiserver
@pytest.mark.parametrize("kind", ["dpc", "dtfs"])
def test_a_node_with_the_name_of_a_document_is_another_node(
    plane: ControlPlane, agent: Agent, kind: str
) -> None:
    """Its Lease and the public faults of ``worker-1`` have one name, in one namespace."""
    name = f"{kind}-fault-{NODE}"
    namesake = Agent(plane, _account(plane, name))
    shared = f"npu-vigil-{name}"
    plane.request("POST", LEASES, {"metadata": {"name": shared}})
    path, body = config_map("mindx-dl", shared, labels=PUBLIC_FAULT)
    plane.request("POST", path, body)
    label = {"npu-vigil/heartbeat": "true"}
    faults = [
        ("PUT", f"{path}/{shared}", body),
        ("DELETE", f"{path}/{shared}", None),
    ]
    heartbeat: list[tuple[str, str, dict[str, Any]]] = [
        ("PATCH", f"{LEASES}/{shared}", {"metadata": {"labels": label}}),
        ("PATCH", f"{LEASES}/{shared}", {"spec": {"holderIdentity": "me"}}),
    ]
    try:
        for method, one, content in faults:
            assert agent.ask(method, one, content)[0] == OK
            assert namesake.ask(method, one, content)[0] == REFUSED
        for method, one, change in heartbeat:
            assert agent.ask(method, one, change)[0] == REFUSED
            assert namesake.ask(method, one, change)[0] == OK
        own = create("mindx-dl", f"npu-vigil-{kind}-fault-{name}", CREATED, labels=PUBLIC_FAULT)
        assert namesake.ask(*own[:3])[0] == CREATED
        elsewhere = create("kube-system", shared, REFUSED, labels=PUBLIC_FAULT)
        for asking in (agent, namesake):
            assert asking.ask(*elsewhere[:3])[0] == REFUSED
    finally:
        plane.request("DELETE", f"{path}/{shared}")
        plane.request("DELETE", f"{LEASES}/{shared}")


@pytest.mark.apiserver
def test_a_token_of_no_pod_may_write_nothing(plane: ControlPlane, agent: Agent) -> None:
    del agent
    aggregator_agent = Agent(plane, _account(plane, None))
    for what in (
        "its device-info",
        "its heartbeat",
        "labels and annotations that it keeps on its Node",
    ):
        for row in ROWS[what]:
            status, answer = aggregator_agent.ask(row.method, row.path, row.body)
            assert (status, "own node only" in answer) == (REFUSED, True)
