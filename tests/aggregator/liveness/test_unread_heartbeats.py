"""Nodes whose heartbeats are not read are not known to be alive."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aggregator.liveness.lost_nodes import HeartbeatListing, ObservedHeartbeat, failed, listed
from aggregator.liveness.unread_heartbeats import unread
from service.clock import Instant
from stores.address import open_store
from stores.base import Beat
from tests.aggregator.fleet import Fleet
from tests.aggregator.nodes import faulty, report
from tests.parts.deadlines import until
from tests.parts.relay import Relay

if TYPE_CHECKING:
    from pathlib import Path

    from tests.aggregator.conftest import Make
    from tests.aggregator.daemon import Daemon
    from tests.parts.broker import Broker

WALL_MS = 1_760_000_000_000


def at(seconds: float) -> Instant:
    return Instant(WALL_MS + int(seconds * 1000), int(seconds * 1000))


def beating(seconds: float, interval: float = 5.0) -> HeartbeatListing:
    return listed(HeartbeatListing(), [Beat("n1", "host", interval, 1)], at(seconds).steady_ms, ())


def test_two_periods_and_at_least_10_s_without_a_listing_are_long() -> None:
    places = {"s:": beating(100)}
    assert unread(places, 0, at(110)) == {}
    found = unread(places, 0, at(110.001))["s:"]
    assert found.text == (
        "the heartbeats in s: have not been read since 2025-10-09 08:55:00 UTC (10 s ago): "
        "there is no answer yet"
    )
    assert not found.is_long
    assert not unread(places, 0, at(135))["s:"].is_long, "it may have begun at 105"
    assert unread(places, 0, at(135.001))["s:"].is_long


def test_two_periods_of_a_long_interval() -> None:
    heartbeat = ObservedHeartbeat("host", 1, 60_000, 0, 0, usual_interval_ms=60_000)
    places = {"s:": HeartbeatListing({"n1": heartbeat}, 0)}
    assert unread(places, 0, at(120)) == {}
    assert unread(places, 0, at(121))["s:"].is_long


def test_a_place_that_was_never_listed_counts_from_the_beginning() -> None:
    places = {"s:": failed(HeartbeatListing(), "no way there"), "t:": beating(100)}
    assert unread(places, 95_000, at(105)) == {}
    (found,) = unread(places, 95_000, at(106)).items()
    assert found[0] == "s:"
    assert found[1].text.endswith("(11 s ago): no way there")


async def test_a_cut_from_the_broker_makes_its_nodes_unknown_and_no_others(
    broker: Broker, make: Make, tmp_path: Path
) -> None:
    folder, behind = f"directory:{tmp_path / 'folder'}", open_store(broker.url)
    beside = open_store(folder)
    await behind.put(report("cut", faulty()))
    await beside.put(report("here", faulty()))
    async with Relay(broker.port) as relay:
        url = f"mqtt://127.0.0.1:{relay.port}"
        daemon = make(url, None, "--store", folder, "--publish", folder)
        daemon.program = "tests.aggregator.quick"
        async with Fleet(behind, ["cut"], 1.0).beating(), Fleet(beside, ["here"], 1.0).beating():
            await asyncio.to_thread(daemon.start)
            await shown(daemon, cut="alive", here="alive")
            await relay.cut()
            await shown(daemon, cut="unknown", here="alive")
            node = await asyncio.to_thread(daemon.node, "cut")
            assert f"the heartbeats in {url} have not been read since" in node["heartbeat_problem"]
            assert (await asyncio.to_thread(daemon.node, "here"))["heartbeat_problem"] is None
            assert (node["state"], node["faults"]) == ("reported", 1)
            page = (await asyncio.to_thread(daemon.ask, "/api/v1/liveness"))[1]["liveness"]
            assert (page["alive"], page["lost"]) == (1, [])
            assert page["listed_seconds_ago"][url] > 3
            assert await asyncio.to_thread(daemon.metric, unread_metric(url)) > 3
            status, text = await asyncio.to_thread(daemon.ask, "/readyz")
            assert (status, "have not been read since" in str(text)) == (200, True)
            relay.restore()
            await shown(daemon, cut="alive", here="alive")
        assert "lost, no heartbeat" not in daemon.log.read_text()
    await behind.close()
    await beside.close()


def unread_metric(url: str) -> str:
    return f'npu_vigil_heartbeats_last_read_age_seconds{{place="{url}"}}'


async def shown(daemon: Daemon, **wanted: str) -> None:
    """Wait until the API shows these heartbeats."""
    found: dict[str, str] = {}

    async def is_shown() -> bool:
        nonlocal found
        found = {node: (await asyncio.to_thread(daemon.node, node))["heartbeat"] for node in wanted}
        return found == wanted

    await until(is_shown, lambda: f"wanted {wanted}, got {found}", 25, 0.1)
