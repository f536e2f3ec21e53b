"""Recordings of our own: cases that the real program was not recorded with.

Expected is what the specification has of them, less its defects. ``tests.acceptance.play`` plays
them for real.
"""

from __future__ import annotations

import json

import pytest

from tests.parts.examples import mostly_slow
from tests.replay.player import play
from tests.replay.snapshots import surprises
from tests.vectors import VECTORS

FILES = sorted((VECTORS / "device-plugin/ours").glob("*.json"))


@pytest.mark.looptime(resolution=2**-20)
@pytest.mark.parametrize("name", mostly_slow([file.stem for file in FILES], 6))
async def test_ours(name: str) -> None:
    recording = json.loads((VECTORS / f"device-plugin/ours/{name}.json").read_text())
    shown = [(one.at_ms, one.data) for one in (await play(recording)).shown]
    found = surprises(recording, shown)
    assert not found, "\n".join(found)
