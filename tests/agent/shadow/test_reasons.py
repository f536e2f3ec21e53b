"""Known defects of the real Device Plugin are named where a difference shows which one it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent.shadow.difference import differences, facts_of
from agent.shadow.reasons import Background, defect_of
from contract.codes.catalogue import shipped
from tests.agent.shadow.documents import rich_tree, written
from tests.agent.shadow.player import compare
from tests.replay.player import recorded

if TYPE_CHECKING:
    from tests.agent.shadow.documents import Tree

KNOWN = shipped().chip_levels
SEEING = Background(is_known=KNOWN.__contains__, is_link_blind=lambda device: False)
UNKNOWN = "80AB9999"


def with_unknown_code(entry_level: str, own_level: str) -> Tree:
    """Return the rich tree in which a chip with a mild code also has an unknown one."""
    tree = rich_tree()
    fault = tree["DeviceInfoCfg"]["DeviceInfo"]["DeviceList"]["huawei.com/Ascend910-Fault"][3]
    fault["fault_code"] += f",{UNKNOWN}"
    fault["fault_time_and_level_map"][UNKNOWN] = {"fault_time": 8, "fault_level": own_level}
    for key in ("fault_level", "fault_handling", "large_model_fault_level"):
        fault[key] = entry_level
    return tree


def reason(theirs: Tree, ours: Tree, background: Background = SEEING) -> str | None:
    facts = facts_of(written(theirs))
    first, *_ = differences(facts, facts_of(written(ours)))
    return defect_of(first, facts, background)


def test_a_known_code_that_hides_an_unknown_one() -> None:
    ours = with_unknown_code("SeparateNPU", "SeparateNPU")
    assert reason(with_unknown_code("NotHandleFault", "SeparateNPU"), ours) == "K07"
    known = Background(is_known=lambda code: True, is_link_blind=lambda device: False)
    assert reason(with_unknown_code("NotHandleFault", "SeparateNPU"), ours, known) is None


def test_an_unknown_code_that_was_found_by_a_query() -> None:
    ours = with_unknown_code("SeparateNPU", "SeparateNPU")
    assert reason(with_unknown_code("NotHandleFault", "NotHandleFault"), ours) == "K08"
    assert reason(with_unknown_code("RestartNPU", "RestartNPU"), ours) is None


def test_an_isolation_that_is_gone() -> None:
    theirs = rich_tree()
    theirs["ManuallySeparateNPU"].remove("Ascend910-10")
    assert reason(theirs, rich_tree()) == "K01, K02 or K03"
    assert reason(rich_tree(), theirs) is None


def test_a_wrong_level_is_no_known_defect() -> None:
    theirs = rich_tree()
    faults = theirs["DeviceInfoCfg"]["DeviceInfo"]["DeviceList"]["huawei.com/Ascend910-Fault"]
    faults[0]["fault_level"] = "SeparateNPU"
    assert reason(theirs, rich_tree()) is None


@pytest.mark.looptime(resolution=2**-20)
@pytest.mark.parametrize(
    ("name", "defect"),
    [
        ("link-tool-at-start", "K17"),
        ("nonsense-events", "K08"),
        ("restart-on-stale-configmap-with-isolation", "K04"),
        ("switch-several-ports-and-double-occurrence", "K23"),
        ("same-code-twice-in-one-cycle", None),
    ],
)
async def test_recordings_of_a_defect(name: str, defect: str | None) -> None:
    compared = await compare(recorded(name))
    assert {reported.defect for reported in compared.of_the_plugin()} == {defect}
