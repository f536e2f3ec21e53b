"""Worked examples of NodeD's specification that are about a life of the agent (``noded#9``).

Those about documents alone are in ``tests/agent/publishing/test_node_info.py``.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from contract.documents.node_info import decode_node_info, render_node_entry
from contract.errors import DocumentError
from contract.go import encode as go_json
from tests.compatibility import check, different
from tests.replay.node import NodePlayer, time_zone

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.looptime(resolution=2**-20)

SYSTEM: list[Any] = ["2C000031", 44, 0, 2]
E1 = (
    '{"NodeInfo":{"FaultDevList":[{"DeviceType":"System","DeviceId":0,"FaultCode":["2C000031"],'
    '"FaultLevel":"SeparateFault"}],"NodeStatus":"UnHealthy"},"CheckCode":'
    '"c1f166694166885fe98287028d1eaf749a5a84b595c63481df395ad3052639c4"}'
)


def life(*steps: dict[str, Any], alarms: list[Any], ends_ms: int) -> dict[str, Any]:
    """Return a recording in which an agent starts and ``steps`` follow."""
    node = {"at_ms": 0, "do": "node", "action": "create", "annotations": {"a": "b"}}
    bmc = {"at_ms": 0, "do": "bmc", "alarms": alarms}
    start = {"at_ms": 0, "do": "start-agent", "node_name": "node-1"}
    return {"name": "ours", "steps": [node, bmc, start, *steps], "end_ms": ends_ms}


async def played(recording: dict[str, Any], place: Path) -> NodePlayer:
    """Return a player that has done all steps of ``recording``."""
    player = NodePlayer(recording, place)
    with player.replaced():
        await player.all_steps()
        await player.end()
    return player


def info(text: str, digest: str) -> dict[str, str]:
    """Return the data of a node-info document with this content and check code."""
    return {
        "NodeInfo": f'{{"NodeInfo":{text},"CheckCode":"{digest}"}}',
        "updateTime": "2026-01-01T08:00:00+08:00",
    }


EMPTY = "de38ed93b4fcbb7e7314695274a68ccf4aaece2c8fa2df361942d25731584886"
NULL = "0e41611c88c69578c004cb930ce23dc99e68844eae5cbac1ea0b6a9f789bfaf0"
NO_CODES = "74be071f995cbe1c74ac8f9776def747756e99b54e8edae9925d662872c01413"


@pytest.mark.parametrize(
    ("text", "digest"),
    [
        ('{"FaultDevList":[],"NodeStatus":"Healthy"}', EMPTY),
        ('{"FaultDevList":null,"NodeStatus":"Healthy"}', NULL),
        (
            '{"FaultDevList":[{"DeviceType":"CPU","DeviceId":0,"FaultCode":null,'
            '"FaultLevel":"NotHandleFault"}],"NodeStatus":"Healthy"}',
            NO_CODES,
        ),
    ],
)
def test_e16_null_is_not_empty(text: str, digest: str) -> None:
    assert hashlib.sha256(text.encode()).hexdigest() == digest
    assert go_json.check_code(json.loads(text)) == digest
    assert decode_node_info("example", info(text, digest)).status == "Healthy"


def test_e16_a_missing_list_is_null() -> None:
    text = '{"NodeStatus":"Healthy"}'
    assert decode_node_info("example", info(text, NULL)).faults == ()
    with pytest.raises(DocumentError):
        decode_node_info("example", info(text, EMPTY))


async def test_e18_the_whole_config_map(tmp_path: Path) -> None:
    """D-18: an owner reference is all that ours has not."""
    upstream = {
        "name": "mindx-dl-nodeinfo-node-1",
        "namespace": "mindx-dl",
        "labels": {"mx-consumer-cim": "true"},
        "ownerReferences": "DaemonSet noded",
    }
    with time_zone("Asia/Shanghai"):
        player = await played(life(alarms=[SYSTEM], ends_ms=2_000), tmp_path)
    document = player.document
    assert document is not None
    ours = {"name": document.name, "namespace": document.namespace, "labels": document.labels}
    check("noded/E18", different(upstream, ours, "$.metadata"))
    assert document.data.keys() == {"NodeInfo", "updateTime"}
    assert document.data["NodeInfo"] == E1
    assert document.data["updateTime"][19:] == "+08:00"


def test_e19_what_the_cluster_receives() -> None:
    data = {"NodeInfo": E1, "updateTime": "2026-01-01T08:00:00+08:00"}
    assert render_node_entry("node-1", decode_node_info("example", data)) == (
        '{"FaultDevList":[{"DeviceType":"System","DeviceId":0,"FaultCode":["2C000031"],'
        '"FaultLevel":"SeparateFault"}],"NodeStatus":"UnHealthy",'
        '"CmName":"mindx-dl-nodeinfo-node-1","UpdateTime":1767225600000}'
    )


async def test_n1_the_serial_number(tmp_path: Path) -> None:
    reply = "00 00 32 31 30 32 33 31 33 4C 4E 52 31 30 50 35 30 30 30 30 31 32"
    raw = {"at_ms": 0, "do": "bmc", "raw_replies": [{"for": "90@4", "reply": reply}]}
    recording = life(alarms=[], ends_ms=2_000)
    recording["steps"].insert(1, raw)
    player = await played(recording, tmp_path)
    assert player.serial_number == "2102313LNR10P5000012"
    assert player.cluster.objects.node.annotations["a"] == "b"


@pytest.mark.slow
async def test_c1_c2_a_start_with_a_fault_has_one_order(tmp_path: Path) -> None:
    """D-03: C2 deletes the document and writes it a minute later; ours is always C1."""
    steps = [
        {"at_ms": at_ms, "do": do, "node_name": "node-1", "signal": "SIGKILL"}
        for number in range(8)
        for at_ms, do in (
            (2_000 + 2_000 * number, "stop-agent"),
            (3_000 + 2_000 * number, "restart-agent"),
        )
    ]
    player = await played(life(*steps, alarms=[SYSTEM], ends_ms=20_000), tmp_path)
    assert {seen.document.data["NodeInfo"] for seen in player.shown if seen.document} == {E1}
    assert all(seen.document is not None for seen in player.shown)


@pytest.mark.slow
async def test_c3_the_same_twice_is_written_once(tmp_path: Path) -> None:
    player = await played(life(alarms=[SYSTEM], ends_ms=26 * 60_000), tmp_path)
    assert len(player.shown) == 1


@pytest.mark.slow
async def test_c4_a_fault_during_an_outage_is_written_when_it_is_over(tmp_path: Path) -> None:
    """D-05: upstream waits 30 minutes, or for another alarm."""
    steps = [
        {"at_ms": 5_000, "do": "api-server", "action": "stop"},
        {"at_ms": 6_000, "do": "bmc", "alarms": [SYSTEM]},
        {"at_ms": 66_000, "do": "api-server", "action": "start"},
    ]
    player = await played(life(*steps, alarms=[], ends_ms=100_000), tmp_path)
    (seen,) = player.shown
    assert seen.at_ms >= 66_000
    assert seen.document is not None
    assert seen.document.data["NodeInfo"] == E1
