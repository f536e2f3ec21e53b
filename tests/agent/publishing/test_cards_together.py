"""Duo cards reset as one: both dies are unhealthy when one is (EX-41, device-plugin#V7)."""

from __future__ import annotations

import json

import pytest

from agent.publishing.chip_lists import render
from contract.codes.families import FAMILIES
from contract.documents.device_info import encode, verify_published
from contract.observation import Assertion
from dcmi_shim.values import Chip, Inventory
from tests.agent.policy.builders import T, after, healthy, seen

OCCUR = Assertion.OCCUR
FAULT, MINOR = "80E3A201", "80E21007"
DUO = tuple(Chip(number, number, number // 2, number % 2) for number in range(4))


def document(*faults: tuple[int, str], family: str = "Ascend310P", together: bool = True) -> dict:  # type: ignore[type-arg]
    """The device list of two cards with these faults, by chip."""
    state = after(healthy(4), [seen(OCCUR, code, chip) for chip, code in faults])
    inventory = Inventory(DUO, family, "310P3", None, None, None, "test")
    info = render(state, inventory, T // 1000, cards_together=together)
    data = encode(info, FAMILIES[family])
    verify_published(data, "test")
    devices = json.loads(data["DeviceInfoCfg"])["DeviceInfo"]["DeviceList"]
    assert isinstance(devices, dict)
    return devices


@pytest.mark.parametrize("faulty", [0, 1])
def test_the_clean_die_of_a_faulty_card_is_unhealthy_too(faulty: int) -> None:
    devices = document((faulty, FAULT))
    assert devices["huawei.com/Ascend310P"] == "Ascend310P-2,Ascend310P-3"
    assert devices["huawei.com/Ascend310P-Unhealthy"] == "Ascend310P-0,Ascend310P-1"
    entries = json.loads(devices["huawei.com/Ascend310P-Fault"])
    assert [entry["npu_name"] for entry in entries] == ["Ascend310P-0", "Ascend310P-1"]
    assert entries[1 - faulty] == {
        "fault_type": "CardUnhealthy",
        "npu_name": f"Ascend310P-{1 - faulty}",
        "large_model_fault_level": "NormalNPU",
        "fault_level": "NormalNPU",
        "fault_handling": "NormalNPU",
        "fault_code": "",
        "fault_time_and_level_map": {},
    }
    assert entries[faulty]["fault_code"] == FAULT


def test_a_die_with_a_harmless_code_keeps_its_entry() -> None:
    devices = document((0, FAULT), (1, MINOR))
    assert devices["huawei.com/Ascend310P-Unhealthy"] == "Ascend310P-0,Ascend310P-1"
    entries = json.loads(devices["huawei.com/Ascend310P-Fault"])
    assert [entry["fault_code"] for entry in entries] == [FAULT, MINOR]
    assert entries[1]["fault_level"] == "NotHandleFault"


def test_harmless_codes_take_no_chip_along() -> None:
    assert document((0, MINOR))["huawei.com/Ascend310P-Unhealthy"] == ""


def test_without_the_setting_and_on_other_cards_each_die_counts_for_itself() -> None:
    off = document((0, FAULT), together=False)
    assert off["huawei.com/Ascend310P-Unhealthy"] == "Ascend310P-0"
    a3 = document((0, FAULT), family="Ascend910A3")
    assert a3["huawei.com/Ascend910-Unhealthy"] == "Ascend910-0"
