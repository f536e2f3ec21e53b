"""A real agent on each kind of store: faults come, go, and survive whatever happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.end_to_end.node import shown
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from tests.end_to_end.node import Node

FAULT = "80E01801"
OTHER = "80E18402"
ONCE = "80E3A201"


@pytest.mark.alone
def test_a_fault_appears_and_clears(node: Node) -> None:
    node.start()
    node.up()  # how long an interpreter takes to begin is not judged
    assert node.healthy() < patience(2.0), "the first document took too long"
    node.emulator.occur(3, FAULT)
    assert node.until(lambda now: now.codes(3) == {FAULT}, "the fault is shown") < patience(1)
    node.emulator.recover(3, FAULT)
    assert node.until(lambda now: not now.faults, "the recovery is shown") < patience(1)
    status, seconds = node.stop()
    assert status == 0, node.logged()
    assert seconds < patience(5)


def test_kill_9_loses_nothing(node: Node) -> None:
    node.start()
    node.healthy()
    node.emulator.occur(1, FAULT)
    node.emulator.occur(2, OTHER)
    node.until(lambda now: bool(now.codes(1) and now.codes(2)), "both faults are shown")
    before = {fault["code"]: fault for fault in node.status()["faults"]}
    node.emulator.once(4, ONCE)
    node.wait(lambda: "once" in node.assertions(ONCE), "the once event is journaled")
    node.kill()
    node.emulator.recover(2, OTHER)
    node.emulator.occur(5, FAULT)
    node.start()
    node.until(lambda now: now.codes(5) == {FAULT}, "what happened meanwhile is shown")
    node.until(lambda now: not now.codes(2), "the recovery meanwhile is shown")
    node.until(lambda now: now.codes(1) == {FAULT}, "the fault from before is shown")
    after = {(fault["chip"], fault["code"]): fault for fault in node.status()["faults"]}
    for member in ("since_ms", "episode", "severity"):
        assert after[1, FAULT][member] == before[FAULT][member]
    node.until(lambda now: not now.codes(4), "the once event is released")


def test_foreign_edits_are_repaired(node: Node) -> None:
    node.start()
    node.healthy()
    node.emulator.occur(3, FAULT)
    node.until(lambda now: now.codes(3) == {FAULT}, "the fault is shown")
    data = node.place.read(node.document)
    assert data is not None
    node.place.write(node.document, data | {"DeviceInfoCfg": "{}"})
    assert node.wait(lambda: "Fault" in _text(node), "the document is repaired") < patience(1)
    repaired = node.shown()
    assert repaired is not None
    assert repaired.update_time > shown(data).update_time
    node.place.delete(node.document)
    assert node.wait(lambda: node.place.read(node.document) is not None, "it is back") < patience(1)
    metrics = node.ask("/metrics")[1]
    labels = f'document="device-info",store="{node.status()["store"]}"'
    assert f"npu_vigil_publication_foreign_writes_total{{{labels}}} 2.0" in metrics


def _text(node: Node) -> str:
    return (node.place.read(node.document) or {}).get("DeviceInfoCfg", "")
