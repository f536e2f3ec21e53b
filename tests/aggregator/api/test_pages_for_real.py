"""Every described page of a real aggregator to which everything happens, and its metrics."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
import pytest

from aggregator.api.operations import OPERATIONS
from aggregator.processors import separation_documents
from contract.documents.cluster_info import cluster_device_name
from contract.documents.node_info import FaultDevice
from contract.documents.public_fault import (
    Influence,
    PublicFault,
    PublicFaultEntry,
    encode_public_fault,
)
from contract.names import PUBLIC_FAULT_LABEL
from stores.address import open_store
from stores.base import Document
from tests.aggregator.dpu_faults.scene import LANE_DOWN, dpu_document
from tests.aggregator.nodes import T0, node_report, report, with_switch
from tests.contract.documents.node_documents import config, fault
from tests.parts import pod_groups, pods
from tests.parts.deadlines import until
from tests.parts.exposition import (
    ADVISING,
    AGGREGATOR,
    CERTIFICATES,
    GRPC,
    KUBERNETES,
    listed,
    scraped,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stores.base import Store
    from tests.aggregator.conftest import Make
    from tests.aggregator.daemon import Daemon
    from tests.parts.controlplane import ControlPlane

JOB = "11111111-2222-3333-4444-555555555555"
POLICY = """
enabled: true
separate: {fault_window_hours: 24, fault_threshold: 3}
release: {fault_free_hours: -1}
"""
PUBLIC = PublicFault(
    "message-1",
    T0 * 1000,
    "1.0",
    "CCAE",
    [
        PublicFaultEntry(
            "fault-0001",
            "NPU",
            "220001001",
            T0 * 1000,
            "occur",
            influence=[Influence("n1", "", [5])],
        )
    ],
)


async def trouble(store: Store, plane: ControlPlane) -> None:
    """Publish a fault of every source, on chips, switches, servers and jobs."""
    owner = pods.owned_by(JOB, "training")
    filters = {"huawei.com/schedule.filter.faultCode": "80E18402:3600"}
    pod_groups.make(plane, "group", owner, annotations=filters)
    pods.make(plane, "rank-0", "n1", "Ascend910-3,Ascend910-4,Ascend910-5", owner=owner)
    faults = [fault(3, "RestartNPU", "80E18402"), fault(4, "PreSeparateNPU", "80E21007")]
    await store.put(report("n1", config(faults, unhealthy=(3,))))
    await store.put(with_switch("n2", "Separate", "UnHealthy"))
    await store.put(node_report("n3", [FaultDevice("Fan", 4, ["06000025"], "x")], "Healthy"))
    await store.put(report("n4", {"DeviceInfoCfg": "{"}))
    await store.put(dpu_document("n2", LANE_DOWN, at=time.time() - T0))
    separated = separation_documents.render_chips({"Ascend910-7": {"80C98009": T0 * 1000}})
    for name, data in (
        (separation_documents.POLICY_NAME, {separation_documents.POLICY_KEY: POLICY}),
        (separation_documents.CHIPS_NAME, {"n1": separated}),
    ):
        await store.put(Document(separation_documents.NAMESPACE, name, data))
    message = encode_public_fault(PUBLIC)
    await store.put(Document("default", "ccae", message, dict([PUBLIC_FAULT_LABEL])))


def strictly(answer: object, kind: object) -> Any:
    """Return the reply as the described type; the description has neither less nor more."""
    value = msgspec.convert(answer, kind)
    assert json.loads(msgspec.json.encode(value)) == answer
    return value


def chip(explained: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in explained["chips"] if one["chip"] == name)
    return found


@pytest.fixture
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    pod_groups.install(control_plane)
    yield control_plane
    pod_groups.uninstall(control_plane)


@pytest.fixture
async def daemon(plane: ControlPlane, make: Make) -> Daemon:
    store = open_store("kubernetes:", plane.kubeconfig)
    try:
        await trouble(store, plane)
    finally:
        await store.close()
    options = ("--grpc-listen", "127.0.0.1:0", "--grpc-plaintext")
    daemon = make("kubernetes:", plane.kubeconfig, *options)
    daemon.environment["VIGIL_ADVICE_ENABLED"] = "true"
    await asyncio.to_thread(daemon.start)
    await until(lambda: daemon.ask("/api/v1/public-faults")[1]["public_faults"]["standing"] == 1)
    await until(lambda: daemon.ask("/api/v1/jobs")[1]["jobs"] != [])
    await until(lambda: daemon.ask("/api/v1/history")[1]["events"] != [])
    await until(lambda: daemon.ask("/api/v1/advice")[1]["advice"]["reports"] != [])
    return daemon


@pytest.mark.apiserver
async def test_every_page_matches_its_description(daemon: Daemon) -> None:
    for one in OPERATIONS:
        if one.content != "application/json":
            continue
        path = one.path.replace("{node}", "n1").replace("{job}", JOB)
        path = path.replace("{namespace}", "default").replace("{podgroup}", "group")
        status, answer = daemon.ask(path)
        assert status == 200, path
        strictly(answer, one.answer)
        status, answer = daemon.ask(f"{path}?nonsense=1")
        assert status == 400, path
        assert "nonsense" not in answer["error"]
        assert "not a valid parameter" in answer["error"]
    for question in ("running=maybe", "sized=job", "judged=a/b/c"):
        assert daemon.ask(f"/api/v1/ended-jobs?{question}")[0] == 400, question
    assert daemon.ask("/api/v1/ended-jobs?running=true")[1]["ended"]["running"] == []
    for path in ("/api/v1/nodes/nobody", "/api/v1/jobs/nobody", "/api/v1/advice/default/nobody"):
        status, answer = daemon.ask(path)
        assert status == 404
        assert answer["error"].startswith("there is no ")
    assert_jobs(daemon)
    assert_explained(daemon)
    assert_parts(daemon)
    assert_metrics(daemon)


def assert_jobs(daemon: Daemon) -> None:
    (hit,) = daemon.ask("/api/v1/jobs")[1]["jobs"]
    assert (hit["job"], hit["name"], hit["health"]) == (JOB, "training", "UnHealthy")
    (node,) = hit["nodes"]
    assert {one["code"] for one in node["faults"]} >= {"80E18402", "80E21007", "220001001"}
    ranks = daemon.ask(f"/api/v1/jobs/{JOB}")[1]["ranks"]
    assert "80E18402" not in {one["code"] for one in ranks}, "the job filters it"


def assert_explained(daemon: Daemon) -> None:
    found = daemon.ask("/api/v1/nodes/n1")[1]
    assert found["documents"] == {cluster_device_name(0): True}
    hidden = chip(found, "Ascend910-3")
    assert (hidden["reported"], hidden["published"]) == ("unhealthy", "recovering")
    assert hidden["pods"] == ["default/rank-0"]
    (one,) = hidden["faults"]
    assert one["because"].startswith("held back from readers until 20")
    assert one["because"].endswith(": filtered by job default/training")
    message = found["messages"][one["because"]]
    assert message["id"] == "held back from readers until {time}: filtered by {jobs}"
    assert message["parameters"]["jobs"]["id"] == "job {name}"
    assert one["until_ms"] == one["received_at_ms"] + 3_600_000
    public = chip(found, "Ascend910-5")["faults"][0]["because"]
    assert (
        public == "a public fault of CCAE (fault-0001); it holds until its program reports the end"
    )
    manual = chip(found, "Ascend910-7")["faults"][0]
    assert manual["since_ms"] == T0 * 1000
    assert manual["because"] == (
        "in manual separation, because 3 times within 24 h came: 80C98009 (last at 2025-10-09 "
        "08:53:20 UTC); never released by time, an operator may release it: "
        "vigil release"
    )
    (job,) = found["jobs"]
    assert job["because"][0].endswith(", which makes it UnHealthy")
    assert [event["reported"] for event in daemon.ask("/api/v1/nodes/n2")[1]["switch_events"]] == [
        "Separate"
    ]


def assert_parts(daemon: Daemon) -> None:
    (separated,) = daemon.ask("/api/v1/separation")[1]["separation"]["chips"]
    assert separated["shown_in"] == ["kubernetes:"]
    bench = {
        one["kind"]: one
        for one in daemon.ask("/api/v1/cluster-state")[1]["cluster_state"]["objects"]
    }
    assert bench["pods"]["objects"] == bench["PodGroups"]["objects"] == 1
    services = daemon.ask("/api/v1/services")[1]["services"]
    assert services["grpc"]["plaintext"]
    faults = daemon.ask("/api/v1/faults")[1]
    assert {one["code"]: one["hidden"] for one in faults["faults"] if one["kind"] == "chip"} == {
        "80E18402": "filter",
        "80E21007": None,
        "220001001": None,
        "ManuallySeparateNPU": None,
    }
    assert all(one["received_at_ms"] for one in faults["faults"])


def assert_metrics(daemon: Daemon) -> None:
    text = daemon.ask("/metrics")[1]
    shown = scraped(text)
    here = listed(KUBERNETES) | listed(GRPC) | listed(CERTIFICATES)
    assert here.items() <= shown.items()
    assert shown.items() <= (here | listed(AGGREGATOR) | listed(ADVISING)).items()
    assert daemon.metric('npu_vigil_jobs_with_faults{health="UnHealthy"}') == 1
    assert daemon.metric('npu_vigil_withheld_faults{reason="filter"}') == 1
    assert daemon.metric("npu_vigil_separation_chips") == 1
    assert daemon.metric("npu_vigil_history_published_total") > 0
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, text=True, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


@pytest.mark.apiserver
async def test_filters_parts_and_the_stream_of_an_aggregator(daemon: Daemon) -> None:
    every = daemon.ask("/api/v1/faults")[1]
    assert every["continue"] is None
    found, more = [], ""
    while True:
        part = daemon.ask(f"/api/v1/faults?limit=2{more}")[1]
        found += part["faults"]
        if part["continue"] is None:
            break
        more = f"&continue={quote(part['continue'])}"
    assert found == every["faults"]
    chosen = daemon.ask("/api/v1/faults?node=n1&level=RestartNPU")[1]["faults"]
    assert [(one["node"], one["code"]) for one in chosen] == [("n1", "80E18402")]
    assert {one["kind"] for one in every["faults"]} == {"chip", "switch", "host", "dpu"}
    assert all(one["since_ms"] for one in every["faults"]), "each has a time"

    def nodes(query: str) -> set[str]:
        return {one["node"] for one in daemon.ask(f"/api/v1/nodes?{query}")[1]["nodes"]}

    assert nodes("state=rejected") == {"n4"}
    assert nodes("code=80E18402") == {"n1"}
    assert nodes("node=n2&node=n3&node=nobody") == {"n2", "n3"}
    assert nodes("node=n2&code=80E18402") == set()
    assert daemon.ask("/api/v1/nodes?state=well")[0] == 400
    for path in ("nodes", "nodes/n1", "faults", "jobs", "leader", "liveness"):
        epoch, _, number = daemon.ask(f"/api/v1/{path}")[1]["stream"].rpartition("-")
        assert epoch
        assert int(number) > 0
