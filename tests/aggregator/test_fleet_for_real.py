"""Heartbeats on a real API server: outages, mass silence, one node that dies, and its return.

The interval is 1 s instead of the usual 5, so an outage of a minute is one of 12 s here. It grows
with the patience of the tests: on a machine that is slow, beats every second would come too late.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from contract.documents.node_info import FaultDevice
from contract.names import CLUSTER_NAMESPACE, CLUSTER_NODE_NAME
from tests.aggregator.daemon import OUTPUTS, Daemon, entries
from tests.aggregator.fleet import Fleet
from tests.aggregator.nodes import faulty, node_report, report, unhealthy
from tests.parts.deadlines import patience, stays, time_passes, until
from tests.parts.watching import Watching, watching

if TYPE_CHECKING:
    from stores.base import Document, Store
    from tests.aggregator.conftest import Make
    from tests.parts.controlplane import ControlPlane

pytestmark = pytest.mark.apiserver

INTERVAL = patience(1.0)
NODES = [f"node-{number:03}" for number in range(40)]


@pytest.fixture
def kind() -> str:
    return "kubernetes"


@pytest.fixture
def daemon(control_plane: ControlPlane, make: Make) -> Daemon:
    return make("kubernetes:", control_plane.kubeconfig)


def servers(document: Document) -> dict[str, Any]:
    """Return the entry of each node in cluster-info-node-cm."""
    text = document.data[CLUSTER_NODE_NAME]
    found = json.loads(text) if text else {}
    return {key.removeprefix("mindx-dl-nodeinfo-"): entry for key, entry in found.items()}


def statuses(seen: Watching) -> dict[str, str]:
    """Return the published status of each node."""
    document = seen.documents.get((CLUSTER_NAMESPACE, CLUSTER_NODE_NAME))
    found = {} if document is None else servers(document)
    return {node: entry["NodeStatus"] for node, entry in found.items()}


async def shows(daemon: Daemon, **wanted: object) -> dict[str, Any]:
    """Return the liveness page once it shows what is wanted."""
    answer: dict[str, Any] = {}

    async def is_shown() -> bool:
        nonlocal answer
        answer = (await asyncio.to_thread(daemon.ask, "/api/v1/liveness"))[1]["liveness"]
        return wanted.items() <= answer.items()

    await until(is_shown, lambda: f"wanted {wanted}, got {answer}", 30, 0.1)
    return answer


async def test_an_outage_of_the_api_server_loses_no_node(
    control_plane: ControlPlane, store: Store, daemon: Daemon
) -> None:
    # More than 3 and more than a fifth of them are silent, as of any large fleet.
    fleet = Fleet(store, NODES[:20], INTERVAL)
    async with fleet.beating(), watching(store, OUTPUTS) as seen:
        await asyncio.to_thread(daemon.start)
        await shows(daemon, alive=20)
        control_plane.kill_apiserver()
        await stays(12 * INTERVAL, because="a node is silent after three intervals")
        page = await shows(daemon, lost=[], alarm=False)
        assert "kubernetes:" in page["problems"]
        await asyncio.to_thread(control_plane.start_apiserver)
        await shows(daemon, problems={})
        for _ in range(50):
            await shows(daemon, alive=20, lost=[], held=[], alarm=False)
            await time_passes(0.1)
        assert statuses(seen) == {}
    assert "lost, no heartbeat" not in daemon.log.read_text()


async def test_an_api_server_without_its_database_loses_no_node(
    control_plane: ControlPlane, store: Store, daemon: Daemon
) -> None:
    # It goes on to list the beats that it remembers. Three are too few for the silence alarm.
    fleet = Fleet(store, NODES[:3], INTERVAL)
    async with fleet.beating(), watching(store, OUTPUTS) as seen:
        await asyncio.to_thread(daemon.start)
        await shows(daemon, alive=3)
        control_plane.pause_etcd()
        await stays(6 * INTERVAL, because="a node is silent after three intervals")
        page = await shows(daemon)
        control_plane.resume_etcd()
        assert page["lost"] == []
        for _ in range(30):
            await shows(daemon, lost=[])
            await time_passes(0.1)
        await shows(daemon, alive=3, problems={})
        assert statuses(seen) == {}


async def test_twelve_of_forty_at_once_are_an_alarm_and_not_lost(
    store: Store, daemon: Daemon
) -> None:
    fleet = Fleet(store, NODES, INTERVAL)
    async with fleet.beating(), watching(store, OUTPUTS) as seen:
        await asyncio.to_thread(daemon.start)
        await shows(daemon, alive=40)
        fleet.silent = set(NODES[10:22])
        await shows(daemon, alarm=True, held=NODES[10:22], lost=[], alive=28)
        await stays(3 * INTERVAL, because="a node is silent after three intervals")
        page = await shows(daemon, alarm=True, lost=[])
        assert page["held"] == NODES[10:22]
        assert (await asyncio.to_thread(daemon.ask, "/readyz"))[0] == 200
        assert await asyncio.to_thread(daemon.metric, "npu_vigil_node_lost_brake") == 1
        assert (await asyncio.to_thread(daemon.node, NODES[10]))["heartbeat"] == "silent"
        await asyncio.to_thread(daemon.waits_for_text, "silence alarm: 12 nodes")
        fleet.silent = set()
        await shows(daemon, alarm=False, lost=[], held=[], alive=40)
        shown = [s for s in seen.events if "UnHealthy" in str(s)]
        assert shown == []


async def test_one_node_is_lost_in_time_and_back_in_time(store: Store, daemon: Daemon) -> None:
    # In the way of a real agent: device-info and a node-info with a fault that does no harm.
    one = NODES[3]
    fan = FaultDevice("Fan", 1, ["28000009"], "NotHandleFault")
    await store.put(report(one, faulty()))
    await store.put(node_report(one, [fan], "Healthy"))
    fleet = Fleet(store, NODES[:20], INTERVAL)
    async with fleet.beating(), watching(store, OUTPUTS) as seen:
        await asyncio.to_thread(daemon.start)
        await shows(daemon, alive=20)
        await seen.until(lambda seen: statuses(seen) == {one: "Healthy"})
        fleet.silent = {one}
        await seen.until(lambda seen: statuses(seen) == {one: "UnHealthy"})
        now = time.monotonic()
        # The aggregator may observe a beat before its sender has the answer.
        assert now - fleet.sent_at[one] > 3 * INTERVAL
        assert now - fleet.beaten_at[one] <= 5 * INTERVAL + patience(1)
        document = seen.documents[CLUSTER_NAMESPACE, CLUSTER_NODE_NAME]
        assert servers(document)[one]["FaultDevList"][0]["DeviceType"] == "Fan"
        assert unhealthy(entries(seen)[one]) == "Ascend910-3"
        assert await asyncio.to_thread(daemon.metric, "npu_vigil_node_lost") == 1
        assert (await asyncio.to_thread(daemon.node, one))["heartbeat"] == "lost"

        # The next run knows who was lost, and everybody else has a fresh threshold.
        await asyncio.to_thread(daemon.kill)
        await asyncio.to_thread(daemon.start)
        await shows(daemon, alive=19, lost=[one])
        assert await asyncio.to_thread(daemon.metric, "npu_vigil_publication_writes_total") == 0

        began = time.monotonic()
        fleet.silent = set()
        await seen.until(lambda seen: statuses(seen) == {one: "Healthy"})
        assert time.monotonic() - began <= 2 * INTERVAL + patience(1)
