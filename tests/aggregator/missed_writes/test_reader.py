"""What no watch has shown is read by name, because of a heartbeat; in virtual time."""

from __future__ import annotations

import contextlib
import json
import logging
from typing import TYPE_CHECKING
from unittest.mock import MagicMock

import pytest

from aggregator.missed_writes.claims import PATIENCE_MS, Claims, WriteClaim
from aggregator.missed_writes.reader import MissedWrites
from contract.documents.write_numbers import encode_writes
from service.clock import Instant
from stores.base import Beat
from tests.aggregator.nodes import node_report
from tests.cluster.beating import agents
from tests.cluster.playing import KEY, broken, cluster
from tests.contract.documents.node_documents import config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.cluster.apiserver import Place
    from tests.cluster.beating import Agents
    from tests.cluster.playing import Cluster

pytestmark = pytest.mark.looptime(resolution=2**-20)

T0 = 1_760_000_500
SHOWN_SECONDS = 15
_LIST = ("GET", "api/v1/configmaps", "kube-system", None)


def nodes(place: Place) -> bool:
    """Return whether it is a document of a node."""
    return place.resource == "api/v1/configmaps"


def fall_silent(site: Cluster) -> None:
    """Let the watches of the nodes' documents live, and show nothing more."""
    assert site._client is not None
    site._client.fall_behind(nodes)


def reads(site: Cluster) -> int:
    """Count the reads of the namespace of device-info, without watches."""
    return sum(
        (method, place.resource, place.namespace, place.name) == _LIST
        for method, place in site.api.requests
    )


@pytest.fixture(autouse=True)
def _logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


@contextlib.asynccontextmanager
async def beating(place: Path, count: int) -> AsyncIterator[tuple[Cluster, Agents]]:
    """Run an aggregator that has read so many nodes, which beat and name their writes."""
    names = [f"n{number}" for number in range(count)]
    async with cluster(place) as site:
        for node in names:
            await site.device(node, config(update_time=T0))
        async with agents(site, names) as beats:
            beats.writes = dict.fromkeys(names, encode_writes({"device-info": T0}))
            site.start()
            await site.pass_time(20)
            site.api.requests.clear()
            yield site, beats


async def write(site: Cluster, beats: Agents, node: str, number: int, *chips: int) -> None:
    """Write a node's device-info, and name that write in its next beat."""
    await site.device(node, broken(*chips, update_time=number))
    beats.writes[node] = encode_writes({"device-info": number})


@pytest.mark.slow
async def test_a_fault_that_no_watch_shows_is_read_by_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with beating(tmp_path, 3) as (site, beats):
        fall_silent(site)
        await write(site, beats, "n1", T0 + 1, 3)
        await site.pass_time(SHOWN_SECONDS)
        assert site.unhealthy("n1") == "Ascend910-3"
        assert reads(site) == 1
        await site.pass_time(60)
        assert reads(site) == 1
        text = "has not shown the last write of device-info, it was read by name: n1"
        assert caplog.text.count(text) == 1
        # What it shows at last is from before that, and what follows counts.
        await write(site, beats, "n1", T0 + 2, 3, 4)
        await site.pass_time(SHOWN_SECONDS)
        assert site.unhealthy("n1") == "Ascend910-3,Ascend910-4"
        assert site._client is not None
        site._client.catch_up()
        await site.pass_time(5)
        assert site.unhealthy("n1") == "Ascend910-3,Ascend910-4"
        await write(site, beats, "n1", T0 + 3)
        await site.pass_time(1)
        assert site.unhealthy("n1") == ""
        assert reads(site) == 2


@pytest.mark.slow
async def test_a_recovery_and_faults_of_50_nodes_are_read_by_name_and_of_more_listed(
    tmp_path: Path,
) -> None:
    async with beating(tmp_path, 120) as (site, beats):
        fall_silent(site)
        await write(site, beats, "n7", T0 + 1, 3)
        await site.pass_time(SHOWN_SECONDS)
        assert site.unhealthy("n7") == "Ascend910-3"
        assert reads(site) == 1
        for node in beats.nodes:
            await write(site, beats, node, T0 + 2, 5)
        await site.pass_time(SHOWN_SECONDS)
        shown = {entry["DeviceList"][f"{KEY}-Unhealthy"] for entry in site.devices.values()}
        assert shown == {"Ascend910-5"}
        # Heartbeats are listed every 5 s, and those come one after the other.
        assert 1 <= reads(site) - 1 <= 4


@pytest.mark.slow
async def test_while_watches_work_nothing_is_read(tmp_path: Path) -> None:
    async with beating(tmp_path, 20) as (site, beats):
        for number in range(1, 60):
            await write(site, beats, f"n{number % 20}", T0 + number, number % 8)
            await site.pass_time(1.3)
        await site.pass_time(30)
        assert reads(site) == 0


@pytest.mark.slow
async def test_a_write_that_the_store_has_not_is_looked_for_once(tmp_path: Path) -> None:
    async with beating(tmp_path, 3) as (site, beats):
        for number in (5, 6):
            beats.writes["n1"] = encode_writes({"device-info": T0 + number})
            await site.pass_time(40)
        assert reads(site) == 2
        assert site.unhealthy("n1") == ""
        # An earlier one, as of a beat that comes late, changes nothing.
        beats.writes["n1"] = encode_writes({"device-info": T0 - 100})
        await site.pass_time(40)
        assert reads(site) == 2


@pytest.mark.slow
async def test_a_document_that_is_missing_briefly_is_not_taken_for_deleted(
    tmp_path: Path,
) -> None:
    async with beating(tmp_path, 3) as (site, beats):
        await write(site, beats, "n1", T0 + 1, 3)
        await site.pass_time(5)
        fall_silent(site)
        await site.gone("n1")
        beats.writes["n1"] = encode_writes({"device-info": T0 + 2})
        await site.pass_time(SHOWN_SECONDS)
        assert reads(site) == 1
        assert site.unhealthy("n1") == "Ascend910-3"
        await site.pass_time(60)
        assert reads(site) == 1


@pytest.mark.slow
async def test_a_read_that_fails_is_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with beating(tmp_path, 3) as (site, beats):
        fall_silent(site)
        site.api.refuses = lambda method, place: (
            (method, place.resource, place.namespace, place.name) == _LIST
        )
        await write(site, beats, "n1", T0 + 1, 3)
        await site.pass_time(30)
        assert 2 <= reads(site) <= 6
        assert caplog.text.count("cannot be read by name, trying again") == 1
        site.api.refuses = lambda *_: False
        await site.pass_time(6)
        assert site.unhealthy("n1") == "Ascend910-3"
        assert caplog.text.count("can be read by name again") == 1


@pytest.mark.slow
async def test_a_document_that_is_to_be_absent(tmp_path: Path) -> None:
    async with beating(tmp_path, 2) as (site, beats):
        ill = node_report("n1", [], "UnHealthy").data
        await site.server("n1", ill, 1)
        assert "n1" in site.servers
        fall_silent(site)
        thing = {"namespace": "mindx-dl", "name": "mindx-dl-nodeinfo-n1"}
        await site.do({"do": "delete-configmap", "object": thing})
        beats.writes["n1"] = encode_writes({"device-info": T0, "node-info": -2_000_000_000})
        await site.pass_time(SHOWN_SECONDS)
        assert "n1" not in site.servers
        assert site.unhealthy("n1") == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nonsense", "it is not a JSON object"),
        ('{"version":2,"device-info":9999999999}', "it is of version 2"),
        ('{"version":1,"device-info":9999999999}' + " " * 144, "more than 144"),
    ],
)
async def test_a_key_that_cannot_be_read_is_named_once_and_proves_nothing(
    text: str, why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with beating(tmp_path, 3) as (site, beats):
        beats.writes["n1"] = text
        await site.device("n1", broken(2, update_time=T0 + 1), 60)
        assert site.unhealthy("n1") == "Ascend910-2"
        assert reads(site) == 0
        lines = [one for one in caplog.messages if "key about writes in heartbeats" in one]
        assert len(lines) == 1
        assert "n1" in lines[0]
        assert why in lines[0]
        beats.writes["n1"] = encode_writes({"device-info": T0 + 1})
        await site.pass_time(SHOWN_SECONDS)
        assert sum("can be read again" in one for one in caplog.messages) == 1
        assert "lost" not in caplog.text


@pytest.mark.slow
async def test_agents_of_the_release_before_prove_nothing(tmp_path: Path) -> None:
    async with beating(tmp_path, 3) as (site, beats):
        beats.writes.clear()
        await site.pass_time(10)
        fall_silent(site)
        await site.device("n1", broken(2, update_time=T0 + 1), 60)
        assert site.unhealthy("n1") == ""
        assert reads(site) == 0


@pytest.mark.slow
async def test_public_faults_of_storage_that_no_watch_shows(tmp_path: Path) -> None:
    async with beating(tmp_path, 2) as (site, beats):
        fall_silent(site)
        message = {
            "id": "11937763019444715778",
            "timestamp": (T0 + 30) * 1000,
            "version": "1.0",
            "resource": "dpcStorage",
            "faults": [
                {
                    "faultId": "11937763019444715779",
                    "faultType": "Storage",
                    "faultCode": "110001020",
                    "faultTime": (T0 + 30) * 1000,
                    "assertion": "occur",
                    "influence": [{"nodeName": "n1", "deviceIds": [4]}],
                    "description": "test",
                }
            ],
        }
        thing = {
            "namespace": "mindx-dl",
            "name": "npu-vigil-dpc-fault-n1",
            "labels": {"mc-consumer-publicfault": "true"},
            "data": {"PublicFault": json.dumps(message)},
        }
        await site.do({"do": "put-configmap", "object": thing})
        beats.writes["n1"] = encode_writes({"device-info": T0, "dpc-fault": T0 + 30})
        await site.pass_time(SHOWN_SECONDS)
        assert "110001020" in json.dumps(site.devices["n1"])


class Known:
    """Documents whose write numbers the test sets; ``None``: one that is refused."""

    def __init__(self) -> None:
        self.numbers: dict[str, int | None] = {}

    def written_at_ms(self, node: str) -> int | None:
        number = self.numbers.get(node)
        return None if number is None else number * 1000

    def has(self, node: str) -> bool:
        return node in self.numbers


def due(known: dict[str, int | None], claimed: int) -> bool:
    """Return whether a document must be read 2 s after a heartbeat that claims this write."""
    documents = Known()
    missed = MissedWrites(
        MagicMock(url="s:"),
        {"node-info": documents},  # type: ignore[dict-item]
        lambda *_: None,
        lambda: Instant(0, 0),
        lambda: None,
    )
    documents.numbers = known
    beat = Beat("n1", "host", 5.0, 1, writes=encode_writes({"node-info": claimed, "dpc-fault": 9}))
    missed.observe_beats([beat])
    assert missed.claims.due(PATIENCE_MS - 1) == {}
    return bool(missed.claims.due(PATIENCE_MS))


@pytest.mark.parametrize(
    ("known", "claimed", "is_due"),
    [
        ({"n1": 7}, 7, False),
        ({"n1": 8}, 7, False),
        ({"n1": 6}, 7, True),
        ({}, 7, True),
        ({"n1": None}, 7, True),
        ({}, -7, False),
        ({"n1": 6}, -7, True),
        ({"n1": 8}, -7, False),
        ({"n1": None}, -7, True),
    ],
)
def test_document_is_due_when_the_heartbeat_names_another_write(
    known: dict[str, int | None], claimed: int, *, is_due: bool
) -> None:
    assert due(known, claimed) is is_due


def test_write_that_the_watch_shows_within_two_seconds_is_not_read() -> None:
    has: set[int] = set()
    claims = Claims(lambda _, number: number in has)

    def beat(number: int, **more: bool) -> Beat:
        return Beat("n1", "host", 5.0, 1, writes=encode_writes({"node-info": number}), **more)

    claims.observe_beats([beat(7)], 0)
    has.add(7)
    assert claims.due(PATIENCE_MS) == {}
    assert claims.next_due_ms() is None
    claims.observe_beats([beat(8, is_broken=True)], 5000)
    assert claims.next_due_ms() is None
    # Who writes with each beat is not put off for ever.
    claims.observe_beats([beat(8)], 5000)
    claims.observe_beats([beat(9)], 6000)
    assert claims.due(7000) == {WriteClaim("node-info", "n1"): 9}
    claims.read({WriteClaim("node-info", "n1"): 9})
    claims.observe_beats([beat(9)], 8000)
    assert claims.next_due_ms() is None
    # A node that beats no more is forgotten.
    claims.observe_beats([beat(10)], 9000)
    claims.observe_beats([], 10_000)
    assert claims.next_due_ms() is None
