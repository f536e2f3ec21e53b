"""Worked examples of the Device Plugin that have no line in ``device-plugin#8.4``."""

from __future__ import annotations

import json

from agent.publishing.chip_lists import render
from contract.codes.families import FAMILIES
from contract.documents.device_info import encode, encode_faults
from contract.observation import Assertion
from tests.agent.policy.builders import T, after, healthy, inventory, seen
from tests.compatibility import check, different
from tests.vectors import VECTORS

OCCUR, RECOVER, PRESENT = Assertion.OCCUR, Assertion.RECOVER, Assertion.PRESENT
STAMP = 1_700_000_100
CODE = "80E18005"


def test_ex_01_healthy_chips_to_the_byte() -> None:
    data = encode(render(healthy(), inventory(), STAMP), FAMILIES["Ascend910B"])
    lines = (VECTORS / "device-plugin/full-documents.txt").read_text().splitlines()
    assert f"V1 {data['DeviceInfoCfg']}" in lines
    assert data["ManuallySeparateNPU"] == ""
    assert data["UpgradeFaultReason"] == "{}"


def test_ex_11_the_same_occurrence_twice_counts_once() -> None:
    """Upstream stores it twice, and counts two occurrences (device-plugin#2.4)."""
    state = after(healthy(), [seen(OCCUR, CODE), seen(OCCUR, CODE)])
    (fault,) = render(state, inventory(), STAMP).faults
    assert fault.fault_code == CODE
    assert state.chips[0].counters[CODE].occurred_ms == (T,)
    state = after(state, [seen(RECOVER, CODE, at=T + 1_000)], T + 1_000)
    assert render(state, inventory(), STAMP).faults == ()


def test_ex_12_a_recovery_that_the_driver_contradicts_changes_nothing_in_the_end() -> None:
    """Upstream asks the driver first; ours applies the event, and the audit 2 s later (K10)."""
    state = after(healthy(), [seen(OCCUR, CODE)])
    before = render(state, inventory(), STAMP)
    state = after(state, [seen(RECOVER, CODE, at=T + 2_000)], T + 2_000)
    state = after(state, [seen(PRESENT, CODE, at=T + 4_000)], T + 4_000)
    assert render(state, inventory(), STAMP) == before, "with its first time"
    assert state.chips[0].counters[CODE].occurred_ms == (T,), "it is the same occurrence"


def test_ex_38_codes_that_a_310p_lists() -> None:
    listed = [seen(PRESENT, "80AB7777"), seen(PRESENT, "80E3A201", at=T + 1)]
    info = render(after(healthy(), listed), inventory(family="Ascend310P"), STAMP)
    assert info.unhealthy == ("Ascend310P-0",)
    (fault,) = json.loads(encode_faults(info.faults))
    levels = {c: entry["fault_level"] for c, entry in fault["fault_time_and_level_map"].items()}
    upstream = {
        "entry": "SeparateNPU",
        "codes": {"80AB7777": "NotHandleFault", "80E3A201": "SeparateNPU"},
    }
    ours = {"entry": fault["fault_level"], "codes": levels}
    check("device-plugin/EX-38", different(upstream, ours))


def test_ex_45_names_are_in_the_order_of_their_letters() -> None:
    info = render(healthy(12), inventory(12), STAMP)
    numbers = (0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9)
    assert info.free == tuple(f"Ascend910-{number}" for number in numbers)
    assert ",".join(info.free) in encode(info, FAMILIES["Ascend910B"])["DeviceInfoCfg"]


def test_ex_54_a_chip_without_codes_is_healthy_and_in_no_fault_list() -> None:
    info = render(healthy(1), inventory(1), STAMP)
    assert info.free == ("Ascend910-0",)
    assert (info.unhealthy, info.network_unhealthy, info.faults) == ((), (), ())
