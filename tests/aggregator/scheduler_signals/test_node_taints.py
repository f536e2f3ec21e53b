"""Which taint a node is to have, who is first under the cap, and which tolerations count."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aggregator.config import NodeTaintsSection
from aggregator.scheduler_signals.driver_pods import KIND, DriverPods
from aggregator.scheduler_signals.node_evidence import NodeEvidence, NodeFault
from aggregator.scheduler_signals.node_taints import (
    TaintToleration,
    tolerates,
    wanted_taint,
)
from contract.kubernetes import decode_object
from stores.cluster import Snapshot, Update

CHIPS = frozenset({"Ascend910-0", "Ascend910-1"})
ALL, ANY = NodeTaintsSection(), NodeTaintsSection(chips="any")


def chip(number: int, level: str = "SeparateNPU", began_ms: int = 0) -> NodeFault:
    return NodeFault("chip", f"Ascend910-{number}", "80E01801", level, began_ms)


def node(*faults: NodeFault) -> NodeEvidence:
    return NodeEvidence(tuple(sorted(faults, key=lambda fault: fault.rank)), CHIPS)


def test_without_a_fault_there_is_no_taint() -> None:
    assert wanted_taint(node(), ALL) is None
    assert wanted_taint(node(chip(0, "SubHealthFault"), chip(1, "RestartNPU")), ALL) is None


def test_chips_count_when_all_are_out_or_any_by_option() -> None:
    assert wanted_taint(node(chip(0)), ALL) is None
    wanted = wanted_taint(node(chip(0)), ANY)
    assert wanted == ("SeparateNPU", "NoSchedule", frozenset({"Ascend910-0 80E01801"}), 0)
    both = wanted_taint(node(chip(0, began_ms=7), chip(1, "ManuallySeparateNPU", 5)), ALL)
    assert both is not None
    assert (both.value, both.began_ms, len(both.faults)) == ("ManuallySeparateNPU", 5, 2)


@pytest.mark.parametrize(
    "fault",
    [
        NodeFault("part", "CPU 0", "00000001", "SeparateFault"),
        NodeFault("link", "switch 0/1", "[0x1,2,na,na]", "Separate"),
    ],
)
def test_a_part_of_the_server_and_a_switch_concern_the_node(fault: NodeFault) -> None:
    wanted = wanted_taint(node(fault), ALL)
    assert wanted is not None
    assert wanted.value == fault.level


def test_the_default_never_evicts_and_no_execute_is_an_option() -> None:
    faults = (chip(0, "ManuallySeparateNPU"), chip(1, "ManuallySeparateNPU"))
    by_default = wanted_taint(node(*faults), ALL)
    assert by_default is not None
    assert by_default.effect == "NoSchedule"
    evicting = NodeTaintsSection(no_execute_levels=("ManuallySeparateNPU",))
    wanted = wanted_taint(node(*faults), evicting)
    assert wanted is not None
    assert wanted.effect == "NoExecute"
    milder = wanted_taint(node(chip(0, "ManuallySeparateNPU"), chip(1)), evicting)
    assert milder is not None
    assert milder.effect == "NoSchedule", "not all chips are at a level that evicts"


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "npu-vigil/fault", "operator": "Exists"}, True),
        ({"key": "npu-vigil/fault", "operator": "Exists", "effect": "NoExecute"}, True),
        ({"key": "npu-vigil/fault", "operator": "Exists", "effect": "NoSchedule"}, False),
        ({"key": "npu-vigil/fault", "value": "SeparateNPU"}, True),
        ({"key": "npu-vigil/fault", "operator": "Equal", "value": "Other"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"operator": "Exists", "tolerationSeconds": 300}, False),
    ],
)
def test_tolerations_count_as_for_a_kubelet(toleration: dict[str, Any], expected: bool) -> None:
    given_ = msgspec.convert(toleration, TaintToleration)
    assert tolerates([given_], "SeparateNPU", "NoExecute") is expected


def pod(**changes: Any) -> dict[str, Any]:
    spec = {
        "nodeName": "n1",
        "containers": [{"image": "ascend-k8sdeviceplugin:v7", "command": ["device-plugin"]}],
        "volumes": [{"hostPath": {"path": "/var/lib/kubelet/device-plugins"}}],
        "tolerations": [{"key": "huawei.com/npu", "operator": "Exists"}],
    }
    owner = {"kind": "DaemonSet", "name": "ascend-device-plugin", "uid": "u", "controller": True}
    metadata = {"name": "p", "namespace": "kube-system", "uid": "1", "ownerReferences": [owner]}
    labels = changes.pop("labels", {})
    return {"metadata": metadata | {"labels": labels}, "spec": spec | changes}


def is_read(item: dict[str, Any]) -> bool:
    return KIND.read(decode_object(msgspec.json.encode(item))) is not None


def test_pods_that_nodes_need_for_their_chips_are_found() -> None:
    assert is_read(pod())
    assert not is_read(pod(tolerations=[{"operator": "Exists"}])), "it tolerates everything"
    assert not is_read(pod(volumes=[])), "it registers nothing"
    other = [{"image": "nvidia/k8s-device-plugin"}]
    plain = pod(containers=other)
    plain["metadata"]["ownerReferences"][0]["name"] = "nvidia"
    assert not is_read(plain)
    waiting = pod()
    del waiting["spec"]["nodeName"]
    assert not is_read(waiting), "it is on no node yet"
    dra = pod(volumes=[{"hostPath": {"path": "/var/lib/kubelet/plugins_registry"}}])
    assert is_read(dra)
    job = pod()
    job["metadata"]["ownerReferences"][0]["kind"] = "Job"
    assert not is_read(job)
    labels = {"app.kubernetes.io/name": "npu-vigil", "app.kubernetes.io/component": "agent"}
    assert is_read(pod(volumes=[], labels=labels))


def test_the_vendors_dra_driver_is_named_with_a_patch_that_begins_the_list() -> None:
    """As in ``ascend-dra-driver.yaml`` of MindCluster: it has no toleration of its own."""
    item = pod(
        containers=[
            {"image": "ascend-dra:v0.1.0", "command": ["/bin/bash", "-c", "exec ascend-dra"]}
        ],
        volumes=[{"hostPath": {"path": "/var/lib/kubelet/plugins_registry"}}],
        tolerations=[{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}],
    )
    item["metadata"]["namespace"] = "ascend-dra-driver"
    item["metadata"]["ownerReferences"][0]["name"] = "ascend-dra-driver-kubeletplugin"
    read = KIND.read(decode_object(msgspec.json.encode(item)))
    assert read is not None
    assert read.patch == (
        "kubectl -n ascend-dra-driver patch daemonset ascend-dra-driver-kubeletplugin --type=json "
        '-p \'[{"op":"add","path":"/spec/template/spec/tolerations",'
        '"value":[{"key":"npu-vigil/fault","operator":"Exists"}]}]\''
    )


def test_a_pod_without_the_toleration_is_named_with_the_patch() -> None:
    changed: list[set[str]] = []
    pods = DriverPods(changed.append)
    read = KIND.read(decode_object(msgspec.json.encode(pod())))
    assert read is not None
    pods.apply_pod_event(Snapshot({"1": read}))
    assert changed == [set(), {"n1"}]
    assert pods.is_listed
    assert pods.lacking("n1", "SeparateNPU", "NoSchedule") == read
    assert pods.lacking("n2", "SeparateNPU", "NoSchedule") is None
    ((lacking, nodes),) = pods.daemon_sets()
    assert nodes == 1
    assert lacking.patch == (
        "kubectl -n kube-system patch daemonset ascend-device-plugin --type=json -p "
        '\'[{"op":"add","path":"/spec/template/spec/tolerations/-",'
        '"value":{"key":"npu-vigil/fault","operator":"Exists"}}]\''
    )
    bare = msgspec.structs.replace(read, tolerations=())
    assert '"/spec/template/spec/tolerations","value":[{' in bare.patch
    pods.apply_pod_event(Update("1", None))
    assert pods.lacking("n1", "SeparateNPU", "NoSchedule") is None
    assert list(pods.daemon_sets()) == []
