"""Links in a real agent: what only the tool knows of, a tool that hangs, a link that stays down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.codes.chip_codes import LINK_DOWN
from dcmi_shim.emulator.install import HCCN_TOOL
from tests.parts.deadlines import patience
from tests.parts.process_table import processes_of

if TYPE_CHECKING:
    from tests.end_to_end.node import Node

CHIP = 3


def _start(node: Node, period_seconds: str) -> None:
    node.environment |= {"VIGIL_LINKS_PERIOD_SECONDS": period_seconds}
    node.start()
    node.healthy()


def test_a_link_that_only_the_tool_finds_down(folder_node: Node) -> None:
    node = folder_node
    _start(node, "0.5")
    node.emulator.lose_everything_next()
    node.emulator.link(CHIP, up=False)
    node.until(lambda now: now.codes(CHIP) == {LINK_DOWN}, "the link is shown down", 3)
    node.emulator.link(CHIP, up=True)
    node.until(lambda now: not now.faults, "the link is shown up", 3)
    # A journal that is slow never delays a document.
    node.wait(lambda: len(node.assertions(LINK_DOWN)) >= 2, "both are journaled", 5)
    assert node.assertions(LINK_DOWN) == ["present", "absent"]


def test_a_link_that_is_still_down_after_the_drivers_recovery(folder_node: Node) -> None:
    node = folder_node
    _start(node, "60")
    node.emulator.link(CHIP, up=False)
    assert node.until(lambda now: now.codes(CHIP) == {LINK_DOWN}, "the event is shown") < patience(
        1
    )
    node.emulator.link(CHIP, up=True)
    node.emulator.lose_everything_next()
    node.emulator.link(CHIP, up=False)
    node.wait(lambda: "present" in node.assertions(LINK_DOWN), "the tool is asked again", 4)
    node.until(lambda now: now.codes(CHIP) == {LINK_DOWN}, "the link is shown down again")
    assert node.assertions(LINK_DOWN)[:2] == ["occur", "recover"]


def test_a_tool_that_hangs_takes_nothing_along(folder_node: Node) -> None:
    node = folder_node
    node.emulator.tool("hccn_tool", "hang")
    _start(node, "0.5")
    node.emulator.occur(CHIP, "80E01801")
    assert node.until(lambda now: now.codes(CHIP) == {"80E01801"}, "the fault is shown") < patience(
        1
    )
    tool = node.driver_root / HCCN_TOOL
    node.wait(lambda: len(processes_of(tool)) == 1, "the tool runs")
    status, seconds = node.stop()
    assert (status, seconds < patience(3)) == (0, True), node.logged()
    node.wait(lambda: not processes_of(tool), "the tool is ended with the agent")
