"""Devices of dynamic resource allocation and rules, as the API server has them."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from contract.documents.device_taints import (
    CHIP_ATTRIBUTES,
    ChipDevice,
    Device,
    DeviceEffect,
    DeviceSlice,
    DeviceUse,
    Eviction,
    TaintRule,
    add_claim,
    is_stricter,
    read_rule,
    rule_body,
    rule_name,
    slice_reader,
    weaker,
)
from contract.kubernetes import decode_object

DEVICE = Device("npu.huawei.com", "n1", "npu-3")
RULE = TaintRule(
    device=DEVICE,
    value="SeparateNPU",
    effect=DeviceEffect.NONE,
    node="n1",
    chip=3,
    name=rule_name(DEVICE),
)


def obj(**members: Any) -> Any:
    return decode_object(msgspec.json.encode({"metadata": {"name": "s1", "uid": "u1"}, **members}))


def a_slice(devices: list[dict[str, Any]], driver: str = "npu.huawei.com", **spec: Any) -> Any:
    pool = {"name": "n1", "generation": 7, "resourceSliceCount": 2}
    return obj(spec={"driver": driver, "pool": pool, "nodeName": "n1", "devices": devices, **spec})


def device(name: str, **attributes: Any) -> dict[str, Any]:
    return {"name": name, "attributes": attributes}


READ = slice_reader(CHIP_ATTRIBUTES)


def test_devices_of_a_slice_are_chips_by_the_attribute_of_their_driver() -> None:
    item = a_slice(
        [
            device("npu-0", physicId={"int": 0}),
            device("npu-1", **{"npu.huawei.com/physicId": {"int": 1}}),
            device("vnpu-1", physicId={"string": "1"}),
        ]
    )
    assert READ(item) == DeviceSlice(
        driver="npu.huawei.com",
        pool="n1",
        generation=7,
        slices=2,
        node="n1",
        devices=(ChipDevice("npu-0", 0), ChipDevice("npu-1", 1), ChipDevice("vnpu-1", 1)),
    )


def test_the_driver_of_hami_has_its_own_attribute() -> None:
    item = a_slice([device("npu-0", physicalID={"int": 4})], driver="ascend.project-hami.io")
    read = READ(item)
    assert read is not None
    assert read.devices == (ChipDevice("npu-0", 4),)


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"physicId": {"bool": True}},
        {"physicId": {"string": "x"}},
        {"physicId": {"int": -1}},
        {"physicId": {"string": "9" * 20}},
        {"other": {"int": 1}},
        {"example.com/physicId": {"int": 1}},
    ],
)
def test_a_device_without_a_valid_physical_id_is_left_out(attributes: dict[str, Any]) -> None:
    read = READ(a_slice([device("npu-0", **attributes)]))
    assert read is not None
    assert read.devices == ()


def test_a_device_without_a_node_is_left_out_and_its_own_node_counts() -> None:
    item = a_slice(
        [
            device("npu-0", physicId={"int": 0}) | {"nodeName": "n2"},
            device("npu-1", physicId={"int": 1}),
        ],
        nodeName=None,
    )
    read = READ(item)
    assert read is not None
    assert read.devices == (ChipDevice("npu-0", 0, "n2"),)


def test_slices_of_other_drivers_mean_nothing() -> None:
    assert READ(a_slice([device("gpu-0", physicId={"int": 0})], driver="gpu.nvidia.com")) is None


def test_slices_with_equal_devices_share_them() -> None:
    first = READ(a_slice([device("npu-0", physicId={"int": 0})]))
    second = READ(a_slice([device("npu-0", physicId={"int": 0})], nodeName="n2"))
    assert first is not None
    assert second is not None
    assert first.devices is second.devices


def test_a_slice_without_a_pool_cannot_be_read() -> None:
    with pytest.raises(ValueError, match="pool"):
        READ(obj(spec={"driver": "npu.huawei.com"}))


def stored(body: dict[str, Any], **status: Any) -> TaintRule | None:
    body["metadata"] |= {"uid": "u1", "resourceVersion": "5", "generation": 2}
    return read_rule(decode_object(msgspec.json.encode(body | {"status": status})))


def test_a_rule_is_read_as_it_was_written() -> None:
    body: Any = rule_body(RULE, "v1")
    assert body["apiVersion"] == "resource.k8s.io/v1"
    read = stored(body)
    assert read is not None
    assert read.content == RULE.content
    assert (read.uid, read.version, read.generation, read.eviction) == ("u1", "5", 2, None)
    again: Any = rule_body(read, "v1beta2")
    assert again["metadata"]["uid"] == "u1"
    assert again["metadata"]["resourceVersion"] == "5"


def test_the_number_of_evicted_pods_stays_with_the_rule() -> None:
    rule = msgspec.structs.replace(RULE, effect=DeviceEffect.NO_EXECUTE, evicted_pods=4)
    read = stored(dict(rule_body(rule, "v1beta2")))
    assert read is not None
    assert read.content == rule.content


@pytest.mark.parametrize(
    ("message", "pods"),
    [
        (
            "1 published device selected. 1 allocated device selected. 1 pod would be evicted in "
            "1 namespace if the effect was NoExecute.",
            1,
        ),
        ("2 published devices selected. 12 pods would be evicted in 2 different namespaces", 12),
        ("0 pods would be evicted in 0 different namespaces", 0),
        ("Eviction only happens for the NoExecute effect.", None),
        ("", None),
    ],
)
def test_the_controller_manager_answers_how_many_pods(message: str, pods: int | None) -> None:
    condition = {
        "type": "EvictionInProgress",
        "status": "False",
        "message": message,
        "observedGeneration": 2,
    }
    read = stored(dict(rule_body(RULE, "v1beta2")), conditions=[{"type": "Other"}, condition])
    assert read is not None
    assert read.eviction == Eviction(2, message, pods)


def test_what_others_changed_in_a_rule_is_seen() -> None:
    body: Any = rule_body(RULE, "v1beta2")
    body["spec"] = {"taint": {"key": "x", "effect": "NoExecuteLater"}}
    body["metadata"]["annotations"] = {"npu-vigil/chip": "x"}
    read = stored(body)
    assert read is not None
    assert (read.key, read.effect, read.device) == ("x", DeviceEffect.NONE, Device("", "", ""))
    assert (read.node, read.chip) == ("", -1)


def test_rules_of_others_mean_nothing() -> None:
    body: Any = rule_body(RULE, "v1beta2")
    body["metadata"]["name"] = "maintenance"
    assert stored(body) is None
    for labels in ({}, {"app.kubernetes.io/managed-by": "site"}):
        body = rule_body(RULE, "v1beta2")
        body["metadata"]["labels"] = labels
        assert stored(body) is None


def test_names_of_rules_differ_by_pool_and_are_valid() -> None:
    other = rule_name(DEVICE._replace(pool="n2"))
    assert RULE.name != other
    assert len(rule_name(DEVICE._replace(name="a" * 63))) < 253


def test_effects_have_an_order() -> None:
    order = [DeviceEffect.NONE, DeviceEffect.NO_SCHEDULE, DeviceEffect.NO_EXECUTE]
    for mild, strict in itertools.pairwise(order):
        assert is_stricter(strict, mild)
        assert not is_stricter(mild, strict)
        assert weaker(strict, mild) is weaker(mild, strict) is mild
    assert not is_stricter(order[0], order[0])


def a_claim(
    pods: list[str],
    devices: list[str],
    tolerations: list[dict[str, Any]] | None = None,
    driver: str = "npu.huawei.com",
) -> Any:
    results = [
        {"driver": driver, "pool": "n1", "device": name, "tolerations": tolerations}
        for name in devices
    ]
    reserved = [{"resource": "pods", "name": uid, "uid": uid} for uid in pods]
    return obj(status={"allocation": {"devices": {"results": results}}, "reservedFor": reserved})


def counted(*claims: Any) -> tuple[int, int]:
    use = DeviceUse(set(), {DEVICE: set()})
    for claim in claims:
        add_claim(use, claim, frozenset(CHIP_ATTRIBUTES))
    return len(use.pods), len(use.evictable[DEVICE])


def test_pods_are_counted_by_the_devices_of_their_claims() -> None:
    assert counted(
        a_claim(["a", "b"], ["npu-3", "npu-4"]),
        a_claim(["b", "c"], ["npu-3"]),
        a_claim(["d"], ["npu-5"]),
        a_claim(["e"], ["npu-3"], driver="gpu.nvidia.com"),
        obj(status={"reservedFor": [{"resource": "pods", "uid": "f"}]}),
        obj(),
    ) == (4, 3)


@pytest.mark.parametrize(
    ("toleration", "stays"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "npu-vigil/fault", "operator": "Exists"}, True),
        # Shown with the real controller in tests/node/real_scheduling.py.
        ({"key": "npu-vigil/fault", "operator": "Exists", "effect": ""}, False),
        ({"key": "npu-vigil/fault", "operator": "Exists", "effect": "NoSchedule"}, False),
        ({"key": "npu-vigil/fault", "operator": "Exists", "tolerationSeconds": 30}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "npu-vigil/fault", "operator": "Equal", "value": "SeparateNPU"}, False),
    ],
)
def test_a_pod_that_tolerates_the_taint_for_ever_is_not_evicted(
    toleration: dict[str, Any], stays: bool
) -> None:
    toleration = {"effect": "NoExecute", **toleration}
    assert counted(a_claim(["a"], ["npu-3"], [toleration])) == (1, 0 if stays else 1)
