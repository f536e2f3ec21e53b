"""The worked examples of the device plugin's specification, from reports to the document."""

from __future__ import annotations

import pytest

from agent.policy.state import Acknowledged
from agent.policy.step import ONCE_VISIBLE_MS
from agent.publishing.chip_lists import render
from contract.codes.families import FAMILIES
from contract.codes.levels import Severity
from contract.documents.device_info import encode, verify_published
from contract.observation import Assertion, Report
from tests.agent.policy.builders import T, after, healthy, inventory, seen
from tests.agent.policy.worked_examples import EXAMPLES, judge
from tests.vectors import VECTORS

OCCUR, RECOVER, ONCE = Assertion.OCCUR, Assertion.RECOVER, Assertion.ONCE
EX_03: list[Report] = [seen(OCCUR, "80C98008"), seen(OCCUR, "80CD8008", at=T + 1)]
REPORTS: dict[str, list[Report]] = {
    "EX-02": [seen(OCCUR, "80E3A201", at=T + 123)],
    "EX-03": EX_03,
    "EX-04": [*EX_03, seen(RECOVER, "80CD8008", at=T + 2)],
    "EX-05": [seen(OCCUR, "81078603", 1), seen(OCCUR, "8C204E00", 1, at=T + 10)],
    "EX-06": [seen(OCCUR, "80ABCDEF", severity=Severity.MAJOR)],
    "EX-07": [seen(OCCUR, "80ABCD00", 1, severity=Severity.MINOR)],
    "EX-08": [seen(Assertion.PRESENT, "80AB9999")],
    "EX-09": [seen(OCCUR, "80ABCDEF", severity=Severity.MAJOR), seen(OCCUR, "80E21007")],
    "EX-10": [seen(ONCE, "8C204E00")],
    "EX-33": [seen(Assertion.PRESENT, "40F84E00")],
}


@pytest.mark.parametrize("example", REPORTS)
def test_reports_lead_to_the_document_of_the_example(example: str) -> None:
    device = EXAMPLES[example]["expect"]["fault"][0]["npu_name"]
    info = render(after(healthy(), REPORTS[example]), inventory(), 1700000100)
    judge(example, info, device)
    assert (device in info.free) == (device not in info.unhealthy)


@pytest.mark.parametrize(("example", "vector"), [("EX-02", "V2"), ("EX-03", "V3"), ("EX-05", "V4")])
def test_whole_document_of_an_example_to_the_byte(example: str, vector: str) -> None:
    chips = 1 if example == "EX-03" else 2
    info = render(after(healthy(chips), REPORTS[example]), inventory(chips), 1700000100)
    data = encode(info, FAMILIES["Ascend910B"])
    lines = (VECTORS / "device-plugin/full-documents.txt").read_text().splitlines()
    assert f"{vector} {data['DeviceInfoCfg']}" in lines
    assert verify_published(data, "node-1") == info


def test_one_off_event_goes_when_it_was_published_long_enough() -> None:
    """EX-10b; upstream shows it for one write, ours until every reader can have seen it."""
    state = after(healthy(), REPORTS["EX-10"])
    assert after(state, [], T + 3_600_000) is state, "nobody could have seen it yet"
    shown = Acknowledged("mindx-dl-deviceinfo-node-1", state.revision, T + 50)
    state = after(state, [shown], T + 50)
    judge(
        "EX-10", render(after(state, [], T + 49 + ONCE_VISIBLE_MS), inventory(), 1), "Ascend910-0"
    )
    info = render(after(state, [], T + 50 + ONCE_VISIBLE_MS), inventory(), 1)
    judge("EX-10b", info, "Ascend910-0")
    assert info.free == ("Ascend910-0", "Ascend910-1")
