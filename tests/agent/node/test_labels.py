"""Which labels and annotations a Node deserves (``docs/spec/device-plugin.md#6.2``, 6.3)."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from agent.node.labels import addresses_in, desired_labels
from dcmi_shim.values import NodeFacts, SuperPod
from stores.base import NodeObject
from tests.agent.policy.builders import POD, inventory_of


@pytest.mark.parametrize(
    ("family", "name", "labels", "server_type"),
    [
        (
            "Ascend910",
            "910A",
            {"accelerator": "huawei-Ascend910", "mind-cluster/npu-chip-memory": "32G"},
            "Ascend910-20",
        ),
        (
            "Ascend910B",
            "910B3",
            {"accelerator": "huawei-Ascend910", "mind-cluster/npu-chip-memory": "32G"},
            "Ascend910B-20",
        ),
        ("Ascend310P", "310P3", {"accelerator": "huawei-Ascend310P"}, "Ascend310P-20"),
        ("Ascend310", "310", {"accelerator": "huawei-Ascend310"}, "Ascend310-20"),
        ("Ascend310B", "310B", {}, "Ascend310B-20"),
    ],
)
def test_families(family: str, name: str, labels: dict[str, str], server_type: str) -> None:
    memory = 32768 if family.startswith("Ascend910") else None
    got = desired_labels(inventory_of(family, name), NodeFacts(aicores=20, memory_mb=memory), {})
    assert got.labels == labels | {
        "node.kubernetes.io/npu.chip.name": name,
        "huawei.com/driver.version": "24.1.rc3",
    }
    assert got.server_type == server_type
    assert got.refused == {}


def test_an_a5_has_its_own_words() -> None:
    a5 = replace(inventory_of("Ascend910A5", "Ascend950PR", 0x1C), super_pod=POD)
    facts = NodeFacts(aicores=30, memory_mb=131072, main_board=0x6C, super_devices={0: 7, 1: None})
    got = desired_labels(a5, facts, {1: "10.0.0.1"})
    assert got.server_type is None
    assert got.labels == {
        "node.kubernetes.io/npu.chip.name": "Ascend950PR",
        "servertype": "npu-30",
        "huawei.com/driver.version": "24.1.rc3",
        "mind-cluster/npu-chip-memory": "128G",
        "accelerator": "huawei-npu",
        "huawei.com/topotree.superpodid": "3",
        "huawei.com/topotree.serverid": "5",
        "huawei.com/topotree.rackid": "9",
    }
    devices = json.loads(got.annotations.pop("baseDeviceInfos"))
    assert devices == {
        "npu-0": {"DeviceID": 0, "IP": "", "SuperDeviceID": 7},
        "npu-1": {"DeviceID": 1, "IP": "10.0.0.1", "SuperDeviceID": 0xFFFFFFFF},
    }
    assert got.annotations == {
        "superPodID": "3",
        "serverIndex": "5",
        "serverType": "npu",
        "rackID": "9",
        "cardType": "300I-Atlas350-4p",
    }


@pytest.mark.parametrize(
    ("board", "main_board", "card"),
    [
        (0x1A, 0x68, "300I-Atlas350"),
        (0x1C, 0x6C, "300I-Atlas350-4p"),
        (0x1D, 0x68, None),
        (0x19, 0x6C, None),
        (None, 0x68, None),
        (0x1B, 0x23, None),
        (0x1B, None, None),
    ],
)
def test_card_type_of_an_a5_is_named_by_its_main_board(
    board: int | None, main_board: int | None, card: str | None
) -> None:
    a5 = replace(inventory_of("Ascend910A5", "Ascend950PR"), board_id=board)
    assert (
        desired_labels(a5, NodeFacts(main_board=main_board), {}).annotations.get("cardType") == card
    )


def test_ids_that_the_driver_calls_invalid_make_no_label() -> None:
    """K45: upstream's check for a negative rack never holds."""
    pod = SuperPod(None, None, None, None, None, 1)
    got = desired_labels(
        replace(inventory_of("Ascend910A5", "Ascend950"), super_pod=pod), NodeFacts(), {}
    )
    assert not [label for label in got.labels if "topotree" in label]
    assert got.annotations["superPodID"] == "-1"


def test_unknown_facts_give_no_label() -> None:
    nothing = replace(inventory_of("Ascend910B", "910B3"), driver_version=None)
    got = desired_labels(nothing, NodeFacts(), {})
    assert set(got.labels) == {"accelerator", "node.kubernetes.io/npu.chip.name"}
    assert got.server_type is None


@pytest.mark.parametrize(
    ("products", "label"),
    [
        (("Atlas 300I Duo", "Atlas 300I Duo"), "card-300i-duo"),
        (("Atlas 300I Duo", "Atlas 300I Pro"), None),
        (("Atlas 300I Duo", ""), None),
        ((), None),
    ],
)
def test_inference_cards_of_one_kind_have_a_label(
    products: tuple[str, ...], label: str | None
) -> None:
    got = desired_labels(inventory_of("Ascend310P", "310P3"), NodeFacts(products=products), {})
    assert got.labels.get("infer-card-type") == label


@pytest.mark.parametrize(("board", "label"), [(0x28, "card-910b-infer"), (0x32, None)])
def test_inference_boards_have_a_label(board: int, label: str | None) -> None:
    got = desired_labels(inventory_of("Ascend910B", "910B4", board), NodeFacts(), {})
    assert got.labels.get("accelerator-type") == label


@pytest.mark.parametrize("value", ["24.1 rc3", "-24", "24.1_", "x" * 64, "24/1", "ä"])
def test_a_label_that_kubernetes_would_refuse_is_left_out(value: str) -> None:
    """K29: upstream lets it pass, and then no label at all is written."""
    got = desired_labels(
        replace(inventory_of("Ascend910B", "910B3"), driver_version=value), NodeFacts(), {}
    )
    assert got.refused == {"huawei.com/driver.version": value}
    assert "huawei.com/driver.version" not in got.labels
    assert got.labels["accelerator"] == "huawei-Ascend910"


def test_a_node_with_virtual_devices_has_no_list_of_chips() -> None:
    cut = replace(inventory_of("Ascend910B", "910B3"), virtual=(1,))
    assert "baseDeviceInfos" not in desired_labels(cut, NodeFacts(), {}).annotations


def test_addresses_are_read_back() -> None:
    a2 = inventory_of("Ascend910B", "910B3")
    devices = desired_labels(a2, NodeFacts(), {1: "10.0.0.1"}).annotations
    assert addresses_in(NodeObject({}, devices), a2) == {1: "10.0.0.1"}
    for text in ("", "[]", "{", '{"Ascend910-1":{"IP":7}}', '{"Ascend910-9":{"IP":"1"}}'):
        assert addresses_in(NodeObject({}, {"baseDeviceInfos": text}), a2) == {}
