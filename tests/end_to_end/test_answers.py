"""Agent and aggregator give one answer about severity and device faults; readers see neither."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from contract.codes.levels import Severity
from tests.aggregator.daemon import Daemon

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.end_to_end.node import Node

LINK, MINOR, UNKNOWN = "81078603", "80C98008", "80FF1234"


@pytest.fixture
def aggregator(folder_node: Node, tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path / "aggregator", *folder_node.place.options)
    yield daemon
    daemon.stop()


def answers(faults: list[dict[str, Any]]) -> dict[str, tuple[str | None, bool | None]]:
    return {one["code"]: (one["severity"], one["device_fault"]) for one in faults}


def test_both_give_one_answer(folder_node: Node, aggregator: Daemon) -> None:
    node = folder_node
    node.environment |= {"VIGIL_LINKS_PERIOD_SECONDS": "0.5", "VIGIL_BMC_ENABLED": "false"}
    node.start()
    aggregator.start()
    node.healthy()
    assert "NpuVigil" not in (node.place.read(node.document) or {})
    node.emulator.lose_everything_next()
    node.emulator.link(3, up=False)
    node.emulator.occur(4, MINOR, Severity.CRITICAL)
    node.emulator.occur(5, UNKNOWN, Severity.CRITICAL)
    node.until(lambda now: len(now.faults) == 3, "all faults are shown")
    mine = answers(node.status()["faults"])
    assert mine == {
        LINK: ("minor", True),
        MINOR: ("critical", True),
        UNKNOWN: ("critical", True),
    }

    def shown() -> list[dict[str, Any]]:
        faults: list[dict[str, Any]] = aggregator.ask("/api/v1/faults")[1]["faults"]
        return faults

    node.wait(lambda: len(shown()) == 3, "the aggregator shows them")
    assert answers(shown()) == mine
    assert {one["severity_source"] for one in shown()} == {"agent"}
    (chip,) = (
        one
        for one in aggregator.ask(f"/api/v1/nodes/{node.name}")[1]["chips"]
        if one["chip"] == "Ascend910-5"
    )
    assert answers(chip["faults"]) == {UNKNOWN: ("critical", True)}
    labels = 'code="80FF1234",device_fault="true",level="SeparateNPU",severity="critical"'
    node.wait(
        lambda: aggregator.metric(f"npu_vigil_cluster_faults{{{labels}") == 1, "so does the metric"
    )

    def published() -> list[dict[str, Any]]:
        events = aggregator.ask("/api/v1/history?after=0")[1]["events"]
        return [one["published"] for one in events if "published" in one]

    node.wait(lambda: len(published()) >= 3, "the history has them")
    kept = [one for one in published() if one["code"] in mine]
    assert {one["code"]: (one["severity"], one["device_fault"]) for one in kept} == mine
    assert {one["severity_source"] for one in kept} == {"agent"}

    data = node.place.read(node.document)
    assert data is not None
    assert "severity" not in data["DeviceInfoCfg"], "the key is beside it"
    assert len(json.loads(data["NpuVigil"])["faults"]) == 3
    for chip_id, code in ((4, MINOR), (5, UNKNOWN)):
        node.emulator.recover(chip_id, code)
    node.emulator.link(3, up=True)
    node.until(lambda now: not now.faults, "all of it is over")
    node.wait(lambda: "NpuVigil" not in (node.place.read(node.document) or {}), "and the key gone")
