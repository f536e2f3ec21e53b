"""What the agent passes to its collectors."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from agent.config import AgentConfiguration
from agent.wiring import AgentParts
from collectors.links.collector import LinksCollector
from dcmi_shim.driver import Driver
from dcmi_shim.library.discovery import FoundLibrary
from stores.address import open_store

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from contract.observation import Report


async def test_a_collector_that_started_again_receives_each_report_once(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    configuration = AgentConfiguration(
        node_name="node-1", store=f"directory:{tmp_path / 'store'}", state_dir=tmp_path / "state"
    )
    driver = Driver(FoundLibrary(tmp_path / "libdcmi.so", (), ()), lambda: 0)
    parts = AgentParts(configuration, open_store(configuration.store), driver, lambda: 0)
    received: list[int] = []

    def receive(run: int, _: Sequence[Report]) -> None:
        received.append(run)

    for run in (1, 2):
        parts.collecting.new_collector(LinksCollector).context.listen(partial(receive, run))
    parts.collecting.report([])
    assert received == [2]
