"""What whoever follows the log at priority ``warning`` sees of faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.codes.levels import Severity

if TYPE_CHECKING:
    from tests.end_to_end.node import Node

OUT = "80E01801"


def warnings(node: Node) -> list[str]:
    """Return the texts about faults that ``journalctl -p warning`` would show."""
    serious = (" WARNING ", " ERROR ", " CRITICAL ")
    lines = (line for line in node.logged().splitlines() if any(one in line for one in serious))
    return [line.partition("agent.faults: ")[2] for line in lines if "agent.faults: " in line]


def test_faults_are_warnings_and_a_storm_is_not_a_flood(folder_node: Node) -> None:
    node = folder_node
    node.start()
    node.healthy()
    assert warnings(node) == []
    node.emulator.occur(3, OUT)
    node.until(lambda now: now.codes(3) == {OUT}, "the fault is shown")
    node.wait(lambda: warnings(node) != [], "the fault is logged, soon after its document")
    (line,) = warnings(node)
    assert line.startswith(f"chip 3 {OUT} (critical) began: nothing -> RestartBusiness")

    node.kill()
    node.start()
    node.wait(lambda: len(warnings(node)) == 2, "what stands is summed up")
    assert warnings(node)[1] == f"1 fault at the start: chip 3 {OUT} RestartBusiness"
    node.up()

    node.emulator.recover(3, OUT)
    node.until(lambda now: not now.faults, "it is over")
    node.wait(lambda: f"INFO agent.faults: chip 3 {OUT}" in node.logged(), "its end is no warning")
    assert len(warnings(node)) == 2

    before = len(node.logged().splitlines())
    for number in range(1000):
        node.emulator.once(number % 8, OUT)
        node.emulator.once(number % 8, f"80E1{number:04X}", Severity.CRITICAL)
    node.emulator.occur(7, OUT)
    node.until(lambda now: OUT in now.codes(7), "all of it was read", 60)
    assert node.stop()[0] == 0
    assert len(node.logged().splitlines()) - before <= 100
    texts = warnings(node)[2:]
    assert any(text.startswith("chip ") for text in texts)
    assert any("changes take chips or the node out: " in text for text in texts)
