"""A chip that is isolated by a rule, in a real agent: nothing but an operator lets it go."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.parts.deadlines import nothing_happens_for, patience

if TYPE_CHECKING:
    from tests.end_to_end.node import Node

CHIP = 3
DEVICE = f"Ascend910-{CHIP}"
TWICE_A_DAY = "80E01801"
MILD = "80E21007"


def keys(node: Node) -> tuple[str, dict[str, Any]]:
    """Return the isolated chips of device-info, and the reasons."""
    data = node.place.read(node.document) or {}
    return data.get("ManuallySeparateNPU", ""), json.loads(data.get("UpgradeFaultReason", "{}"))


def is_listed(node: Node) -> bool:
    """Return whether the driver lists a code for the chip."""
    status: Any = node.emulator.status()
    return bool(status["chips"][CHIP]["listed"])


@pytest.mark.timeout(90)
def test_isolation_outlives_all_but_an_operator(node: Node) -> None:
    node.start()
    node.healthy()
    node.emulator.occur(CHIP, TWICE_A_DAY)
    node.until(lambda now: now.codes(CHIP) == {TWICE_A_DAY}, "the fault is shown")
    node.emulator.occur(CHIP, TWICE_A_DAY)
    node.wait(lambda: is_listed(node), "the driver's list has it, 50 ms after its occurrence")
    node.emulator.recover(CHIP, TWICE_A_DAY)
    node.until(lambda now: not now.faults, "a second event of it was no second occurrence")
    # An agent that starts meanwhile would find it there: it has returned then, and not occurred.
    node.wait(lambda: not is_listed(node), "the driver's list lacks it, 300 ms after its recovery")
    node.kill()
    node.start()
    node.emulator.occur(CHIP + 1, MILD)
    node.until(lambda now: now.codes(CHIP + 1) == {MILD}, "the driver is listened to again")
    node.emulator.recover(CHIP + 1, MILD)
    node.emulator.occur(CHIP, TWICE_A_DAY)
    node.wait(lambda: keys(node)[0] == DEVICE, "the second one isolates, across a restart")
    (reason,) = keys(node)[1][DEVICE]
    assert reason["fault_code"] == TWICE_A_DAY.lower()
    assert reason["fault_level"] == "ManuallySeparateNPU"
    assert reason["upgrade_type"] == "FaultFrequency"
    isolated = keys(node)

    node.wait(lambda: is_listed(node), "the driver's list has it again")
    node.emulator.recover(CHIP, TWICE_A_DAY)
    node.wait(lambda: not node.status()["faults"], "the fault is over")
    node.wait(lambda: not is_listed(node), "the driver's list lacks it")
    node.kill()
    node.place.delete(node.document)
    node.start()
    node.until(lambda now: now.unhealthy == {DEVICE}, "the document is there again")
    assert keys(node) == isolated
    nothing_happens_for(
        0.5, because="a watch that saw neither the write nor the deletion has nothing to report"
    )
    node.place.delete(node.document)
    node.wait(lambda: keys(node) == isolated, "and again")

    data = node.place.read(node.document)
    assert data is not None
    node.place.write(node.document, data | {"ManuallySeparateNPU": ""})
    assert node.until(lambda now: DEVICE in now.free, "an operator releases it") < patience(1)
    assert keys(node) == ("", {})

    def released() -> list[str]:
        return [c["upgrade"]["code"] for c in node.changes() if c["kind"] == "released"]

    # The journal commits beside the publication.
    node.wait(lambda: released() != [], "the release is journaled")
    assert released() == [TWICE_A_DAY]
