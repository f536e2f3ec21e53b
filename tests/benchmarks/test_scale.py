"""What the scale benchmark counts and judges."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import scale
from benchmarks.scale_documents import (
    NODE_OBJECT_BYTES,
    config_map,
    device_document,
    node_names,
    node_object,
    pod_object,
)
from benchmarks.scale_player import PlayedApiServer
from benchmarks.scale_table import LINES, missed, without_times
from benchmarks.scale_watch import Counted
from contract.documents import device_info
from contract.go import encode as go_json


@pytest.mark.parametrize("chips", [8, 16])
def test_the_documents_are_what_agents_write(chips: int) -> None:
    document = device_document("node-00001", 1_760_000_000, 3, chips)
    info = device_info.verify_published(document.data, document.name)
    assert (len(info.free), info.unhealthy) == (chips - 1, ("Ascend910-3",))
    assert (info.switch_info is None) == (chips == 8)


def test_nodes_and_pods_are_as_large_as_real_ones() -> None:
    size = len(go_json.encode(node_object(7, "node-00007")))
    assert NODE_OBJECT_BYTES * 0.95 < size <= NODE_OBJECT_BYTES
    used = [
        pod_object(number, node_names(5), 8)["metadata"]["annotations"]["huawei.com/AscendReal"]
        for number in (2, 3)
    ]
    assert sorted(",".join(used).split(",")) == [f"Ascend910-{chip}" for chip in range(8)]


def test_the_busiest_second_lies_anywhere() -> None:
    assert Counted().most_in_a_second == 0
    assert Counted(at=[0.0, 0.9, 1.0, 1.1, 1.5, 1.89, 2.5]).most_in_a_second == 5


def test_a_missed_budget_is_reported_and_other_sizes_have_none() -> None:
    good: dict[str, Any] = {"nodes": 10_000, "chips": 8}
    good |= {line.key: 0.0 for line in LINES}
    assert missed([good]) == []
    bad = good | {"change_p50_ms": 100.1}
    assert len(missed([bad])) == 1
    assert "change_p50_ms" in missed([bad])[0]
    assert missed([bad | {"chips": 16}, bad | {"nodes": 5000}]) == []
    slow = good | {"change_p50_times": 1.51, "change_p99_times": 2.0}
    assert missed([slow]) == [
        "10000 nodes: times the large ConfigMap, p50 (change_p50_times) is 1.51"
    ]


def test_a_played_run_has_no_times_and_judges_none() -> None:
    slow = {"nodes": 100_000, "chips": 8, "complete_s": 99.0, "storm_s": 99.0, "load": [1.0]}
    slow |= {"change_p50_ms": 9.0, "change_p50_times": 9.0, "rest_cpu_s": 3.1, "storm_writes_s": 9}
    left = without_times(slow)
    assert left.keys() == {"nodes", "chips", "load", "rest_cpu_s", "storm_writes_s"}
    assert missed([left]) == ["100000 nodes: CPU at rest, per minute (rest_cpu_s) is 3.1"]


@pytest.mark.parametrize("part", ["leases", "takeover", "full", "advice", "dpus"])
def test_a_played_api_server_is_refused_for_parts_that_need_a_real_one(
    part: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["scale", "--played", "--only", "rest", "--only", part])
    with pytest.raises(SystemExit, match="2"):
        scale.main()
    assert "--played measures changes, rest, storm and no other part" in capsys.readouterr().err


def test_a_played_api_server_has_a_document_of_each_node_in_pages() -> None:
    server = PlayedApiServer(5, 8)
    path = "/api/v1/namespaces/kube-system/configmaps"

    def listed() -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        more = ""
        while True:
            query = f"labelSelector=mx-consumer-cim%3Dtrue&limit=2{more}"
            page = server.ask("GET", f"{path}?{query}")[1]
            items += page["items"]
            if "continue" not in page["metadata"]:
                return items
            more = f"&continue={page['metadata']['continue']}"

    before = listed()
    assert [item["metadata"]["name"][-5:] for item in before] == [f"{n:05}" for n in range(5)]
    written = config_map(device_document("node-00003", 1_770_000_000, 2))
    status, _ = server.ask("PUT", f"{path}/{written['metadata']['name']}", written)
    assert status == 200
    after = listed()
    assert after[3]["data"] == written["data"] != before[3]["data"]
    assert [*after[:3], after[4]] == [*before[:3], before[4]]
