"""A real aggregator on a file system that reports no change (FUSE)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from stores.address import open_store
from tests.aggregator.nodes import T0, faulty, healthy, report
from tests.parts.fuse import Mirror, mounts

if TYPE_CHECKING:
    from pathlib import Path

    from tests.aggregator.conftest import Make


@mounts
async def test_a_fault_arrives_and_what_is_wrong_is_named(make: Make, tmp_path: Path) -> None:
    with Mirror(tmp_path) as mirror:
        other_machine = open_store(f"directory:{mirror.behind}")
        await other_machine.put(report("n1", healthy()))
        url = f"directory:{mirror.place}"
        daemon = make(url, None, "--publish", f"directory:{tmp_path / 'published'}")
        await asyncio.to_thread(daemon.start)
        assert daemon.metric("npu_vigil_store_missed_changes_total") == 0
        await other_machine.put(report("n1", faulty(3, T0 + 1)))
        daemon.process.wait_until(lambda: daemon.node("n1")["update_time"] == T0 + 1, 15)
        daemon.process.wait_until(
            lambda: daemon.metric("npu_vigil_store_missed_changes_total") == 1, 10
        )
        daemon.stop()
        log = daemon.process.log.read_text()
        assert log.count("the kernel reports no changes") == 1
