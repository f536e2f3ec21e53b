"""The short row of each node, and the page that all open pages share."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from aggregator.api.fleet import FleetPages, fleet_rows
from contract.codes.levels import ChipLevel, NodeLevel, SwitchLevel
from contract.pages.aggregator_status import LivenessStatus
from contract.pages.blind import BlindStatus
from contract.pages.fleet import LEVEL_WEIGHTS, FleetNode, rank
from tests.aggregator.api.given_queries import (
    CHIPS,
    GivenQueries,
    device_record,
    fault_row,
    status_row,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NODES = 10_000
MAX_PACKED_BYTES = 200_000
PLAIN = {"Accept-Encoding": "identity"}


def test_a_row_has_the_worst_level_and_counts_each_chip_once() -> None:
    faults = [
        fault_row("n1", "Ascend910-3", "NotHandleFault", code="80E18401"),
        fault_row("n1", "Ascend910-3", "SeparateNPU"),
        fault_row("n1", "Ascend910-4", "RestartNPU"),
        fault_row("n1", "CPU 1", "PreSeparateFault", "host", code="00000001"),
        fault_row("n1", "Ascend910-5", "ManuallySeparateNPU", hidden="filter", code="80C98009"),
    ]
    (row,) = fleet_rows(
        [status_row("n1")], faults, {"n1": device_record(super_pod_id=0, rack_id=7)}
    )
    assert row == FleetNode(
        node="n1",
        level="SeparateNPU",
        chips=CHIPS,
        levels={"SeparateNPU": 1, "RestartNPU": 1},
        kinds=("chip", "host"),
        codes=("00000001", "80E18401", "80E18402"),
        super_pod=0,
        rack=7,
    )


def test_a_node_without_faults_is_short_and_what_is_not_known_is_null() -> None:
    rows = fleet_rows(
        [
            status_row("n1"),
            status_row("n2", blind=None, heartbeat="lost", node_status="UnHealthy"),
            status_row("n3", blind=(BlindStatus("bmc"),), blind_left_out=2),
        ],
        [
            fault_row("n0", "mlx5_0", "SeparateDPU", "dpu"),
            fault_row("n9", "mlx5_0", "SeparateDPU", "dpu"),
        ],
        {"n1": device_record()},
    )
    shown = [json.loads(msgspec.json.encode(row)) for row in rows]
    assert shown[1] == {"node": "n1", "chips": CHIPS}
    assert shown[2] == {"node": "n2", "level": "UnHealthy", "blind": None, "heartbeat": "lost"}
    assert shown[3] == {"node": "n3", "blind": 3}
    assert [row["node"] for row in shown] == ["n0", "n1", "n2", "n3", "n9"]
    assert (shown[0]["heartbeat"], shown[0]["blind"]) == ("unknown", None)


def test_every_level_has_a_weight_and_an_unknown_one_is_no_mild_one() -> None:
    assert {*ChipLevel, *SwitchLevel, *NodeLevel} <= {row.level for row in LEVEL_WEIGHTS}
    levels = ["NotHandleFault", "SubHealthFault", "NewLevel", "PreSeparateNPU", "SeparateNPU"]
    assert sorted(levels, key=rank) == levels[::-1]


def a_fleet(count: int = 3) -> GivenQueries:
    faulty = range(0, count, max(1, count // 100))
    return GivenQueries(
        [status_row(f"node-{number:05}") for number in range(count)],
        [
            fault_row(f"node-{number:05}", f"Ascend910-{number % 16}", "SeparateNPU")
            for number in faulty
        ],
    )


@pytest.fixture
def fleet() -> GivenQueries:
    return a_fleet()


@pytest.fixture
async def client(fleet: GivenQueries) -> AsyncIterator[TestClient[web.Request, web.Application]]:
    pages = web.Application()
    pages.router.add_get("/api/v1/fleet", FleetPages(fleet.queries).show)
    server = TestServer(pages)
    async with TestClient(server, auto_decompress=False) as opened:
        yield opened


async def test_pages_share_a_rendering_while_nothing_changes(
    fleet: GivenQueries, client: TestClient[web.Request, web.Application]
) -> None:
    answers = [await client.get("/api/v1/fleet", headers=PLAIN) for _ in range(5)]
    assert fleet.made == 1
    page = await answers[0].json()
    assert (page["epoch"], page["stream"], page["leads"]) == ("run", "run-0", True)
    assert page["stores_away"] == [{"store": "kubernetes:", "reason": "no route"}]
    packed = await client.get("/api/v1/fleet", headers={"Accept-Encoding": "gzip"})
    assert zlib.decompress(await packed.read(), 31) == await answers[0].read()
    assert packed.headers["Vary"] == "Accept-Encoding"


async def test_an_id_that_costs_nothing_shows_that_nothing_changed(
    fleet: GivenQueries,
    client: TestClient[web.Request, web.Application],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("service.pages.shared_rendering._FRESH_SECONDS", 0.0)
    tag = (await client.get("/api/v1/fleet")).headers["ETag"]
    asked = {"If-None-Match": tag}
    assert (await client.get("/api/v1/fleet", headers=asked)).status == 304
    assert fleet.made == 1
    fleet.stream.send("change", LivenessStatus(False, True, 0, (), (), {}))
    answer = await client.get("/api/v1/fleet", headers=asked)
    assert (answer.status, fleet.made) == (200, 2)
    fleet.queries.heartbeat_monitor.lost_nodes.lost = {"n1": 1}
    lost = await client.get("/api/v1/fleet", headers={"If-None-Match": answer.headers["ETag"]})
    assert (lost.status, fleet.made) == (200, 3)


async def test_a_rendering_is_good_for_a_second_and_keeps_its_id(
    fleet: GivenQueries, client: TestClient[web.Request, web.Application]
) -> None:
    tag = (await client.get("/api/v1/fleet")).headers["ETag"]
    fleet.stream.send("change", LivenessStatus(False, True, 0, (), (), {}))
    assert (await client.get("/api/v1/fleet")).headers["ETag"] == tag
    assert fleet.made == 1


async def test_no_rows_are_made_before_the_start_is_over(
    fleet: GivenQueries, client: TestClient[web.Request, web.Application]
) -> None:
    fleet.queries.readiness.is_past_start.return_value = False
    for path in ("/api/v1/fleet", "/api/v1/fleet?node=node-00001"):
        answer = await client.get(path)
        assert (answer.status, await answer.json()) == (
            503,
            {"error": "not everything is read and published yet"},
        )
    assert fleet.made == 0
    fleet.queries.readiness.is_past_start.return_value = True
    assert (await client.get("/api/v1/fleet")).status == 200


async def test_single_rows_are_made_for_a_page_that_saw_a_change(
    fleet: GivenQueries, client: TestClient[web.Request, web.Application]
) -> None:
    answer = await client.get("/api/v1/fleet?node=node-00001&node=gone", headers=PLAIN)
    assert [row["node"] for row in (await answer.json())["nodes"]] == ["node-00001"]
    assert fleet.made == 0


async def test_rows_for_the_stream_name_the_nodes_that_are_gone(fleet: GivenQueries) -> None:
    rows = await FleetPages(fleet.queries).changed_rows(frozenset({"node-00001", "gone"}))
    assert rows.asked == ("gone", "node-00001")
    assert [row.node for row in rows.page.nodes] == ["node-00001"]
    assert (rows.page.epoch, fleet.made) == ("run", 0)


@pytest.mark.slow
async def test_ten_thousand_nodes_are_small_enough() -> None:
    fleet = a_fleet(NODES)
    pages = web.Application()
    pages.router.add_get("/api/v1/fleet", FleetPages(fleet.queries).show)
    async with TestClient(TestServer(pages), auto_decompress=False) as client:
        answer = await client.get("/api/v1/fleet", headers={"Accept-Encoding": "gzip"})
        packed = await answer.read()
    assert len(json.loads(zlib.decompress(packed, 31))["nodes"]) == NODES
    assert len(packed) <= MAX_PACKED_BYTES
