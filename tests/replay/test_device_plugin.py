"""Recordings of the real device plugin, played through ours: the same documents, never later."""

from __future__ import annotations

from typing import Any

import pytest

from contract.device_info import decode
from tests.compatibility import Difference, check
from tests.replay.comparison import ONE_OFF_SECONDS, differences, states
from tests.replay.player import OPERATOR, Shown, play, recorded
from tests.vectors import VECTORS

RECORDINGS = sorted(path.stem for path in (VECTORS / "device-plugin/recordings").glob("*.json"))


def real_plugin(recording: dict[str, Any]) -> list[Shown]:
    """What the real program published."""
    shown: list[Shown] = []
    labels: dict[str, str] = {}
    for row in recording["observed"]:
        if "data" in row or "deleted" in row:
            labels = row.get("labels", labels)
            shown.append(Shown(row["at_ms"], row.get("data"), labels, row.get("by", "plugin")))
    return shown


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
    has_one_offs = any(step["do"] == "once" for step in recording["steps"])
    found = differences(
        states(real_plugin(recording)),
        states(played.shown),
        later_seconds=ONE_OFF_SECONDS if has_one_offs else 0.0,
    )
    return list(found)


@pytest.mark.looptime(resolution=2**-20)  # a binary fraction: sums of times stay exact
@pytest.mark.parametrize("name", RECORDINGS)
async def test_recording(name: str) -> None:
    check(f"device-plugin/{name}", await found_in(name))
