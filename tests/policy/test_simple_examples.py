"""Worked examples of single chips: lists, repeated events, polls and the order of names."""

from __future__ import annotations

import json

from agent.render import render
from contract.device_info import encode, encode_faults
from contract.families import FAMILIES
from contract.observation import Assertion
from tests.compatibility import check, different
from tests.policy.builders import T, after, healthy, inventory, seen
from tests.vectors import VECTORS

OCCUR, RECOVER, PRESENT = Assertion.OCCUR, Assertion.RECOVER, Assertion.PRESENT
COUNTED = "80E18005"
"""Three occurrences a day isolate its chip."""


def test_clean_chips() -> None:
    """EX-01, to the byte."""
    data = encode(render(healthy(), inventory(), 1700000100), FAMILIES["Ascend910B"])
    lines = (VECTORS / "device-plugin/full-documents.txt").read_text().splitlines()
    assert f"V1 {data['DeviceInfoCfg']}" in lines
    assert data["ManuallySeparateNPU"] == ""
    assert data["UpgradeFaultReason"] == "{}"


def test_an_event_twice_is_one_fault_and_one_occurrence() -> None:
    """EX-11; upstream counts two for the frequency rule."""
    twice = [seen(OCCUR, COUNTED, serial=1, raised=T), seen(OCCUR, COUNTED, serial=1, raised=T)]
    state = after(healthy(), twice)
    (fault,) = render(state, inventory(), 1).faults
    counted = len(state.chips[0].counters[COUNTED].occurred_ms)
    state = after(state, [seen(RECOVER, COUNTED, at=T + 1000, serial=1, raised=T + 1000)])
    check(
        "device-plugin/EX-11",
        different(
            {"codes": COUNTED, "occurrences": 2, "after one recovery": []},
            {
                "codes": fault.fault_code,
                "occurrences": counted,
                "after one recovery": json.loads(
                    encode_faults(render(state, inventory(), 1).faults)
                ),
            },
        ),
    )


def test_a_recovery_of_a_code_that_is_still_listed_is_none() -> None:
    """EX-12; upstream asks the driver first, ours finds out by the audit that follows."""
    state = after(healthy(), [seen(OCCUR, COUNTED)])
    before = render(state, inventory(), 1)
    state = after(state, [seen(RECOVER, COUNTED, at=T + 1000)])
    state = after(state, [seen(PRESENT, COUNTED, at=T + 3000)])
    assert render(state, inventory(), 1) == before
    assert len(state.chips[0].counters[COUNTED].occurred_ms) == 1


def test_an_unknown_code_that_a_poll_finds() -> None:
    """EX-38 on a 310P, which has no events."""
    state = after(healthy(), [seen(PRESENT, "80AB7777"), seen(PRESENT, "80E3A201")])
    info = render(state, inventory(family="Ascend310P"), 1)
    (fault,) = info.faults
    times = fault.fault_time_and_level_map or {}
    found = {
        "level": str(fault.fault_level),
        "codes": {code: str(entry.fault_level) for code, entry in times.items()},
        "unhealthy": list(info.unhealthy),
    }
    upstream = {
        "level": "SeparateNPU",
        "codes": {"80AB7777": "NotHandleFault", "80E3A201": "SeparateNPU"},
        "unhealthy": ["Ascend310P-0"],
    }
    check("device-plugin/EX-38", different(upstream, found))


def test_names_are_in_the_order_of_their_bytes() -> None:
    """EX-45: twelve chips."""
    info = render(healthy(12), inventory(12), 1)
    devices = json.loads(encode(info, FAMILIES["Ascend910B"])["DeviceInfoCfg"])["DeviceInfo"]
    numbers = (0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9)
    names = ",".join(f"Ascend910-{number}" for number in numbers)
    assert devices["DeviceList"]["huawei.com/Ascend910"] == names


def test_no_codes_and_no_upgrade() -> None:
    """EX-54."""
    state = after(healthy(), [seen(OCCUR, COUNTED), seen(RECOVER, COUNTED, at=T + 1000)])
    assert state.chips[0].level == "NormalNPU"
    info = render(state, inventory(), 1)
    assert info.faults == ()
    assert info.unhealthy == info.network_unhealthy == ()
