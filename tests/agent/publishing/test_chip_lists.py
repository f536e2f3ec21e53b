"""Lists, health and identity in the document."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from agent.chip_allocation import ChipAllocation
from agent.policy.state import PolicyState
from agent.publishing.chip_lists import render
from contract.codes.chip_codes import LINK_DOWN, UBOE_PRE_SEPARATE, UBOE_SUB_HEALTH
from contract.codes.families import FAMILIES
from contract.documents.device_info import encode, verify_published
from contract.errors import DriverError
from contract.observation import Assertion, SourceBlind, chip_subject
from dcmi_shim.values import Chip, SuperPod
from tests.agent.policy.builders import SOURCE, T, after, answered, healthy, inventory, seen

OCCUR = Assertion.OCCUR
LEVELS = {
    "NotHandleFault": ("80E21007", True),
    "SubHealthFault": ("80818C06", True),
    "RestartRequest": ("80C98009", False),
    "RestartBusiness": ("8C204E00", False),
    "FreeRestartNPU": ("8C044E00", False),
    "RestartNPU": ("80CF8000", False),
    "PreSeparateNPU": ("8118043C", False),
    "SeparateNPU": ("80E3A201", False),
}


@pytest.mark.parametrize("level", LEVELS)
def test_health_of_each_level(level: str) -> None:
    code, free = LEVELS[level]
    info = render(after(healthy(), [seen(OCCUR, code)]), inventory(), 1)
    assert info.faults[0].fault_level == level
    assert ("Ascend910-0" in info.free, "Ascend910-0" in info.unhealthy) == (free, not free)
    assert "Ascend910-1" in info.free


@pytest.mark.parametrize("level", LEVELS)
def test_used_chip_is_not_free_and_only_pre_separation_spares_it(level: str) -> None:
    code, healthy_when_idle = LEVELS[level]
    state = after(healthy(), [seen(OCCUR, code)])
    info = render(state, inventory(), 1, ChipAllocation(frozenset({"Ascend910-0"})))
    assert info.free == ("Ascend910-1",)
    spared = healthy_when_idle or level == "PreSeparateNPU"
    assert ("Ascend910-0" in info.unhealthy) is not spared


@pytest.mark.parametrize(
    ("code", "unhealthy"),
    [(LINK_DOWN, False), (UBOE_SUB_HEALTH, True), (UBOE_PRE_SEPARATE, True)],
)
def test_network_health_is_distinguished_from_the_chip(code: str, unhealthy: bool) -> None:
    info = render(after(healthy(), [seen(OCCUR, code)]), inventory(), 1)
    assert [fault.fault_type for fault in info.faults] == ["CardNetworkUnhealthy"]
    assert info.network_unhealthy == (("Ascend910-0",) if unhealthy else ())
    assert (info.free, info.unhealthy) == (("Ascend910-0", "Ascend910-1"), ())


def test_chip_that_never_answered_is_in_no_list() -> None:
    state = after(PolicyState("node-1", "boot"), answered(0))
    info = render(state, inventory(3), 1)
    assert (info.free, info.unhealthy, info.faults) == (("Ascend910-0",), (), ())


def test_fault_of_a_chip_that_never_answered_is_reported() -> None:
    state = after(PolicyState("node-1", "boot"), [seen(Assertion.PRESENT, "40F84E00", 1)])
    info = render(state, inventory(), 1)
    assert (info.free, info.unhealthy) == ((), ("Ascend910-1",))
    mild = after(PolicyState("node-1", "boot"), [seen(OCCUR, "80E21007", 1)])
    info = render(mild, inventory(), 1)
    assert (info.free, info.unhealthy, len(info.faults)) == ((), (), 1)


def test_blind_chip_keeps_its_last_state() -> None:
    state = after(healthy(), [seen(OCCUR, "80E3A201")])
    before = render(state, inventory(), 1)
    blind = [SourceBlind(SOURCE, chip_subject(chip), T, "hangs") for chip in (0, 1)]
    assert render(after(state, blind), inventory(), 1) == before


def test_order_of_entries_is_by_logic_id_with_the_network_first() -> None:
    chips = tuple(Chip(physical, 11 - physical, 0, 0) for physical in range(12))
    state = after(
        healthy(12),
        [seen(OCCUR, code, chip) for code in ("80E3A201", LINK_DOWN) for chip in (2, 10)],
    )
    info = render(state, replace(inventory(), chips=chips), 1)
    assert [(fault.npu_name, fault.fault_type) for fault in info.faults] == [
        ("Ascend910-10", "CardNetworkUnhealthy"),
        ("Ascend910-10", "CardUnhealthy"),
        ("Ascend910-2", "CardNetworkUnhealthy"),
        ("Ascend910-2", "CardUnhealthy"),
    ]
    data = encode(info, FAMILIES["Ascend910B"])
    devices = json.loads(data["DeviceInfoCfg"])["DeviceInfo"]["DeviceList"]
    assert devices["huawei.com/Ascend910-Unhealthy"] == "Ascend910-10,Ascend910-2"
    assert devices["huawei.com/Ascend910"].startswith("Ascend910-0,Ascend910-1,Ascend910-11,")


def test_codes_are_in_order_of_arrival() -> None:
    state = after(
        healthy(),
        [
            seen(OCCUR, "80E3A201", at=T),
            seen(OCCUR, "80818C06", at=T + 1),
            seen(Assertion.RECOVER, "80E3A201", at=T + 2),
            seen(Assertion.PRESENT, "80E3A201", at=T + 3),
        ],
    )
    (fault,) = render(state, inventory(), 1).faults
    assert fault.fault_code == "80E3A201,80818C06"
    assert fault.fault_level == fault.fault_handling == fault.large_model_fault_level


NO_SUPER_POD = SuperPod(None, None, None, None, None, None)


@pytest.mark.parametrize(
    ("family", "super_pod", "ids"),
    [
        ("Ascend910B", None, (-2, -2, 0)),
        ("Ascend910A3", NO_SUPER_POD, (-1, -1, 0)),
        ("Ascend910A3", replace(NO_SUPER_POD, super_pod_id=0, server_index=0), (0, 0, 0)),
        ("Ascend910A3", replace(NO_SUPER_POD, super_pod_id=2**31, chassis_id=3), (-(2**31), -1, 0)),
        (
            "Ascend910A5",
            SuperPod(0, 1, super_pod_id=7, server_index=2, chassis_id=3, super_pod_type=1),
            (7, 2, 3),
        ),
        (
            "Ascend910A5",
            SuperPod(0, 1, super_pod_id=7, server_index=2, chassis_id=3, super_pod_type=0),
            (7, 2, 0),
        ),
    ],
)
def test_super_pod_identity(
    family: str, super_pod: SuperPod | None, ids: tuple[int, int, int]
) -> None:
    info = render(healthy(), replace(inventory(2, family), super_pod=super_pod), 1)
    assert (info.super_pod_id, info.server_index, info.rack_id) == ids


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_reads_its_own_document(family: str) -> None:
    state = after(healthy(), [seen(OCCUR, "80E3A201"), seen(OCCUR, "80E21007", 1)])
    info = render(state, inventory(2, family), 7)
    data = encode(info, FAMILIES[family])
    assert verify_published(data, "node-1") == info
    assert ("SwitchInfoCfg" in data) == (family in ("Ascend910A3", "Ascend910A5"))


def test_unknown_family_is_refused() -> None:
    with pytest.raises(DriverError, match="'Ascend1000'"):
        render(healthy(), inventory(2, "Ascend1000"), 1)
