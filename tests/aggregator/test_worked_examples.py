"""The worked examples of the specification of ClusterD, through the whole aggregator in virtual
time: the same bytes but for the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.comparison import compared
from tests.cluster.examples import NOT_PLAYED, recordings
from tests.cluster.judged import judge
from tests.cluster.player import Player
from tests.compatibility import DOCUMENT

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES = recordings()


@pytest.mark.slow
@pytest.mark.looptime(resolution=2**-20)  # a binary fraction: sums of times stay exact
@pytest.mark.parametrize("name", EXAMPLES)
async def test_example(name: str, tmp_path: Path) -> None:
    recording = EXAMPLES[name]
    player = Player(tmp_path, recording["unix_ms_at_0"])
    with player.replaced():
        played = await player.play(recording)
    found = list(compared(recording, played))
    assert found
    judge(name, found)


def test_every_example_is_played_or_a_documented_no() -> None:
    assert EXAMPLES.keys() | NOT_PLAYED.keys() == {f"E{number}" for number in range(1, 34)}
    assert not EXAMPLES.keys() & NOT_PLAYED.keys()
    noes = DOCUMENT.read_text().partition("## What it does not do")[2]
    assert all(f", {name} |" in noes for name in NOT_PLAYED)
