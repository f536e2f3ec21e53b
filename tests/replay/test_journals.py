"""The journals of all recordings of the device plugin, played again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent.journal.file import FILE_NAME
from agent.journal.reader import read_rows
from agent.replay.level_history import Span
from agent.replay.replay import replay
from contract.operator_rules.fault_configuration import FaultTexts, catalogue_of
from tests.replay.player import Player, recorded
from tests.vectors import VECTORS

if TYPE_CHECKING:
    from pathlib import Path

RECORDINGS = sorted(path.stem for path in (VECTORS / "device-plugin/recordings").glob("*.json"))
EVERYTHING_ISOLATES = FaultTexts(
    fault_code='{"NotHandleFaultCodes":["8C2FA009"]}', customization="{}"
)


@pytest.mark.slow
@pytest.mark.looptime
@pytest.mark.parametrize("name", RECORDINGS)
async def test_the_journal_of_a_recording_leads_to_the_verdicts_in_it(
    name: str, tmp_path: Path
) -> None:
    player = Player(recorded(name), tmp_path)
    with player.replaced():
        await player.run(1.0)
    (journal,) = tmp_path.rglob(FILE_NAME)
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
