"""What ``vigil jobs`` makes of the answers of an aggregator."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.vigil.stand import AGENT, AT_MS, LEADER, Stand, vigil

FAULT = {
    "device_id": "3",
    "device_type": "NPU",
    "code": "80E18402",
    "level": "SeparateNPU",
    "time_ms": AT_MS - 200_000,
}
JOB: dict[str, Any] = {
    "job": "uid",
    "namespace": "team",
    "name": "train",
    "health": "UnHealthy",
    "since_ms": AT_MS - 100_000,
    "nodes": [{"node": "node-1", "health": "UnHealthy", "since_ms": 1, "faults": [FAULT]}],
}
ROW = {"node": "node-1", "subject": "Ascend910-5", "kind": "chip", "code": "x", "level": ""}
PODS = {"store": "kubernetes:", "kind": "pods", "followed": True, "known": True}


@pytest.fixture
def aggregator(stand: Stand) -> Stand:
    stand.answers = {
        "/api/v1/leader": LEADER,
        "/api/v1/jobs": {"at_ms": AT_MS, "jobs": [JOB]},
        "/api/v1/faults": {"at_ms": AT_MS, "faults": [ROW]},
        "/api/v1/cluster-state": {"cluster_state": {"objects": [PODS]}},
    }
    return stand


def jobs(stand: Stand, *arguments: str) -> tuple[int, list[str], str]:
    status, output, errors = vigil(stand, "jobs", "--utc", *arguments, COLUMNS="300")
    return status, output.decode().splitlines(), errors


def test_a_job_that_is_hit_is_shown_with_what_hits_it(aggregator: Stand) -> None:
    status, lines, _ = jobs(aggregator)
    assert status == 1
    assert lines == [
        f"answered by: aggregator, which leads ({aggregator.url})",
        "",
        "team/train: UnHealthy, since 1 min ago (21:32:49 UTC)",
        lines[3],
    ]
    assert lines[3].startswith(
        "  node-1  Ascend910-3  80E18402  SeparateNPU  3 min ago (21:31:09 UTC)  The total number"
    )


def test_a_chip_of_a_node_without_names_keeps_its_number(aggregator: Stand) -> None:
    aggregator.answers["/api/v1/faults"] = {"at_ms": AT_MS, "faults": []}
    assert "  NPU 3  " in jobs(aggregator)[1][3]


def test_no_job_that_is_hit_is_well(aggregator: Stand) -> None:
    aggregator.answers["/api/v1/jobs"] = {"at_ms": AT_MS, "jobs": []}
    status, lines, _ = jobs(aggregator)
    assert (status, lines[1:]) == (0, ["no job is known to be hit"])


@pytest.mark.parametrize(
    ("objects", "what"),
    [
        ([], "which pods use chips: no store of this aggregator has pods"),
        ([PODS | {"interrupted": "refused"}], "pods of kubernetes: (refused)"),
        ([PODS | {"known": False}], "pods of kubernetes: (they are not read yet)"),
    ],
)
def test_without_pods_jobs_are_unknown(aggregator: Stand, objects: list[Any], what: str) -> None:
    aggregator.answers["/api/v1/jobs"] = {"at_ms": AT_MS, "jobs": []}
    aggregator.answers["/api/v1/cluster-state"] = {"cluster_state": {"objects": objects}}
    status, lines, _ = jobs(aggregator)
    assert (status, lines[1]) == (1, f"not known:   {what}")


def test_an_agent_knows_no_jobs(stand: Stand) -> None:
    stand.answers = {"/api/v1/status": AGENT}
    status, lines, errors = jobs(stand)
    assert (status, lines) == (2, [])
    assert "is not an aggregator" in errors


def test_json_has_every_fault(aggregator: Stand) -> None:
    found = json.loads(jobs(aggregator, "--json")[1][0])
    (fault,) = found["jobs"][0]["faults"]
    assert (fault["part"], fault["since_ms"]) == ("Ascend910-3", AT_MS - 200_000)
