"""Recordings in which the real device plugin was seen to be wrong: what ours does is right.

That it differs is in ``docs/differences.md``; here stands what must be seen.
"""

from __future__ import annotations

from typing import Any

import pytest

from contract.names import REPORT_LABEL
from tests.replay.player import OPERATOR, play, recorded
from tests.replay.reading import all_seen, at, seconds_shown

pytestmark = pytest.mark.looptime(resolution=2**-20)

SOON_MS = 100
"""A driver's event is a published document by then."""
AUDIT_MS = 16_000
"""What no event reported is found by then."""


def steps(recording: dict[str, Any], do: str) -> list[dict[str, Any]]:
    """Return the steps of one kind, in order of time."""
    return [step for step in recording["steps"] if step["do"] == do]


async def test_a_hanging_driver_call_delays_no_other_chip() -> None:
    recording = recorded("driver-hang-in-code-query")
    played = await play(recording)
    hang_ms, free_ms = (step["at_ms"] for step in steps(recording, "driver-hang"))
    occurred = next(step for step in steps(recording, "occur") if step["chip"] == 5)
    assert hang_ms < occurred["at_ms"] < free_ms
    assert at(played, occurred["at_ms"] + SOON_MS).levels == {5: {occurred["code"]: "SeparateNPU"}}


async def test_without_an_api_server_the_agent_runs_and_publishes_when_it_is_back() -> None:
    recording = recorded("agent-started-while-api-server-is-stopped")
    played = await play(recording)
    back_ms = next(s["at_ms"] for s in steps(recording, "api-server") if s["action"] == "start")
    first = all_seen(played)[0]
    assert back_ms < first.at_ms < back_ms + 6_000
    assert first.levels == {4: {"80CF8000": "RestartNPU"}}
    assert played.lives == 1, "it never ended"


@pytest.mark.slow
async def test_document_is_right_after_an_outage() -> None:
    recording = recorded("api-server-stopped-for-30-s")
    played = await play(recording)
    away_ms, back_ms = (step["at_ms"] for step in steps(recording, "api-server"))
    assert not any(away_ms < one.at_ms < back_ms for one in all_seen(played))
    holding: dict[int, dict[str, str]] = {}
    for step in recording["steps"]:
        if step["at_ms"] < back_ms and step["do"] == "occur":
            holding.setdefault(step["chip"], {})[step["code"]] = "any"
        elif step["at_ms"] < back_ms and step["do"] == "recover":
            del holding[step["chip"]][step["code"]]
    after = at(played, back_ms + 3_000)
    assert {chip: set(codes) for chip, codes in after.levels.items()} == {
        chip: set(codes) for chip, codes in holding.items() if codes
    }


@pytest.mark.parametrize("what", ["deleted", "edited"])
async def test_a_foreign_change_is_repaired_within_a_second(what: str) -> None:
    recording = recorded(f"configmap-{what}-while-running")
    played = await play(recording)
    changes = [index for index, one in enumerate(played.shown) if one.by == OPERATOR]
    assert len(changes) == len(steps(recording, "configmap"))
    for index in changes:
        before, changed, after = played.shown[index - 1 : index + 2]
        assert after.by != OPERATOR
        assert after.at_ms - changed.at_ms < 1_000
        assert before.data is not None
        assert after.data is not None
        added = {"foreign"} if what == "edited" else set()
        assert after.data.keys() - added == before.data.keys() - added
        assert after.labels.items() >= dict([REPORT_LABEL]).items()
        assert after.labels.keys() - {"team"} == {REPORT_LABEL[0]}


@pytest.mark.parametrize(
    "name", ["same-code-twice-in-one-cycle", "fault-before-the-first-cycle-counts-twice"]
)
async def test_fault_that_occurred_once_counts_once(name: str) -> None:
    recording = recorded(name)
    played = await play(recording)
    assert any(one.levels for one in all_seen(played))
    assert not any(one.isolated or one.reasons for one in all_seen(played))
    assert all_seen(played)[-1].levels == {}


async def test_an_occurrence_without_an_event_is_found() -> None:
    recording = recorded("lost-occurrence-event")
    played = await play(recording)
    (lost,) = steps(recording, "occur-without-event")
    found = at(played, lost["at_ms"] + AUDIT_MS)
    assert found.levels == {lost["chip"]: {lost["code"]: "SeparateNPU"}}
    (notice,) = steps(recording, "once")
    assert found.at_ms < notice["at_ms"], "long before the reset, which is when upstream sees it"


@pytest.mark.slow
async def test_recoveries_without_an_event_are_found() -> None:
    recording = recorded("lost-recovery-of-an-unhealthy-chip")
    played = await play(recording)
    lost = [*steps(recording, "recover-without-event"), *steps(recording, "link-without-event")]
    assert len(lost) == 3
    after = at(played, max(step["at_ms"] for step in lost) + AUDIT_MS)
    assert after.levels == {}, "of the mild code, too, which upstream keeps for ever"
    assert not any(one.reasons for one in all_seen(played)), "the link was not down for 20 s"


@pytest.mark.slow
async def test_a_one_off_event_is_shown_for_five_seconds() -> None:
    recording = recorded("one-off-events")
    played = await play(recording)
    for step in steps(recording, "once"):
        (shown,) = seconds_shown(played, step["chip"], step["code"])
        assert 5 <= shown < 6, step


async def test_fault_of_less_than_a_second_is_seen() -> None:
    recording = recorded("occur-and-recover-within-a-second")
    played = await play(recording)
    for step in steps(recording, "occur"):
        assert step["code"] in at(played, step["at_ms"] + SOON_MS).levels[step["chip"]]
    for step in steps(recording, "recover"):
        assert at(played, step["at_ms"] + SOON_MS).levels == {}


@pytest.mark.slow
async def test_an_isolation_outlives_an_outage() -> None:
    recording = recorded("api-server-stopped-while-isolated")
    played = await play(recording)
    _, back_ms = (step["at_ms"] for step in steps(recording, "api-server"))
    assert at(played, back_ms + 6_000).isolated == {2}
    assert all_seen(played)[-1].unhealthy == {2}


@pytest.mark.slow
async def test_a_fault_during_an_outage_is_reported_afterwards() -> None:
    recording = recorded("api-server-stopped-for-30-s")
    played = await play(recording)
    away_ms, back_ms = (step["at_ms"] for step in steps(recording, "api-server"))
    during = [step for step in recording["steps"] if away_ms < step["at_ms"] < back_ms]
    between = {step["code"] for step in during if step["do"] == "occur"}
    between &= {step["code"] for step in during if step["do"] == "recover"}
    assert between, "it came and went"
    for code in between:
        about = [event for event in played.events if f"faultCodes:{code}," in event.message]
        assert [event.reason for event in about] == ["Occur", "Recovery"]
        first_ms = recording["started_ms"] + away_ms
        assert all(event.first_ms > first_ms for event in about), "with their own times"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "posted"), [("many-faults-and-the-event-limiter", 32), ("same-fault-on-all-chips", 16)]
)
async def test_no_event_is_dropped(name: str, posted: int) -> None:
    recording = recorded(name)
    assert len(steps(recording, "occur")) + len(steps(recording, "recover")) == posted
    assert sum("event" in row for row in recording["observed"]) == 11, "what upstream lets through"
    played = await play(recording, settle_seconds=60)
    assert sum(event.count for event in played.events) == posted
    assert len(played.events) < 20, "many are merged"
