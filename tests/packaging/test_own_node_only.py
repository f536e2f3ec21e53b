"""The admission policy for agents: with the manifests, without it, and what an agent makes of it.

What an agent's token may write with the policy: ``tests/intruder/test_api_server.py``.
"""

from __future__ import annotations

import asyncio
import copy
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from agent.node.labels import SERVER_TYPE, desired_labels, obsolete_keys
from agent.node.serial_number import ANNOTATION as SERIAL_NUMBER
from contract.codes.families import FAMILIES
from contract.errors import StoreRefused
from contract.names import HEARTBEAT_ANNOTATION, INTERVAL_ANNOTATION
from dcmi_shim.values import NodeFacts
from stores.address import open_store
from stores.base import Beat, Document, Involved, KubernetesEvent, NodeObject
from tests.agent.policy.builders import POD, inventory_of
from tests.intruder.agent_rows import WRITES
from tests.intruder.api_server import ApiServer, api_server
from tests.intruder.requests import FOREIGN, LEASES, PUBLIC_FAULT, STATUS, create, patch
from tests.intruder.table import Actor, Protection, Request
from tests.packaging.accounts import (
    CREATED,
    NODE,
    OF_ANOTHER,
    OK,
    REFUSED,
    REPORT,
    AgentPod,
    config_map,
)
from tests.parts.controlplane import ControlPlane, path_of
from tests.parts.deadlines import wait_until
from tests.parts.kustomize import MANIFESTS, build, build_with

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.intruder.table import Row

COMPONENT = "without-own-node-only"
GUIDE = Path(__file__).parents[2] / "docs/installation.md"
OVERLAYS = sorted(f"overlays/{folder.name}" for folder in (MANIFESTS / "overlays").iterdir())


def _account(plane: ControlPlane, node: str | None) -> Path:
    """Return the kubeconfig of an agent's pod on ``node``, or of one without a node."""
    return plane.service_account("mindx-dl", "npu-vigil-agent", node)


@pytest.fixture(scope="module")
def server(running_control_plane: ControlPlane) -> Iterator[ApiServer]:
    with api_server(running_control_plane) as server:
        yield server


@pytest.fixture
def plane(server: ApiServer) -> ControlPlane:
    return server.plane


@pytest.fixture
def agent(server: ApiServer) -> AgentPod:
    """Return the agent of ``worker-1``, with the policy in force."""
    return server.accounts[Actor.AGENT]


def test_the_rows_are_those_of_the_guide() -> None:
    table = re.search(
        r"^\| what an agent's token may write .*?\n\n", GUIDE.read_text(), re.MULTILINE | re.DOTALL
    )
    assert table is not None
    shown = {}
    for line in table[0].strip().splitlines()[2:]:
        what, with_policy, without = (cell.strip() for cell in line.strip("| ").split("|"))
        shown[what] = (with_policy, without)
    by_about: dict[str, list[Row]] = {}
    for row in WRITES:
        by_about.setdefault(row.about, []).append(row)
    assert list(shown) == list(by_about)
    for about, rows in by_about.items():
        may = {not row.protections for row in rows}
        assert len(may) == 1
        assert shown[about][0] == ("yes" if may == {True} else "no")
        assert shown[about][1] == _without(rows)


def _without(rows: list[Row]) -> str:
    """Return what the guide states of rows with the roles alone."""
    could = {_is_open_to_roles(row) for row in rows}
    if could == {True, False}:
        return "yes, but not delete in `kube-system`"
    return "yes" if could == {True} else "no"


def _is_open_to_roles(row: Row) -> bool:
    """Return whether roles alone let the agent do this.

    The right to delete in ``kube-system`` exists only together with the policy.
    """
    assert isinstance(row.attempt, Request)
    deletes = row.attempt.method == "DELETE" and "/namespaces/kube-system/" in row.attempt.path
    return Protection.ROLE not in row.protections and not deletes


@pytest.mark.apiserver
def test_roles_alone_decide_without_the_policy(
    plane: ControlPlane, server: ApiServer, agent: AgentPod, tmp_path: Path
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
        for row in WRITES:
            refusing = None if _is_open_to_roles(row) else Protection.ROLE

            def decides(row: Row = row, refusing: Protection | None = refusing) -> bool:
                return server.refusing(row.actor, row.attempt) is refusing

            # The API server notices the end of a Role later than the end of the policy.
            wait_until(decides, f"{refusing} decides on {row}")
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
                chips = replace(inventory_of(family, family, board), super_pod=POD)
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
    plane: ControlPlane, agent: AgentPod
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
    plane: ControlPlane, agent: AgentPod
) -> None:
    del agent
    before = _count(plane), plane.request("GET", f"/api/v1/nodes/{NODE}")
    assert _is_in_force(plane, NODE) is True
    assert (_count(plane), plane.request("GET", f"/api/v1/nodes/{NODE}")) == before


@pytest.mark.apiserver
def test_a_policy_that_lets_other_annotations_through_is_not_enough(
    plane: ControlPlane, agent: AgentPod
) -> None:
    """As the component of the first release did."""
    (policy,) = (item for item in build("base") if item["kind"] == "ValidatingAdmissionPolicy")
    weaker = copy.deepcopy(policy)
    del weaker["spec"]["validations"][1:]
    annotation = patch(STATUS, metadata={"annotations": {FOREIGN: None}})
    try:
        plane.apply(weaker)
        agent.until(OK, annotation)
        assert agent.ask(*OF_ANOTHER)[0] == REFUSED
        assert _is_in_force(plane, NODE) is False
    finally:
        plane.apply(policy)
        agent.until(REFUSED, annotation)


@pytest.mark.apiserver
def test_who_may_write_nothing_does_not_know(plane: ControlPlane, agent: AgentPod) -> None:
    del agent
    stranger = plane.kubeconfig_of("stranger-token")
    (plane.directory / "mindx-dl-npu-vigil-agent-worker-9.kubeconfig").write_text(
        stranger.read_text()
    )
    assert _is_in_force(plane, "worker-9") is None


@pytest.mark.apiserver
def test_metadata_of_other_programs_is_no_obstacle(plane: ControlPlane, agent: AgentPod) -> None:
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
    plane: ControlPlane, agent: AgentPod, kind: str
) -> None:
    """Its Lease and the public faults of ``worker-1`` have one name, in one namespace."""
    name = f"{kind}-fault-{NODE}"
    namesake = AgentPod(plane, _account(plane, name))
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
        own = create("mindx-dl", f"npu-vigil-{kind}-fault-{name}", PUBLIC_FAULT)
        assert namesake.ask(*own)[0] == CREATED
        elsewhere = create("kube-system", shared, PUBLIC_FAULT)
        for asking in (agent, namesake):
            assert asking.ask(*elsewhere)[0] == REFUSED
    finally:
        plane.request("DELETE", f"{path}/{shared}")
        plane.request("DELETE", f"{LEASES}/{shared}")


@pytest.mark.apiserver
def test_a_token_of_no_pod_may_write_nothing(plane: ControlPlane, agent: AgentPod) -> None:
    del agent
    aggregator_agent = AgentPod(plane, _account(plane, None))
    abouts = {
        "its device-info",
        "its heartbeat",
        "labels and annotations that it keeps on its Node",
    }
    rows = [row for row in WRITES if row.about in abouts]
    assert {row.about for row in rows} == abouts
    for row in rows:
        assert isinstance(row.attempt, Request)
        status, answer = aggregator_agent.ask(*row.attempt)
        assert (status, "own node only" in answer) == (REFUSED, True)
