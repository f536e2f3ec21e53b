"""Switch and node documents in the pipeline: each kind by itself, healed or left out, complete."""

from __future__ import annotations

import pytest

from aggregator.inputs.node_context import PodState
from aggregator.inputs.node_documents import DocumentSource
from aggregator.merge.pipeline import LOST_ANNOTATION, Pipeline
from contract.documents.node_info import FaultDevice
from contract.go import encode as go_json
from contract.names import CLUSTER_LABEL, CLUSTER_NAMESPACE, CLUSTER_NODE_NAME
from stores.base import Deleted, Document, DocumentsListed
from stores.cluster import Snapshot, Update
from tests.aggregator.nodes import (
    T0,
    healthy,
    instant,
    node_report,
    published,
    report,
    switch_data,
    with_switch,
)
from tests.aggregator.pipelines import DEVICES, SWITCHES, WrittenPipeline

CPU = FaultDevice("CPU", 1, ["00000001"], "PreSeparateFault")
FAN = FaultDevice("Fan", 2, ["28000009"], "NotHandleFault")


def test_a_change_touches_only_the_documents_of_its_kind() -> None:
    bench = WrittenPipeline(with_switch("n1", "", "Healthy"), node_report("n1", [], "Healthy"))
    assert bench.put(with_switch("n1", "Separate", "UnHealthy")) == {SWITCHES}
    assert bench.put(node_report("n1", [FAN], "Healthy")) == {CLUSTER_NODE_NAME}
    assert bench.put(with_switch("n1", "Separate", "UnHealthy", T0 + 9)) == frozenset()


def test_without_any_node_info_the_document_is_empty_and_there() -> None:
    bench = WrittenPipeline(report("n1", healthy()))
    assert bench.outputs[CLUSTER_NODE_NAME].data == {CLUSTER_NODE_NAME: ""}
    assert SWITCHES not in bench.outputs


def test_a_bad_part_harms_neither_the_other_parts_nor_other_nodes() -> None:
    bench = WrittenPipeline(with_switch("n1", "", "Healthy"), node_report("n1", [FAN], "Healthy"))
    bad = {"DeviceInfoCfg": "{", "SwitchInfoCfg": switch_data("Separate", "UnHealthy")}
    assert bench.put(report("n1", bad)) == {SWITCHES}
    assert "n1" in published(bench.outputs[DEVICES].data[DEVICES])
    worse = {**healthy(T0 + 1), "SwitchInfoCfg": '{"FaultCode":["{\\"EventType\\":-1}"]}'}
    assert bench.put(report("n1", worse)) == frozenset()
    assert bench.switches()["n1"]["NodeStatus"] == "UnHealthy"
    source = bench.pipeline.sources[0]
    assert "EventType" in source.switch.rejected["n1"].reason
    assert source.device.rejected == {}
    broken = node_report("n1", [], "Healthy")
    broken.data["NodeInfo"] = broken.data["NodeInfo"].replace("Healthy", "UnHealthy")
    assert bench.put(broken) == frozenset()
    assert "CheckCode" in source.node.rejected["n1"].reason
    assert bench.statuses() == {"n1": "Healthy"}
    assert bench.put(node_report("n2", [], "Healthy")) == {CLUSTER_NODE_NAME}


def test_e33_a_null_among_devices_is_dropped_and_spoils_no_other() -> None:
    bench = WrittenPipeline(node_report("n2", [], "Healthy"))
    inner = {"FaultDevList": [None], "NodeStatus": "Healthy"}
    text = go_json.encode({"NodeInfo": inner, "CheckCode": go_json.check_code(inner)})
    poisoned = node_report("n1", [], "Healthy")
    bench.put(Document(poisoned.namespace, poisoned.name, {"NodeInfo": text}, poisoned.labels))
    assert bench.statuses() == {"n1": "Healthy", "n2": "Healthy"}
    assert bench.servers()["n1"]["FaultDevList"] is None


def test_a_switch_that_is_not_mentioned_any_more_is_healthy_first_and_gone_later() -> None:
    bench = WrittenPipeline(with_switch("n1", "Separate", "UnHealthy"))
    again = WrittenPipeline(report("n1", healthy()), outputs=dict(bench.outputs))
    assert again.switches()["n1"]["NodeStatus"] == "Healthy"
    assert bench.put(report("n1", {"DeviceInfoCfg": "{"})) == frozenset()
    assert bench.switches()["n1"]["NodeStatus"] == "UnHealthy", "a bad document ends nothing"
    assert bench.put(report("n1", healthy(T0 + 1))) == {SWITCHES}
    assert bench.switches()["n1"]["NodeStatus"] == "Healthy"
    bench.step(50)
    bench.step(100)
    assert bench.outputs[SWITCHES].data == {SWITCHES: ""}
    assert bench.put(with_switch("n1", "Separate", "UnHealthy")) == {SWITCHES}
    assert bench.switches()["n1"]["NodeStatus"] == "UnHealthy"


def test_the_switch_of_a_deleted_node_is_healthy_first_and_gone_a_touch_period_later() -> None:
    bench = WrittenPipeline(with_switch("n1", "Separate", "UnHealthy"))
    assert bench.delete(report("n1", {}), at=1) == {SWITCHES}
    entry = bench.switches()["n1"]
    assert (entry["NodeStatus"], entry["FaultCode"], entry["FaultLevel"]) == ("Healthy", [], "")
    assert entry["FaultTimeAndLevelMap"] == {}
    bench.step(45.9)
    assert "n1" in bench.switches()
    assert bench.step(46) == {DEVICES, SWITCHES}
    assert bench.outputs[SWITCHES].data == {SWITCHES: ""}


def test_a_deleted_node_info_is_left_out_at_once() -> None:
    bench = WrittenPipeline(node_report("n1", [CPU], "UnHealthy"), node_report("n2", [], "Healthy"))
    assert bench.delete(node_report("n1", [], "")) == {CLUSTER_NODE_NAME}
    assert bench.statuses() == {"n2": "Healthy"}
    restarted = WrittenPipeline(outputs=bench.outputs)
    assert restarted.statuses() == {}


def test_surplus_switch_documents_of_an_earlier_run_become_empty() -> None:
    name = "cluster-info-switch-3"
    surplus = Document(CLUSTER_NAMESPACE, name, {name: '{"oops'}, dict([CLUSTER_LABEL]))
    bench = WrittenPipeline(outputs={name: surplus})
    assert bench.outputs[name].data == {name: ""}
    assert len(bench.pipeline.unreadable) == 1
    stray = Document(CLUSTER_NAMESPACE, "cluster-info-switch-5", {}, dict([CLUSTER_LABEL]))
    assert bench.pipeline.adopt([stray]) == {"cluster-info-switch-5"}
    foreign = Document(CLUSTER_NAMESPACE, "somebody-elses", {}, dict([CLUSTER_LABEL]))
    assert bench.pipeline.adopt([foreign]) == frozenset()


def test_a_lost_node_is_unhealthy_and_keeps_its_faults() -> None:
    bench = WrittenPipeline(report("n1", healthy()), node_report("n1", [FAN], "Healthy"))
    assert bench.lose("n1", "n7") == {CLUSTER_NODE_NAME}
    assert bench.statuses() == {"n1": "UnHealthy", "n7": "UnHealthy"}
    assert bench.servers()["n1"]["FaultDevList"][0]["DeviceType"] == "Fan"
    assert bench.servers()["n7"]["FaultDevList"] is None
    assert bench.put(node_report("n1", [], "Healthy")) == {CLUSTER_NODE_NAME}
    assert bench.statuses()["n1"] == "UnHealthy"
    assert bench.lose() == {CLUSTER_NODE_NAME}
    assert bench.statuses() == {"n1": "Healthy"}


def test_a_lost_node_that_beats_again_is_left_out_although_a_store_is_away() -> None:
    pipeline = Pipeline(map(DocumentSource, ("here:", "away:")), touch_period_seconds=45)
    pipeline.restore_documents(())
    for watch in pipeline.sources[0].watches:
        pipeline.observe_event(watch, DocumentsListed(()), instant(0))
    for lost, nodes in ((frozenset({"n1"}), 1), (frozenset[str](), 0)):
        pipeline.set_lost(lost)
        pipeline.step(instant(1))
        assert pipeline.value(CLUSTER_NODE_NAME).nodes == nodes


def refused(node: str) -> Document:
    good = node_report(node, [], "Healthy")
    return Document(good.namespace, good.name, {"NodeInfo": "{"}, good.labels)


@pytest.mark.parametrize("restart", [False, True])
def test_a_lost_node_whose_node_info_is_refused_is_back_with_its_beat(restart: bool) -> None:
    bench = WrittenPipeline(refused("n1"))
    bench.lose("n1")
    assert bench.statuses() == {"n1": "UnHealthy"}
    if restart:
        bench = WrittenPipeline(refused("n1"), outputs=bench.outputs)
    bench.lose()
    assert bench.statuses() == {}


@pytest.mark.parametrize(("fault", "after"), [(FAN, {}), (CPU, {"n1": "UnHealthy"})])
def test_the_faults_of_a_lost_node_outlive_a_restart_with_a_refused_node_info(
    fault: FaultDevice, after: dict[str, str]
) -> None:
    bench = WrittenPipeline(node_report("n1", [fault], "UnHealthy" if fault is CPU else "Healthy"))
    bench.lose("n1")
    bench.put(refused("n1"))
    bench = WrittenPipeline(refused("n1"), outputs=bench.outputs)
    (device,) = bench.servers()["n1"]["FaultDevList"]
    assert (device["DeviceType"], bench.statuses()) == (fault.device_type, {"n1": "UnHealthy"})
    bench.lose()
    assert bench.statuses() == after
    bench.lose("n1")
    bench.delete(refused("n1"))
    assert bench.servers()["n1"]["FaultDevList"] is None


@pytest.mark.parametrize(
    ("data", "good"), [(healthy(T0 + 1), True), ({"DeviceInfoCfg": "{"}, False)]
)
@pytest.mark.parametrize("restart", [False, True])
def test_a_device_info_that_was_deleted_proves_nothing_through_the_next_one(
    data: dict[str, str], good: bool, restart: bool
) -> None:
    before, after = with_switch("n1", "Separate", "UnHealthy"), report("n1", data)
    bench = WrittenPipeline(before)
    if restart:
        bench = WrittenPipeline(before, outputs=bench.outputs)
    bench.pipeline.observe_event(bench.devices, Deleted(before.namespace, before.name), instant(1))
    bench.put(after, at=1)
    assert bench.switches()["n1"]["NodeStatus"] == "Healthy"
    bench.step(46)
    assert bench.outputs[SWITCHES].data == {SWITCHES: ""}
    assert ("n1" in published(bench.outputs[DEVICES].data[DEVICES])) is good


def test_the_next_run_restores_lost_nodes() -> None:
    bench = WrittenPipeline(
        node_report("n1", [FAN], "Healthy"), node_report("n2", [CPU], "UnHealthy")
    )
    bench.lose("n1", "n7")
    annotations = bench.outputs[CLUSTER_NODE_NAME].annotations
    assert annotations == {LOST_ANNOTATION: "n1,n7"}
    later = (node_report("n1", [FAN], "Healthy"), node_report("n2", [], "Healthy"))
    after = WrittenPipeline(*later, outputs=bench.outputs)
    assert after.pipeline.lost == {"n1", "n7"}
    assert after.statuses() == {"n1": "UnHealthy", "n2": "Healthy", "n7": "UnHealthy"}
    after.lose("n7")
    assert after.statuses() == {"n1": "Healthy", "n2": "Healthy", "n7": "UnHealthy"}
    after.lose()
    assert after.statuses() == {"n1": "Healthy", "n2": "Healthy"}
    assert after.outputs[CLUSTER_NODE_NAME].annotations == {}


@pytest.mark.parametrize(("chips", "status"), [((), "UnHealthy"), (("Ascend910-0",), "Healthy")])
def test_e16_pre_separated_nodes_and_switches_wait_until_they_are_unused(
    chips: tuple[str, ...], status: str
) -> None:
    nodes = (with_switch("n1", "PreSeparate", "PreSeparate"), node_report("n1", [CPU], "PreSep"))
    bench = WrittenPipeline(*nodes)
    assert bench.statuses() == {"n1": "PreSep"}  # nothing is known about pods
    assert bench.switches()["n1"]["NodeStatus"] == "PreSeparate"
    pods = {"u1": PodState("u1", "n1", chips=chips)} if chips else {}
    assert bench.known.observe_pods(0, Snapshot(pods)) is None
    bench.pipeline.judge_again(bench.pipeline.nodes)
    bench.step(0)
    assert bench.statuses() == {"n1": status}
    assert bench.switches()["n1"]["NodeStatus"] == status
    bench.pipeline.judge_again(bench.known.observe_pods(0, Update("u1", None)) or ())
    bench.step(0)
    assert bench.statuses() == {"n1": "UnHealthy"}
    assert bench.switches()["n1"]["NodeStatus"] == "UnHealthy"
