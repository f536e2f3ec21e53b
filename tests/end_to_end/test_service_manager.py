"""Both daemons as units with ``Type=notify`` and a watchdog."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.aggregator.daemon import Daemon
from tests.parts.service_manager import Manager

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.end_to_end.node import Node


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(str(tmp_path / "notify"))
    manager.environment["WATCHDOG_USEC"] = "1000000"
    with closing(manager):
        yield manager


async def test_the_agent_is_ready_lives_and_ends(folder_node: Node, manager: Manager) -> None:
    folder_node.environment |= manager.environment
    folder_node.emulator.hang("dcmi_get_card_list")
    folder_node.start()
    assert manager.lines_with("READY") == []
    (status,) = [
        line for line in await manager.receives("WATCHDOG=1") if line.startswith("STATUS=")
    ]
    assert status.startswith("STATUS=the driver has not answered yet")
    folder_node.emulator.clear("dcmi_get_card_list")
    await manager.receives("READY=1")
    assert folder_node.ask("/readyz")[0] == 200
    await manager.receives("WATCHDOG=1")
    assert folder_node.stop()[0] == 0
    await manager.receives("STOPPING=1")


@pytest.mark.daemon
async def test_the_aggregator_is_ready_lives_and_ends(
    tmp_path: Path, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in manager.environment.items():
        monkeypatch.setenv(name, value)
    daemon = Daemon(tmp_path / "aggregator", "--store", f"directory:{tmp_path / 'store'}")
    try:
        await asyncio.to_thread(daemon.spawn)
        await manager.receives("READY=1")
        assert daemon.ask("/readyz")[0] == 200
        await manager.receives("WATCHDOG=1")
    finally:
        daemon.stop()
    await manager.receives("STOPPING=1")
