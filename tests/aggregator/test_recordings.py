"""Recordings of the real aggregator, played through ours: the same bytes but for the table."""

from __future__ import annotations

import pytest

from tests.aggregator.replay import play
from tests.compatibility import check, table
from tests.vectors import VECTORS

OF_PUBLIC_FAULTS = ("public-fault-", "statistic-and-")
"""Played by ``tests/aggregator/public_faults/test_recordings.py``."""

RECORDINGS = sorted(
    path.stem
    for path in (VECTORS / "clusterd").glob("*.json")
    if path.stem != "examples" and not path.stem.startswith(OF_PUBLIC_FAULTS)
)


@pytest.mark.parametrize("name", RECORDINGS)
def test_recording(name: str) -> None:
    found = dict(play(name))
    assert found
    listed = {row.recording for row in table() if row.recording.startswith(f"clusterd/{name}@")}
    for step in found.keys() | listed:
        check(step, found.get(step, []))
