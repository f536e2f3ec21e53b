"""Messages about jobs and about the cluster (``docs/spec/clusterd.md#5.4`` and 6)."""

from __future__ import annotations

from itertools import permutations

import msgspec
import pytest

from aggregator.cluster_documents.published_node import (
    ACCOMPANIES,
    FILTER,
    PublishedNode,
    WithheldEvent,
    WithheldFault,
)
from aggregator.grpc.interfaces import FAULT, NORMAL, DeviceFaultInfo, FaultMsgSignal
from aggregator.inputs.node_context import JobState
from contract.documents.cluster_info import lost_node
from tests.aggregator.jobs.scene import (
    Scene,
    fault,
    healthy,
    part,
    parts,
    switch,
)


def devices(
    message_sent: FaultMsgSignal | None, node: str = "n0"
) -> dict[tuple[str, str], DeviceFaultInfo]:
    assert message_sent is not None
    of_node = [one for one in message_sent.nodes if one.node_name == node]
    return {(one.device_type, one.device_id): one for info in of_node for one in info.devices}


def test_a_chip_fault_and_its_recovery() -> None:
    scene = Scene(nodes=2)
    scene.pod("a", "n0", "job", "0 1")
    assert scene.job_view.pop_changed_jobs() == frozenset()
    assert scene.job_view.message("job") == FaultMsgSignal("job", NORMAL)
    scene.chips("n0", fault(1, "RestartNPU", "80E18402"), fault(9, "SeparateNPU", "80E3A201"))
    assert scene.job_view.pop_changed_jobs() == {"job"}
    assert scene.job_view.faulty() == {"job"}
    message_sent = scene.job_view.message("job")
    assert message_sent is not None
    assert message_sent.signal_type == FAULT
    assert devices(message_sent).keys() == {("NPU", "1")}, "chip 9 is nobody's"
    scene.chips("n0", fault(9, "SeparateNPU", "80E3A201"))
    assert scene.job_view.pop_changed_jobs() == {"job"}
    assert scene.job_view.message("job") == FaultMsgSignal("job", NORMAL)
    assert not scene.job_view.faulty()
    scene.look("n0", "n1")
    assert scene.job_view.pop_changed_jobs() == frozenset()


def test_two_pods_of_one_job_on_one_node_both_count() -> None:
    """Cover defect B41."""
    scene = Scene(nodes=1)
    scene.pod("a", "n0", "job", "0 1", rank=0)
    scene.pod("b", "n0", "job", "2 3", rank=1)
    scene.chips("n0", fault(1, "RestartNPU", "80E18402"), fault(3, "RestartNPU", "80E18402"))
    assert devices(scene.job_view.message("job")).keys() == {("NPU", "1"), ("NPU", "3")}
    ranks = [(one.rank, one.pod_uid, one.pod_rank) for one in scene.job_view.ranks("job")]
    assert ranks == [("1", "a", "0"), ("3", "b", "1")]
    scene.end("a", "n0")
    assert devices(scene.job_view.message("job")).keys() == {("NPU", "3")}
    assert [one.rank for one in scene.job_view.ranks("job")] == ["3"], "the pods are alike"
    scene.pod("c", "n0", "job", "4", rank=2)
    assert [one.rank for one in scene.job_view.ranks("job")] == [""], "nobody knows what is missing"


def test_two_jobs_on_one_node_receive_their_own_chips() -> None:
    scene = Scene(nodes=1)
    scene.pod("a", "n0", "one", "0 1")
    scene.pod("b", "n0", "two", "2 3")
    scene.chips("n0", fault(1, "RestartNPU", "80E18402"))
    assert scene.job_view.pop_changed_jobs() == {"one"}
    scene.publish("n0", node=parts("UnHealthy", part("CPU", 1, "SeparateFault", "00000001")))
    assert scene.job_view.pop_changed_jobs() == {"one", "two"}
    assert devices(scene.job_view.message("two")).keys() == {("CPU", "1")}


def test_a_pod_without_chips_receives_its_node_only() -> None:
    scene = Scene(nodes=1)
    scene.pod("a", "n0", "job")
    scene.chips("n0", fault(1, "RestartNPU", "80E18402"))
    scene.publish(
        "n0", switch=switch("UnHealthy", "Separate", ("[0x00f1ff09,155913,cpu,na]", 1, 2))
    )
    assert scene.job_view.pop_changed_jobs() == frozenset()
    scene.publish("n0", node=parts("UnHealthy", part("CPU", 1, "SeparateFault", "00000001")))
    scene.node("n0", ready=False)
    assert devices(scene.job_view.message("job")).keys() == {("CPU", "1"), ("Node", "-1")}
    (status,) = scene.status()
    assert status.health == "UnHealthy"
    scene.pod("a", "n0", "job", "1")
    assert devices(scene.job_view.message("job")).keys() == {
        ("CPU", "1"),
        ("Node", "-1"),
        ("NPU", "1"),
        ("Switch", "-1"),
    }


@pytest.mark.parametrize("gone", [True, False])
def test_a_node_that_is_missing_or_not_ready(gone: bool) -> None:
    scene = Scene(nodes=1)
    scene.pod("a", "n0", "job", "0")
    if gone:
        del scene.lookup.nodes["n0"]
        scene.look("n0")
    else:
        scene.node("n0", ready=False)
    for message_sent in (scene.job_view.message("job"), scene.job_view.cluster()):
        device = devices(message_sent)["Node", "-1"]
        assert (device.fault_codes, device.fault_level) == ((), "UnHealthy")
        assert message_sent is not None
        assert (message_sent.nodes[0].node_ip, message_sent.nodes[0].node_sn) == (
            "192.168.0.0",
            "SN-n0",
        )
    scene.node("n0")
    assert scene.job_view.message("job") == FaultMsgSignal("job", NORMAL)
    assert scene.job_view.cluster() == FaultMsgSignal("-1", NORMAL)


def test_of_a_node_that_is_gone_altogether_nothing_is_remembered() -> None:
    scene = Scene(nodes=1)
    device = scene.published.pop("n0").device
    del scene.lookup.nodes["n0"]
    scene.look("n0")
    scene.publish("n0", device=device)
    (node,) = scene.job_view.cluster().nodes
    assert (node.node_ip, node.node_sn) == ("", "")


def test_times_of_public_faults_are_reported_in_milliseconds() -> None:
    scene = Scene(nodes=1)
    scene.pod("a", "n0", "job", "0", rank=0)
    one = fault(0, "SeparateNPU", "220001001", time_ms=1_760_000_100)
    scene.chips("n0", msgspec.structs.replace(one, fault_type="PublicFault"))
    (status,) = scene.status()
    assert status.nodes[0].faults[0].time_ms == status.ranks[0].time_ms == 1_760_000_100_000


def test_before_nodes_and_pods_were_listed_no_node_is_missing() -> None:
    scene = Scene()
    scene.lookup.nodes_known = scene.lookup.pods_known = False
    scene.publish("n0", device=healthy(fault(0, "RestartNPU", "80E18402")))
    scene.pod("a", "n0", "job", "0")
    assert devices(scene.job_view.cluster()).keys() == {("NPU", "0")}
    assert scene.job_view.pop_changed_jobs() == frozenset()
    scene.lookup.pods_known = True
    scene.look()
    assert devices(scene.job_view.message("job")).keys() == {("NPU", "0")}
    scene.lookup.nodes_known = True
    scene.look()
    assert devices(scene.job_view.message("job")).keys() == {("NPU", "0"), ("Node", "-1")}


def test_a_node_that_only_fell_silent_is_reported() -> None:
    scene = Scene(nodes=1)
    scene.pod("a", "n0", "job", "0")
    scene.publish("n0", node=lost_node(None))
    for message_sent in (scene.job_view.message("job"), scene.job_view.cluster()):
        assert devices(message_sent).keys() == {("Node", "-1")}


def test_a_fault_that_a_filter_withholds_is_reported_and_does_not_count() -> None:
    scene = Scene(nodes=1)
    scene.pod("a", "n0", "job", "0")
    codes = [fault(chip, "RestartNPU", "80C98000") for chip in (0, 5)]
    scene.publish("n0", hidden=tuple(WithheldFault(one, FILTER, None) for one in codes))
    event = switch("UnHealthy", "RestartRequest", ("[0x1,na,L2,na]", 1, 2)).events[0]
    scene.publish("n0", hidden_events=(WithheldEvent(event, 0, "RestartRequest", 0),))
    assert devices(scene.job_view.message("job")).keys() == {("NPU", "0"), ("Switch", "-1")}
    (status,) = scene.status()
    assert (status.health, status.ranks) == ("Healthy", ())
    scene.publish("n0", hidden=(WithheldFault(codes[0], ACCOMPANIES, None),), hidden_events=())
    assert scene.job_view.message("job") == FaultMsgSignal("job", NORMAL), "no filter hides it"
    assert scene.job_view.cluster().signal_type == NORMAL


def test_a_restart_that_waits_for_the_chip_hits_while_the_chip_is_listed() -> None:
    scene = Scene(nodes=1)
    scene.pod("a", "n0", "job", "0")
    scene.chips("n0", fault(0, "FreeRestartNPU", "80C98000"))
    assert scene.job_view.message("job") == FaultMsgSignal("job", NORMAL)
    record = scene.published["n0"].device
    assert record is not None
    scene.publish("n0", device=msgspec.structs.replace(record, network_unhealthy=("Ascend910-0",)))
    assert devices(scene.job_view.message("job"))["NPU", "0"].fault_level == "UnHealthy"


@pytest.mark.parametrize(
    "levels", list(permutations(["SubHealthFault", "RestartNPU", "NotHandleFault"])), ids="-".join
)
def test_the_worst_level_counts_in_any_order(levels: tuple[str, ...]) -> None:
    """Cover defect B26: several codes, and one code more than once."""
    scene = Scene(nodes=1)
    scene.pod("a", "n0", "job", "0")
    every = tuple(fault(0, level, "80C98000") for level in levels)
    device = msgspec.structs.replace(healthy(), faults=every)
    scene.publish("n0", device=device)
    for message_sent in (scene.job_view.message("job"), scene.job_view.cluster()):
        info = devices(message_sent)["NPU", "0"]
        assert (info.fault_codes, info.fault_levels) == (("80C98000",), ("RestartNPU",))
        assert info.fault_level == "UnHealthy"


@pytest.mark.parametrize(
    ("level", "health"),
    [
        ("NotHandleFault", "Healthy"),
        ("SubHealthFault", "SubHealthy"),
        ("PreSeparateNPU", "SubHealthy"),
        ("RestartRequest", "UnHealthy"),
        ("RestartBusiness", "UnHealthy"),
        ("RestartNPU", "UnHealthy"),
        ("SeparateNPU", "UnHealthy"),
        ("ManuallySeparateNPU", "UnHealthy"),
        ("NormalNPU", "Healthy"),
        ("a level nobody knows", "Healthy"),
    ],
)
def test_levels(level: str, health: str) -> None:
    scene = Scene(nodes=1)
    scene.pod("a", "n0", "job", "0")
    scene.chips("n0", fault(0, level, "80C98000"))
    for message_sent in (scene.job_view.message("job"), scene.job_view.cluster()):
        assert message_sent is not None
        assert (
            message_sent.nodes[0].fault_level
            == devices(message_sent)["NPU", "0"].fault_level
            == health
        )


def test_a_pre_separation_makes_no_job_ill() -> None:
    scene = Scene(nodes=1)
    scene.pod("a", "n0", "job", "0")
    scene.chips("n0", fault(0, "PreSeparateNPU", "80C98000"))
    (status,) = scene.status()
    assert status.health == "Healthy"


def test_of_a_manual_separation_without_a_code_the_level_counts() -> None:
    scene = Scene(nodes=1)
    scene.pod("a", "n0", "job", "0")
    scene.chips("n0", fault(0, "ManuallySeparateNPU", ""))
    for message_sent in (scene.job_view.message("job"), scene.job_view.cluster()):
        info = devices(message_sent)["NPU", "0"]
        assert (info.fault_codes, info.fault_levels, info.fault_level) == ((), (), "UnHealthy")


def test_nodes_are_sorted_by_address_and_devices_by_id_as_texts() -> None:
    scene = Scene(nodes=3)
    for number, node in enumerate(("n2", "n0")):
        scene.pod(f"p{number}", node, "job", "2 10")
        scene.chips(node, fault(2, "RestartNPU", "1"), fault(10, "RestartNPU", "1"))
    scene.publish("n0", switch=switch("SubHealthy", "SubHealthFault", ("[0x1,na,L2,na]", 1, 2)))
    message_sent = scene.job_view.message("job")
    assert message_sent is not None
    assert [node.node_name for node in message_sent.nodes] == ["n0", "n2"]
    assert [one.device_id for one in message_sent.nodes[0].devices] == ["-1", "10", "2"]


def test_the_cluster_receives_every_node_with_chips() -> None:
    scene = Scene(nodes=3)
    event = ("[0x00f1ff09,155913,cpu,na]", 1, 2)
    scene.chips("n0", fault(9, "RestartNPU", "80E18402"))
    scene.publish("n0", switch=switch("Healthy", "NotHandle"))
    scene.publish("n1", switch=switch("UnHealthy", "Separate", event))
    waiting = part("PSU", 1, "PreSeparateFault", "0300000D")
    scene.publish("n2", node=parts("Healthy", waiting))
    scene.published["n3"] = PublishedNode(node=parts("UnHealthy", waiting))
    scene.look("n3")
    message_sent = scene.job_view.cluster()
    assert (message_sent.job_id, message_sent.signal_type) == ("-1", FAULT)
    assert [(node.node_name, node.fault_level) for node in message_sent.nodes] == [
        ("n0", "UnHealthy"),
        ("n1", "UnHealthy"),
        ("n2", "Healthy"),
    ]
    info = devices(message_sent, "n1")["Switch", "-1"]
    assert (info.fault_codes, info.fault_levels) == ((event[0],), ())
    (one,) = info.switch_faults
    assert (one.switch_chip_id, one.switch_port_id, one.fault_level) == ("1", "2", "Separate")
    scene.publish("n2", node=parts("UnHealthy", waiting))
    assert devices(scene.job_view.cluster(), "n2")["PSU", "1"].fault_level == "UnHealthy", (
        "it is idle"
    )


def test_jobs_of_one_inference_service_are_reported_together() -> None:
    scene = Scene(nodes=2)
    labels = {"jobID": "service", "app": "mindie-ms-server"}
    scene.pod("a", "n0", "one", "0", labels=labels)
    scene.lookup.all_jobs["two"] = JobState("two", labels=labels)
    scene.pod("b", "n0", "two", "1")
    scene.chips("n0", fault(0, "RestartNPU", "1"), fault(1, "SubHealthFault", "2"))
    assert scene.job_view.pop_changed_jobs() >= {"one", "two", "service"}
    assert scene.job_view.faulty() == {"one", "two"}
    assert devices(scene.job_view.message("service")).keys() == {("NPU", "0"), ("NPU", "1")}
    assert scene.job_view.knows("service", "mindie-ms-server")
    assert not scene.job_view.knows("service", "vector")
    scene.end("b", "n0")
    assert "service" in scene.job_view.pop_changed_jobs()
    assert devices(scene.job_view.message("service")).keys() == {("NPU", "0")}
    scene.end("a", "n0")
    assert scene.job_view.message("service") is None


def test_jobs_are_known_by_key_and_mindie_id() -> None:
    scene = Scene(nodes=1)
    assert scene.job_view.knows("-1")
    assert not scene.job_view.knows("job")
    scene.lookup.all_jobs["job"] = JobState("job")
    assert scene.job_view.knows("job"), "though it has no pod yet"
    assert scene.job_view.message("job") == FaultMsgSignal("job", NORMAL)
    scene.lookup.all_jobs["server"] = JobState("server", labels={"jobID": "service", "app": "app"})
    assert scene.job_view.knows("service", "app")
    assert scene.job_view.message("another") is None


def test_a_job_that_went_is_reported_once_more() -> None:
    scene = Scene(nodes=1)
    scene.pod("a", "n0", "job", "0")
    scene.chips("n0", fault(0, "RestartNPU", "1"))
    scene.job_view.pop_changed_jobs()
    del scene.lookup.all_jobs["job"]
    scene.end("a", "n0")
    assert scene.job_view.pop_changed_jobs() == {"job"}
    assert scene.job_view.message("job") is None
    assert not scene.job_view.knows("job")
    assert scene.status() == ()


def test_since_when_a_job_is_hit() -> None:
    scene = Scene(nodes=1)
    scene.chips("n0", fault(0, "RestartNPU", "1"))
    began_ms = scene.instant().wall_ms
    scene.wait(5000)
    scene.pod("a", "n0", "job", "0")
    scene.wait(5000)
    scene.chips("n0", fault(0, "RestartNPU", "1"), fault(0, "RestartNPU", "2"))
    (status,) = scene.status()
    assert (status.namespace, status.name, status.since_ms) == ("default", "job", began_ms)


def test_each_job_that_something_else_hits_is_taken_once() -> None:
    scene = Scene(nodes=2)
    scene.pod("a", "n0", "job", "0 1")
    assert list(scene.job_view.pop_changed_impact()) == []
    scene.chips("n0", fault(1, "RestartNPU", "80E18402"))
    (hit,) = scene.job_view.pop_changed_impact()
    assert (hit.job, [one.node for one in hit.nodes]) == ("job", ["n0"])
    assert list(scene.job_view.pop_changed_impact()) == []
    scene.chips("n0", fault(1, "RestartNPU", "80E18402"), fault(0, "RestartNPU", "80E18402"))
    (hit,) = scene.job_view.pop_changed_impact()
    assert len(hit.nodes[0].faults) == 2
    scene.chips("n0")
    (hit,) = scene.job_view.pop_changed_impact()
    assert hit.nodes == ()
