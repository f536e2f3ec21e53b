"""Recordings of the real device plugin, played through ours: the same documents, never later.

The journal of each play, replayed, leads to the verdicts in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent.journal.file import FILE_NAME
from agent.journal.reader import read_rows
from agent.replay.level_history import Span
from agent.replay.replay import replay
from contract.documents.device_info import decode
from contract.operator_rules.fault_configuration import FaultTexts, catalogue_of
from tests.compatibility import Difference, check
from tests.parts.examples import mostly_slow
from tests.replay.beside import missing_events, node_differences
from tests.replay.comparison import compared
from tests.replay.player import OPERATOR, RECORDINGS, play_in, recorded

if TYPE_CHECKING:
    from pathlib import Path

EVERYTHING_ISOLATES = FaultTexts(
    fault_code='{"NotHandleFaultCodes":["8C2FA009"]}', customization="{}"
)


async def found_in(name: str, place: Path) -> list[Difference]:
    """Play a recording: what differs."""
    recording = recorded(name)
    played = await play_in(place, recording)
    stamps = [
        decode(one.data, name).update_time
        for one in played.shown
        if one.data is not None and one.by != OPERATOR
    ]
    assert stamps == sorted(set(stamps)), "readers drop what is not newer"
    events = [row["event"] for row in recording["observed"] if "event" in row]
    changes = [row["node"] for row in recording["observed"] if "node" in row]
    assert played.node is not None
    return [
        *compared(recording, played.shown),
        *missing_events(events, played.events),
        *node_differences(changes, played.node),
    ]


def check_journal(name: str, place: Path) -> None:
    """Check that the journal leads to the verdicts in it, also by other rules."""
    (journal,) = place.rglob(FILE_NAME)
    found = replay(read_rows(journal), catalogue_of(EVERYTHING_ISOLATES), Span())
    assert found.deviations == []
    assert found.checked > 1
    for day in found.days:
        if day.recorded is not None and day.replayed is not None:
            assert day.recorded.episodes == day.replayed.episodes
            assert day.replayed.upgrades <= day.recorded.upgrades
    if name == "level-sub-health-fault":
        (difference,) = [one for day in found.days for one in day.differences]
        assert (difference.recorded_level, difference.replayed_level) == (
            "SubHealthFault",
            "NotHandleFault",
        )


@pytest.mark.looptime(resolution=2**-20)  # a binary fraction: sums of times stay exact
@pytest.mark.parametrize("name", mostly_slow(RECORDINGS, 6))
async def test_recording(name: str, tmp_path: Path) -> None:
    check(f"device-plugin/{name}", await found_in(name, tmp_path))
    check_journal(name, tmp_path)
