"""A link that is down too long, in a real agent that is killed in between."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from contract.codes.chip_codes import LINK_DOWN
from tests.parts.deadlines import patience
from tests.parts.fault_config import link_rule

if TYPE_CHECKING:
    from tests.end_to_end.node import Node

CHIP = 3
RULE_SECONDS = round(patience(6))
"""A restart is to take less."""


def reasons(node: Node) -> list[dict[str, Any]]:
    """Return the reasons for the chip's upgrade; check that the network list has the same chips."""
    data = node.place.read(node.document)
    assert data is not None
    devices = json.loads(data["DeviceInfoCfg"])["DeviceInfo"]["DeviceList"]
    found: dict[str, list[dict[str, Any]]] = json.loads(data["UpgradeFaultReason"])
    unhealthy = devices["huawei.com/Ascend910-NetworkUnhealthy"]
    assert unhealthy == ",".join(found), "the reason and the list are of one write"
    return found.get(f"Ascend910-{CHIP}", [])


@pytest.mark.timeout(60)
def test_a_killed_agent_upgrades_and_releases_as_if_it_had_lived(folder_node: Node) -> None:
    node = folder_node
    node.environment |= link_rule(node.state_dir.parent / "fault-config", *2 * (RULE_SECONDS,))
    node.start()
    node.healthy()
    node.emulator.link(CHIP, up=False)
    node.until(lambda now: now.codes(CHIP) == {LINK_DOWN}, "the link is shown down")
    assert reasons(node) == []
    # The journal commits beside the publication, and the rule counts from its time.
    node.wait(lambda: node.assertions(LINK_DOWN) != [], "it is journaled")
    node.kill()
    node.start()
    node.wait(lambda: reasons(node) != [], "it is upgraded", 20)
    (seen,) = [row for row in node.journal("reports") if LINK_DOWN in json.dumps(row)][:1]
    occurred_ms = next(item["seen_at_ms"] for item in seen if item.get("code") == LINK_DOWN)
    upgraded = {
        "upgrade_time": occurred_ms + 1000 * RULE_SECONDS,
        "fault_code": LINK_DOWN,
        "fault_level": "PreSeparateNPU",
        "upgrade_type": "FaultDuration",
    }
    assert reasons(node) == [upgraded]
    node.emulator.link(CHIP, up=True)
    node.wait(lambda: not node.status()["faults"], "the fault is over")
    node.kill()
    node.start()
    node.up()
    assert reasons(node) == [upgraded], "not trusted yet"
    node.until(lambda now: not now.faults, "it is released", 10)
    assert reasons(node) == []
