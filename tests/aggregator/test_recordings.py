"""Recordings of the real ClusterD, played through the whole aggregator in virtual time: the same
bytes but for the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster import recorded
from tests.cluster.comparison import compared
from tests.cluster.judged import judge
from tests.cluster.player import Player
from tests.compatibility import DOCUMENT

if TYPE_CHECKING:
    from pathlib import Path

NAMES = recorded.names()


@pytest.mark.slow
@pytest.mark.looptime(resolution=2**-20)  # a binary fraction: sums of times stay exact
@pytest.mark.parametrize("name", NAMES)
async def test_recording(name: str, tmp_path: Path) -> None:
    recording = recorded.recorded(name)
    player = Player(tmp_path, recording["unix_ms_at_0"])
    with player.replaced():
        played = await player.play(recording)
    found = list(compared(recording, played))
    assert found
    judge(name, found)


def test_every_document_that_is_not_compared_is_a_documented_no() -> None:
    text = DOCUMENT.read_text().partition("## What it does not do")[2]
    for pattern in recorded.NOT_OURS:
        assert f"`{pattern.replace('*', '<')}" in text, pattern
    seen = {
        one["name"]
        for name in NAMES
        for one in recorded.recorded(name)["observed"]
        if "name" in one
    }
    ours = {name for name in seen if recorded.is_ours(name)}
    assert ours >= {"cluster-info-device-0", "cluster-info-node-cm", "statistic-fault-info"}
    assert seen - ours >= {"scheduling-exception-report", "current-job-statistic"}
