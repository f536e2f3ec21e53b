"""What ``vigil timeline`` makes of the history of an aggregator."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from contract.errors import ConfigurationError
from tests.vigil.stand import AGENT, AT_MS, LEADER, Stand, vigil
from vigil.reports.times import since_of

CHANGE = {"node": "node-1", "at_ms": AT_MS, "subject": "Ascend910-3", "code": "80E18402"}
EVENT = {
    "sequence": 1,
    "place": 0,
    "episode": "e",
    "kind": "began",
    "subject": {"kind": "chip", "id": 3},
    "code": "80E18402",
    "at_ms": AT_MS - 10,
    "new_level": "SeparateNPU",
    "because": "it is in the table",
}


def entry(number: int, **what: Any) -> dict[str, Any]:
    return {"number": number, "node": "node-1", "journal": "", "received_at_ms": AT_MS} | what


ENTRIES = [
    entry(1, lost=7),
    entry(2, event=EVENT),
    entry(3, published=CHANGE | {"level": "SeparateNPU"}),
    entry(4, published=CHANGE | {"was": "SeparateNPU", "level": "RestartNPU"}),
    entry(5, published=CHANGE | {"was": "RestartNPU"}),
    entry(6, published=CHANGE | {"subject": "node", "code": "status", "level": "UnHealthy"}),
]


@pytest.fixture
def aggregator(stand: Stand) -> Stand:
    first = {"events": ENTRIES[:4], "next": 4, "more": True}
    stand.answers = {
        "/api/v1/leader": LEADER,
        "/api/v1/nodes/node-1": {},
        "/api/v1/history?": first,
        "/api/v1/history?after=4": {"events": ENTRIES[4:], "next": 6, "more": False},
        "/api/v1/history?node=node-1": first,
        "/api/v1/history?node=node-1&after=4": {"events": ENTRIES[4:], "next": 6, "more": False},
        "/api/v1/history?node=node-2&limit=1": {"events": [], "next": 0, "more": False},
    }
    return stand


def timeline(stand: Stand, *arguments: str) -> tuple[int, list[str], str]:
    status, output, errors = vigil(stand, "timeline", "--utc", *arguments, COLUMNS="200")
    return status, output.decode().splitlines(), errors


def test_every_page_is_shown_oldest_first(aggregator: Stand) -> None:
    status, lines, _ = timeline(aggregator)
    assert status == 0
    assert lines[0] == f"answered by: aggregator, which leads ({aggregator.url})"
    at = lines[1].partition("node-1")[0]
    assert at == f"{datetime.fromtimestamp(AT_MS // 1000, UTC):%Y-%m-%d %H:%M:%S} UTC  "
    chip = f"{at}node-1  Ascend910-3  80E18402  published  "
    assert lines[1] == f"{at}node-1  lost  7 earlier changes are in no journal any more"
    assert lines[2].startswith(
        f"{at}node-1  chip 3  80E18402  reported  begins at SeparateNPU  it is in the table  "
    )
    assert lines[3].startswith(f"{chip}begins at SeparateNPU  ")
    assert lines[4].startswith(f"{chip}changes from SeparateNPU to RestartNPU  ")
    assert lines[5].startswith(f"{chip}ends, was RestartNPU  ")
    assert lines[6] == f"{at}node-1  node  published  begins at UnHealthy"


@pytest.mark.parametrize("chip", ["3", "Ascend910-3"])
def test_one_chip_is_shown_however_it_is_named(aggregator: Stand, chip: str) -> None:
    found = json.loads(timeline(aggregator, f"node-1/{chip}", "--json")[1][0])
    assert [row["number"] for row in found["rows"]] == [2, 3, 4, 5]


def test_a_node_that_was_never_there_is_wrong_use(aggregator: Stand) -> None:
    status, lines, errors = timeline(aggregator, "node-2")
    assert (status, lines) == (2, [])
    assert "knows no node of this name" in errors


def test_an_agent_of_an_earlier_release_has_no_history(stand: Stand) -> None:
    stand.answers = {"/api/v1/status": AGENT}
    status, lines, errors = timeline(stand)
    assert (status, lines) == (3, [])
    assert f"the agent at {stand.url} shows no history" in errors


@pytest.mark.slow
def test_an_agent_shows_the_history_of_its_node(stand: Stand) -> None:
    page = {"events": ENTRIES[1:2], "next": 2, "more": False}
    stand.answers = {
        "/api/v1/status": AGENT,
        "/api/v1/history?limit=1": page,
        "/api/v1/history?": page,
        "/api/v1/history?node=node-1": page,
    }
    for arguments in ((), ("node-1",), ("node-1/3",)):
        status, lines, _ = timeline(stand, *arguments)
        assert status == 0
        assert lines[0].startswith("answered by: agent of node-1, version 9.9")
        assert "Ascend910-3  80E18402  reported  begins at SeparateNPU" in lines[2]
    status, lines, errors = timeline(stand, "node-2")
    assert (status, lines) == (2, [])
    assert "is of node-1" in errors


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("90s", AT_MS - 90_000),
        ("10min", AT_MS - 600_000),
        ("2h", AT_MS - 7_200_000),
        ("1d", AT_MS - 86_400_000),
        ("99999999d", 0),
        ("2026-11-23T21:44", int(datetime(2026, 11, 23, 21, 44, tzinfo=UTC).timestamp()) * 1000),
        (
            "2026-11-23T21:44+02:00",
            int(datetime(2026, 11, 23, 19, 44, tzinfo=UTC).timestamp()) * 1000,
        ),
    ],
)
def test_a_beginning_is_a_length_or_a_time(text: str, at_ms: int) -> None:
    assert since_of(text, AT_MS, utc=True) == at_ms


@pytest.mark.parametrize("text", ["", "h", "10", "10 h", "-1h", "yesterday", "2026-13-01", "²h"])
def test_another_beginning_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--since"):
        since_of(text, AT_MS, utc=True)
