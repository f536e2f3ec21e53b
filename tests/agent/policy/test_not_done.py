"""What this agent does not do, and does not pretend to do (``docs/compatibility.md``)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

import dcmi_shim
from agent.policy.step import step
from agent.publishing.chip_lists import render
from contract.codes.catalogue import shipped
from contract.codes.chip_codes import RESET_FINISHED
from contract.codes.families import FAMILIES
from contract.codes.levels import ChipLevel
from contract.codes.policies import FrequencyPolicy
from contract.documents.device_info import encode
from contract.observation import Assertion
from dcmi_shim.values import Chip
from tests.agent.policy.builders import T, after, healthy, inventory, seen

if TYPE_CHECKING:
    from contract.documents.device_info import DeviceInfo

OCCUR, RECOVER = Assertion.OCCUR, Assertion.RECOVER
RESTART_NPU = "80CF8000"
DAY_MS = 86_400_000


def test_nothing_is_ever_reset() -> None:
    shim = Path(dcmi_shim.__file__).parent
    asked = re.compile(r"\"dcmi\w*reset\w*\"")
    callers = [file.name for file in shim.rglob("*.py") if asked.search(file.read_text())]
    assert callers == ["abi.py"], "the library has such functions, and nobody calls them"


def test_a_chip_that_wants_a_reset_waits_for_its_recovery() -> None:
    ill = after(healthy(), [seen(OCCUR, RESTART_NPU)])
    assert after(ill, [], T + DAY_MS) == ill
    info = render(ill, inventory(), 1)
    assert (info.unhealthy, info.recovering) == (("Ascend910-0",), ())
    well = after(ill, [seen(RECOVER, RESTART_NPU, at=T + DAY_MS)], T + DAY_MS)
    assert render(well, inventory(), 1).free == ("Ascend910-0", "Ascend910-1")


def duo(*codes: str) -> DeviceInfo:
    """Return device-info of two chips of one card; the second chip has the codes."""
    state = after(healthy(), [seen(OCCUR, code, chip=1) for code in codes])
    chips = (Chip(0, 0, 0, 0), Chip(1, 1, 0, 1))
    return render(state, replace(inventory(2, "Ascend310P"), chips=chips), 1)


def test_ex_41_a_chip_is_unhealthy_for_its_own_faults() -> None:
    info = duo("80E18005")
    assert (info.free, info.unhealthy) == (("Ascend310P-0",), ("Ascend310P-1",))
    assert [fault.npu_name for fault in info.faults] == ["Ascend310P-1"]


def test_ex_39_one_event_counts_once_and_is_of_one_device() -> None:
    code = "80E18005"
    three_times = FrequencyPolicy(86_400, 3, ChipLevel.MANUALLY_SEPARATE_NPU, None)
    tables = replace(shipped(), frequencies={code: three_times})
    state, begun = step(healthy(), [seen(Assertion.ONCE, code)], T, tables)
    assert len(begun) == 1
    assert state.chips[0].upgrades == ()
    info = render(state, inventory(2, "Ascend310P"), 1)
    assert [fault.npu_name for fault in info.faults] == ["Ascend310P-0"]
    assert info.manually_separated == ""


@pytest.mark.parametrize("family", FAMILIES)
def test_ex_49_and_50_names_are_the_vendors_and_the_same_state_is_the_same_document(
    family: str,
) -> None:
    state = after(healthy(), [seen(OCCUR, "80E18005")])
    info = render(state, inventory(2, family), 1)
    assert render(state, inventory(2, family), 1) == info, "nothing to write"
    kind = FAMILIES[family].device_type
    assert kind in ("Ascend910", "npu", "Ascend310P", "Ascend310"), "no davinci-mini"
    assert info.unhealthy == (f"{kind}-0",)
    assert (
        f'"huawei.com/{kind}-Unhealthy":"{kind}-0"'
        in encode(info, FAMILIES[family])["DeviceInfoCfg"]
    )


def test_a_chip_that_recovered_is_free_without_an_operator() -> None:
    ill = after(healthy(), [seen(OCCUR, RESTART_NPU)])
    well = after(ill, [seen(RECOVER, RESTART_NPU, at=T + 1)], T + 1)
    assert render(well, inventory(), 1).free == ("Ascend910-0", "Ascend910-1")


def test_a_finished_reset_is_no_fault() -> None:
    taken = after(healthy(), [seen(Assertion.ONCE, RESET_FINISHED)])
    assert render(taken, inventory(), 1).faults == ()
