"""A real aggregator that publishes to a broker which takes small packets only."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from stores.address import open_store
from stores.base import Selection
from tests.aggregator.nodes import T0, faulty, healthy, report
from tests.parts.broker import Broker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.aggregator.conftest import Make

LIMIT = 20_000
NODES = 40


async def test_shards_keep_to_its_limit_and_all_else_goes_on(make: Make, tmp_path: Path) -> None:
    with Broker(tmp_path, [f"max_packet_size {LIMIT}"]) as broker:
        store = open_store(broker.url)
        for number in range(NODES):
            await store.put(report(f"n{number}", healthy()))
        daemon = make(broker.url, None)
        await asyncio.to_thread(daemon.start)
        found = await store.list(Selection("mindx-dl", label=("mx-consumer-volcano", "true")))
        shards = [one for one in found if one.name.startswith("cluster-info-device-")]
        assert len(shards) > 1
        held = "".join(text for one in shards for text in one.data.values())
        assert all(f'mindx-dl-deviceinfo-n{number}"' in held for number in range(NODES))
        await store.put(report("n7", faulty(3, T0 + 1)))
        daemon.process.wait_until(lambda: daemon.node("n7")["update_time"] == T0 + 1, 10)
        assert daemon.ask("/readyz")[0] == 200
        daemon.waits_for_text("Cluster documents have at most")
        log = daemon.process.log.read_text()
        assert log.count("Cluster documents have at most") == 1
        assert "not published" not in log
        assert daemon.metric("npu_vigil_store_interruptions_total") == 0
        await store.close()
