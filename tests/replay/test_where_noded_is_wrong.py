"""Where the real NodeD was seen to be wrong: what ours does is right.

That it differs is in ``docs/differences.md``; here stands what must be seen. The
recordings are played as they are, some with a change that makes it worse.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from contract.documents.node_info import decode_node_info
from tests.replay.node import NodePlayer
from tests.replay.noded import recorded_node

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from stores.base import Document

pytestmark = pytest.mark.looptime(resolution=2**-20)

FAN: list[Any] = ["06000025", 4, 1, 2]
SYSTEM: list[Any] = ["2C000031", 44, 0, 2]
POLL_MS = 10_100
"""The alarms of a BMC that answers are a document by then."""
AGENT = "agent"


def codes(document: Document | None) -> set[str]:
    """Return the codes in a document; none if there is no document."""
    if document is None:
        return set()
    found = decode_node_info("mindx-dl-nodeinfo-any", document.data).faults
    return {code for part in found for code in part.fault_code or ()}


@contextlib.asynccontextmanager
async def playing(recording: dict[str, Any], place: Path) -> AsyncIterator[NodePlayer]:
    """Yield a player of ``recording`` that has done no step."""
    player = NodePlayer(recording, place)
    with player.replaced():
        yield player
        await player.end()


@contextlib.asynccontextmanager
async def running(place: Path, *alarms: list[Any]) -> AsyncIterator[NodePlayer]:
    """Yield a node whose agent has read these alarms from the BMC."""
    start = {"at_ms": 0, "do": "start-agent", "node_name": "node-1"}
    bmc = {"at_ms": 0, "do": "bmc", "alarms": list(alarms)}
    async with playing({"name": "ours", "steps": [bmc, start], "end_ms": 1_000}, place) as player:
        await player.all_steps()
        yield player


def steps(recording: dict[str, Any], do: str) -> list[dict[str, Any]]:
    """Return the steps of one kind, in order of time."""
    return [step for step in recording["steps"] if step["do"] == do]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["crash-loop-with-active-fault", "restart-with-active-alarm", "report-interval-one-second"],
)
@pytest.mark.parametrize("journal", ["kept", "lost"])
@pytest.mark.parametrize("signal", ["SIGKILL", "SIGTERM"])
async def test_no_restart_takes_a_standing_fault_away(
    name: str, journal: str, signal: str, tmp_path: Path
) -> None:
    """D-03: a crash loop, and with SIGTERM a rolling update."""
    recording = recorded_node(name)
    async with playing(recording, tmp_path) as player:
        for step in recording["steps"]:
            await player.until(step["at_ms"] / 1000)
            if step["do"] != "stop-agent":
                await player.do(step)
                continue
            await player.do(step | {"signal": signal})
            if journal == "lost":
                player.forget()
        await player.until(recording["end_ms"] / 1000)
        assert len(steps(recording, "restart-agent")) >= 6
        assert player.shown, "the fault was shown"
        assert all(codes(seen.document) == {SYSTEM[0]} for seen in player.shown)


@pytest.mark.slow
async def test_a_rolling_update_with_a_blind_bmc_keeps_the_document(tmp_path: Path) -> None:
    async with running(tmp_path, SYSTEM) as player:
        before = player.document
        await player.end()
        player.forget()
        player.bmc.do({"do": "bmc-hang", "on": True})
        await player.do({"do": "restart-agent"})
        await player.until(120)
        assert list(player.blind()) == ["bmc"]
        assert player.document == before
        assert len(player.shown) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("api-outage-alarm-occurs", {SYSTEM[0]}),
        ("api-outage-alarm-recovers", set()),
        ("api-pause-alarm-occurs", {SYSTEM[0]}),
        ("api-pause-thirty-seconds-recovery", set()),
    ],
)
async def test_change_during_an_outage_is_written_after_it(
    name: str, expected: set[str], tmp_path: Path
) -> None:
    """D-05, D-06: without another change, and a deletion that was cut off is repeated."""
    recording = recorded_node(name)
    _, back = steps(recording, "api-server")
    async with playing(recording, tmp_path) as player:
        for step in recording["steps"]:
            if step["at_ms"] <= back["at_ms"]:
                await player.until(step["at_ms"] / 1000)
                await player.do(step)
        await player.until((back["at_ms"] + 35_000) / 1000)
        assert codes(player.document) == expected
        assert [seen for seen in player.shown if seen.at_ms >= back["at_ms"]]


PADDED = {"reply-length-not-multiple-of-15": 243_212}
"""When a reply has zeros behind whole alarms, which is no bad one."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *("reply-too-short", "reply-empty", "reply-length-not-multiple-of-15"),
        *("reply-shifted-without-manufacturer", "follow-up-page-malformed"),
        "completion-code-not-zero",
    ],
)
async def test_an_incomplete_reading_changes_nothing_and_is_counted(
    name: str, tmp_path: Path
) -> None:
    """D-09: while replies are bad, the document stays and the source is blind."""
    recording = recorded_node(name)
    bad = [step for step in recording["steps"] if step.get("raw_replies")]
    bad += [step for step in recording["steps"] if step.get("completion_code")]
    padded = [step for step in bad if step["at_ms"] == PADDED.get(name)]
    async with playing(recording, tmp_path) as player:
        for step in recording["steps"]:
            await player.until(step["at_ms"] / 1000)
            before = player.document
            await player.do(step)
            if step in bad:
                await player.until((step["at_ms"] + POLL_MS) / 1000)
                assert before is not None
                assert player.document == before
                assert ("bmc" in player.blind()) is (step not in padded)
                assert player.failed_readings() > 0
        await player.until(recording["end_ms"] / 1000)
        assert bad


async def test_a_list_that_changes_between_two_pages_is_read_again(tmp_path: Path) -> None:
    """An alarm goes while another one comes: the total stays, and one alarm is on no page."""
    alarms = [["06000025", 4, index, 2] for index in range(15)]
    async with running(tmp_path, *alarms) as player:
        assert player.document is not None
        changed = [*alarms[1:], ["06000025", 4, 99, 2]]
        player.bmc.between_pages = lambda: player.bmc.do({"do": "bmc", "alarms": changed})
        await player.until((1_000 + POLL_MS) / 1000)
        shown = decode_node_info("mindx-dl-nodeinfo-any", player.document.data).faults
        assert {part.device_id for part in shown} == {*range(1, 15), 99}
        for seen in player.shown:
            assert seen.document is not None
            ids = decode_node_info("mindx-dl-nodeinfo-any", seen.document.data).faults
            assert len(ids) == len(alarms), "never one too few"


@pytest.mark.slow
async def test_there_is_no_limit_of_alarms(tmp_path: Path) -> None:
    alarms = [["06000025", kind, index, 2] for kind in (4, 5) for index in range(250)]
    async with running(tmp_path, *alarms) as player:
        await player.until(POLL_MS / 1000)
        assert player.document is not None
        shown = decode_node_info("mindx-dl-nodeinfo-any", player.document.data).faults
        assert len(shown) == len(alarms)


@pytest.mark.parametrize("name", ["bmc-absent-at-start", "bmc-hangs-at-start"])
async def test_a_bmc_that_comes_back_is_asked_again(name: str, tmp_path: Path) -> None:
    """D-09: until then the old document stays, and the BMC is reported blind."""
    recording = recorded_node(name)
    (back,) = [s for s in recording["steps"] if s.get("present") or s.get("on") is False]
    async with playing(recording, tmp_path) as player:
        for step in recording["steps"]:
            await player.until((step["at_ms"] - 100) / 1000)
            if step is back:
                assert list(player.blind()) == ["bmc"]
                assert codes(player.document) == {SYSTEM[0]}
            await player.until(step["at_ms"] / 1000)
            await player.do(step)
        await player.until((back["at_ms"] + POLL_MS) / 1000)
        assert codes(player.document) == {FAN[0]}
        assert player.blind() == {}


@pytest.mark.slow
async def test_a_bmc_that_hangs_later_is_reported_blind(tmp_path: Path) -> None:
    """D-19: the document stays as it is, and is not made younger."""
    async with running(tmp_path, FAN) as player:
        player.bmc.do({"do": "bmc-hang", "on": True})
        await player.until(2 * 3_600)
        assert "does not answer within 10 s" in player.blind()["bmc"]
        assert len(player.shown) == 1, "no refresh: its age is the age of what is known"
        player.bmc.do({"do": "bmc-hang", "on": False})
        await player.until((2 * 3_600_000 + 10_000 + POLL_MS) / 1000)
        assert player.blind() == {}
        assert len(player.shown) == 2, "its age is that of the BMC's word again"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["configmap-deleted-by-hand", "configmap-edited-by-hand"])
async def test_manual_change_of_a_document_is_repaired_at_once(name: str, tmp_path: Path) -> None:
    """Also where only the label was removed, without which no reader sees the document."""
    recording = recorded_node(name)
    async with playing(recording, tmp_path) as player:
        await player.all_steps()
        by_hand = [place for place, seen in enumerate(player.shown) if seen.by != AGENT]
        assert len(by_hand) == len(steps(recording, "configmap"))
        for place in by_hand:
            before, edited = player.shown[place - 1 : place + 1]
            # What its readers cannot read is in the way of an update (D-27): it is deleted first.
            repaired = next(seen for seen in player.shown[place + 1 :] if seen.document)
            assert repaired.by == AGENT
            assert repaired.at_ms - edited.at_ms < 1_000
            assert before.document is not None
            assert repaired.document is not None
            assert repaired.document.labels == {"mx-consumer-cim": "true"}
            assert repaired.document.data["NodeInfo"] == before.document.data["NodeInfo"]


async def test_sigterm_ends_at_once(tmp_path: Path) -> None:
    """D-01: ours neither continues nor leaves the BMC's alarms unwritten."""
    recording = recorded_node("terminate-signal")
    (posted, _) = steps(recording, "stop-agent")
    async with playing(recording, tmp_path) as player:
        for step in recording["steps"]:
            await player.until(step["at_ms"] / 1000)
            await player.do(step)
            if step is posted:
                assert player.at_ms - posted["at_ms"] < 100
        assert codes(player.document) == {FAN[0]}


@pytest.mark.slow
async def test_state_at_sigterm_is_published_before_the_end(tmp_path: Path) -> None:
    async with running(tmp_path, FAN) as player:
        player.bmc.do({"do": "bmc", "alarms": [FAN, SYSTEM]})
        await player.until((POLL_MS - 200) / 1000)
        while SYSTEM[0] not in player.known_codes():
            await player.until((player.at_ms + 1) / 1000)
        assert codes(player.document) == {FAN[0]}, "it is known, and not written yet"
        await player.end()
        assert codes(player.document) == {FAN[0], SYSTEM[0]}


async def test_sigterm_waits_for_no_api_server(tmp_path: Path) -> None:
    async with running(tmp_path, FAN) as player:
        player.cluster.do("pause")
        player.bmc.do({"do": "bmc", "alarms": [FAN, SYSTEM]})
        await player.until((1_000 + POLL_MS) / 1000)
        begun_ms = player.at_ms
        await player.end()
        assert player.at_ms - begun_ms < 4_000
        assert codes(player.document) == {FAN[0]}
        player.cluster.do("resume")
        await player.do({"do": "restart-agent"})
        await player.until((player.at_ms + POLL_MS) / 1000)
        assert codes(player.document) == {FAN[0], SYSTEM[0]}
