"""Recordings of the real device plugin, played through ours: the same documents, never later."""

from __future__ import annotations

import pytest

from contract.documents.device_info import decode
from tests.compatibility import Difference, check
from tests.replay.beside import missing_events, node_differences
from tests.replay.comparison import compared
from tests.replay.player import OPERATOR, RECORDINGS, play, recorded


async def found_in(name: str) -> list[Difference]:
    """Play a recording: what differs."""
    recording = recorded(name)
    played = await play(recording)
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


@pytest.mark.looptime(resolution=2**-20)  # a binary fraction: sums of times stay exact
@pytest.mark.parametrize("name", RECORDINGS)
async def test_recording(name: str) -> None:
    check(f"device-plugin/{name}", await found_in(name))
