"""Kubernetes Events of a real agent on a real API server (``docs/spec/device-plugin.md#6.1``)."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from tests.parts.deadlines import let_time_pass, nothing_happens_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.end_to_end.node import Node
    from tests.parts.controlplane import ControlPlane
    from tests.parts.places import Cluster

pytestmark = pytest.mark.apiserver

EVENTS = "/api/v1/namespaces/kube-system/events"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
SEVERE, ONE_OFF, MEMORY = "80E3A201", "8C204E00", "80E01801"


@pytest.fixture
def posted(cluster_node: Node, cluster: Cluster) -> Callable[[], list[dict[str, Any]]]:
    """Return a function that lists the Events about this node in the order of their writing."""
    cluster.plane.request("DELETE", EVENTS)
    cluster_node.environment["HOSTNAME"] = "agent-abcde"

    def events() -> list[dict[str, Any]]:
        found = cluster.plane.request("GET", EVENTS)["items"]
        mine = [event for event in found if event["source"].get("host") == cluster_node.name]
        return sorted(mine, key=lambda event: int(event["metadata"]["resourceVersion"]))

    return events


def counted(events: list[dict[str, Any]]) -> int:
    return sum(event["count"] for event in events)


def reasons(events: list[dict[str, Any]], code: str) -> list[str]:
    return [event["reason"] for event in events if f"faultCodes:{code}" in event["message"]]


def described(plane: ControlPlane, node: str) -> list[dict[str, Any]]:
    """Return the Events that ``kubectl describe node`` lists with its second request.

    The kubelet's uid of a Node is its name. The tests of a real node run the real kubectl.
    """
    about = {"kind": "Node", "name": node, "namespace": "", "uid": node}
    fields = ",".join(f"involvedObject.{key}={value}" for key, value in about.items())
    found: list[dict[str, Any]] = plane.request(
        "GET", f"/api/v1/events?fieldSelector={quote(fields)}"
    )["items"]
    return sorted(found, key=lambda event: int(event["metadata"]["resourceVersion"]))


def test_an_occurrence_a_notice_and_a_recovery(
    cluster_node: Node, cluster: Cluster, posted: Callable[[], list[dict[str, Any]]]
) -> None:
    """EX-43."""
    node = cluster_node
    node.start()
    node.healthy()
    before = time.time()
    node.emulator.occur(2, SEVERE)
    node.emulator.once(2, ONE_OFF)
    node.wait(lambda: len(posted()) == 2, "occurrence and notice are reported", 5)
    node.emulator.recover(2, SEVERE)
    node.wait(lambda: len(posted()) == 3, "the recovery is reported", 5)
    occur, notice, recovery = posted()
    at = datetime.fromisoformat(occur["eventTime"])
    assert before - 1 < at.timestamp() < time.time()
    assert {key: occur[key] for key in occur if key not in ("metadata", "eventTime")} == {
        "type": "Warning",
        "reason": "Occur",
        "action": "SeparateNPU",
        "message": (
            "device fault, nodeName:node-1, assertion:Occur, cardID:2, deviceID:0, "
            "faultCodes:80E3A201, faultLevelName:SeparateNPU, "
            f"alarmRaisedTime:{at:%Y-%m-%d %H:%M:%S}"
        ),
        "involvedObject": {
            "kind": "Node",
            "name": "node-1",
            "uid": "node-1",
            "apiVersion": "v1",
        },
        "source": {"component": "device-plugin", "host": "node-1"},
        "reportingComponent": "device-plugin",
        "reportingInstance": "agent-abcde",
        "firstTimestamp": f"{at:%Y-%m-%dT%H:%M:%SZ}",
        "lastTimestamp": f"{at:%Y-%m-%dT%H:%M:%SZ}",
        "count": 1,
    }
    assert [(one["type"], one["reason"], one["action"]) for one in (occur, notice, recovery)] == [
        ("Warning", "Occur", "SeparateNPU"),
        ("Normal", "Notice", "RestartBusiness"),
        ("Normal", "Recovery", "SeparateNPU"),
    ]
    nothing_happens_for(3, because="an audit follows after LAG_SECONDS, 2")
    assert len(posted()) == 3, "audits tell nothing of it again"
    assert described(cluster.plane, "node-1") == posted()


RULES = {
    "FaultFrequency": [
        {
            "EventId": ["80C98008"],
            "TimeWindow": 86400,
            "Times": 1,
            "FaultHandling": "ManuallySeparateNPU",
        }
    ]
}


def test_a_removed_reason_is_reported_whatever_removed_it(
    cluster_node: Node, cluster: Cluster, posted: Callable[[], list[dict[str, Any]]]
) -> None:
    """An operator, as ``frequency-manual-operator-release``; and a configuration (K28)."""
    node, plane = cluster_node, cluster.plane
    configuration = {
        "metadata": {"name": "mindx-dl-fault-config", "namespace": "kube-system"},
        "data": {"faultCustomization.json": json.dumps(RULES)},
    }
    place = "/api/v1/namespaces/kube-system/configmaps"
    plane.request("POST", place, configuration)
    node.start()
    node.healthy()

    def isolated(names: str) -> bool:
        data = node.place.read(node.document)
        return data is not None and data["ManuallySeparateNPU"] == names

    def released() -> list[dict[str, Any]]:
        return [event for event in posted() if event["reason"] == "EventReleaseUpgradeFault"]

    for chip in (2, 5):
        node.emulator.occur(chip, "80C98008")
        node.emulator.recover(chip, "80C98008")
    node.wait(lambda: isolated("Ascend910-2,Ascend910-5"), "both are isolated", 5)
    edit = {"data": {"ManuallySeparateNPU": "Ascend910-5"}}
    plane.request("PATCH", f"{place}/{node.document}", edit)
    node.wait(lambda: len(released()) == 1, "the release is reported", 5)
    without = {"data": {"faultCustomization.json": json.dumps({"FaultFrequency": []})}}
    plane.request("PATCH", f"{place}/mindx-dl-fault-config", without)
    node.wait(lambda: len(released()) == 2, "the end of the rule is reported", 5)
    for event, chip in zip(released(), (2, 5), strict=True):
        [[name, reasons]] = json.loads(event["message"]).items()
        assert name == f"Ascend910-{chip}"
        assert abs(reasons[0].pop("upgrade_time") / 1000 - time.time()) < 60
        assert reasons == [
            {
                "fault_code": "80c98008",
                "fault_level": "ManuallySeparateNPU",
                "upgrade_type": "FaultFrequency",
            }
        ]
        assert (event["type"], event["action"]) == ("Normal", "EventReleaseUpgradeFault")
        assert event["involvedObject"]["name"] == "node-1"


def test_of_a_burst_all_is_reported(
    cluster_node: Node, posted: Callable[[], list[dict[str, Any]]]
) -> None:
    """As ``many-faults-and-the-event-limiter``: upstream lets 11 of 32 through."""
    node = cluster_node
    node.start()
    node.healthy()
    for chip in range(8):
        for code in ("80E21007", "80818C06"):
            node.emulator.occur(chip, code)
    for chip in range(8):
        for code in ("80E21007", "80818C06"):
            node.emulator.recover(chip, code)
    node.wait(lambda: counted(posted()) == 32, "all are reported", 40)
    events = posted()
    assert len(events) == 14
    assert all("cardID:" in event["message"] for event in events)
    # The API server shows an event before its sender has the answer.
    node.wait(
        lambda: 'npu_vigil_events_total{result="sent"} 14.0' in node.ask("/metrics")[1],
        "all are counted",
    )
    assert "npu_vigil_events_merged_total 18.0" in node.ask("/metrics")[1]


def test_of_a_flood_all_is_reported_in_few_events(
    cluster_node: Node, posted: Callable[[], list[dict[str, Any]]]
) -> None:
    node = cluster_node
    node.start()
    node.healthy()
    began = time.monotonic()
    for _ in range(1000):
        for chip in (1, 4):
            node.emulator.occur(chip, MEMORY)
            node.emulator.recover(chip, MEMORY)
        let_time_pass(0.001)
    node.wait(lambda: len(node.assertions(MEMORY)) >= 3000, "most are journaled")
    nothing_happens_for(4, because="repeated events are merged for PERIOD_MS, 3000")
    reported = [word for word in node.assertions(MEMORY) if word in ("occur", "recover")]
    node.wait(lambda: counted(posted()) >= len(reported), "all are reported", 20)
    # On a busy machine the agent may not be through the flood yet.
    node.wait(lambda: counted(posted()) == len(node.assertions(MEMORY)), "none is missing", 20)
    events = posted()
    # Six of each period of 3 s: of chip 1, of chip 4 and of both, faults occur and recover.
    assert len(events) <= 6 * ((time.monotonic() - began) / 3 + 1)
    # Behind a period of the agent there may be a last Event for few.
    largest = max(events, key=lambda event: event["count"])
    assert "cardID:1 4, deviceID:0 0" in largest["message"]


def test_faults_during_an_outage_are_reported_after_it(
    cluster_node: Node, cluster: Cluster, posted: Callable[[], list[dict[str, Any]]]
) -> None:
    node = cluster_node
    node.start()
    node.healthy()
    cluster.plane.stop_apiserver()
    began = time.time()
    node.emulator.occur(3, SEVERE)
    node.wait(lambda: "occur" in node.assertions(SEVERE), "the fault is journaled")
    node.emulator.recover(3, SEVERE)
    node.wait(lambda: "recover" in node.assertions(SEVERE), "the recovery is journaled")
    ended = time.time()
    nothing_happens_for(1.5, because="the pauses of the sender begin with 0.1 s and double")
    cluster.plane.start_apiserver()
    node.wait(lambda: len(posted()) == 2, "both are reported")
    assert reasons(posted(), SEVERE) == ["Occur", "Recovery"]
    for event in posted():
        at = datetime.fromisoformat(event["eventTime"]).timestamp()
        assert began - 1 < at < ended + 1, "their own times"
    node.waits_for_text("no Events can be written")
    assert node.logged().count("no Events can be written") == 1


def test_kill_9_in_the_outage(
    cluster_node: Node, cluster: Cluster, posted: Callable[[], list[dict[str, Any]]]
) -> None:
    node = cluster_node
    node.start()
    node.healthy()
    node.emulator.occur(1, MEMORY)
    node.wait(lambda: len(posted()) == 1, "the first fault is reported", 5)
    # The API server shows an event before its sender has the answer.
    sent = 'npu_vigil_events_total{result="sent"} 1.0'
    node.wait(lambda: sent in node.ask("/metrics")[1], "its sender knows")
    cluster.plane.kill_apiserver()
    node.emulator.occur(3, SEVERE)
    node.wait(lambda: "occur" in node.assertions(SEVERE), "the fault is journaled")
    node.emulator.recover(3, SEVERE)
    node.wait(lambda: "recover" in node.assertions(SEVERE), "the recovery is journaled")
    node.kill()
    node.start()
    node.up()
    node.kill()
    node.start()
    cluster.plane.start_apiserver()
    node.wait(lambda: len(posted()) >= 3, "both are reported")
    nothing_happens_for(2, because="the pauses of the sender begin with 0.1 s and double")
    assert reasons(posted(), SEVERE) == ["Occur", "Recovery"]
    assert reasons(posted(), MEMORY) == ["Occur"], "what was reported is not reported again"
    assert counted(posted()) == 3


@pytest.fixture
def no_events(cluster_node: Node, cluster: Cluster) -> Iterator[str]:
    """Give the agent every right except to write Events; yield the path of its role."""
    plane, group = cluster.plane, RBAC.split("/")[2]
    rights = {
        "metadata": {"name": "no-events"},
        "rules": [
            {
                "apiGroups": ["", "coordination.k8s.io"],
                "resources": ["configmaps", "leases"],
                "verbs": ["*"],
            }
        ],
    }
    binding = {
        "metadata": {"name": "no-events"},
        "subjects": [{"kind": "User", "apiGroup": group, "name": "stranger"}],
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "no-events"},
    }
    plane.request("POST", f"{RBAC}/clusterroles", rights)
    plane.request("POST", f"{RBAC}/clusterrolebindings", binding)
    cluster_node.options += ["--kubeconfig", str(plane.kubeconfig_of("stranger-token"))]
    yield f"{RBAC}/clusterroles/no-events"
    plane.request("DELETE", f"{RBAC}/clusterrolebindings/no-events")
    plane.request("DELETE", f"{RBAC}/clusterroles/no-events")


@pytest.mark.usefixtures("no_events")
def test_without_rights_it_is_logged_once_and_the_rest_works(
    cluster_node: Node, posted: Callable[[], list[dict[str, Any]]]
) -> None:
    node = cluster_node
    node.start()
    node.healthy()
    for chip in range(4):
        node.emulator.occur(chip, SEVERE)
    node.until(lambda now: all(now.codes(chip) for chip in range(4)), "all are shown")
    refused = 'npu_vigil_events_total{result="refused"} 4.0'
    node.wait(lambda: refused in node.ask("/metrics")[1], "all were refused", 20)
    assert "npu_vigil_events_waiting 0.0" in node.ask("/metrics")[1]
    node.waits_for_text("Events are refused")
    assert node.logged().count("Events are refused") == 1
    assert posted() == []


def test_a_right_that_comes_late_loses_no_event(
    cluster_node: Node,
    cluster: Cluster,
    no_events: str,
    posted: Callable[[], list[dict[str, Any]]],
) -> None:
    """As of an API server that has just started and knows no roles yet."""
    node = cluster_node
    node.start()
    node.healthy()
    node.emulator.occur(1, SEVERE)
    node.until(lambda now: bool(now.codes(1)), "the fault is shown")
    assert posted() == []
    right = [{"apiGroups": [""], "resources": ["events"], "verbs": ["create"]}]
    role = cluster.plane.request("GET", no_events)
    cluster.plane.request("PUT", no_events, role | {"rules": role["rules"] + right})
    node.wait(lambda: reasons(posted(), SEVERE) == ["Occur"], "the Event is there")
    assert 'npu_vigil_events_total{result="refused"} 0.0' in node.ask("/metrics")[1]
