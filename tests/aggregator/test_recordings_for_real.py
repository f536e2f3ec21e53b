"""Recordings played with the real process on a real API server end as in virtual time."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.aggregator.daemon import OUTPUTS
from tests.cluster import steps
from tests.cluster.ahead import states_after
from tests.cluster.recorded import recorded
from tests.parts.watching import Watching, watching

if TYPE_CHECKING:
    from pathlib import Path

    from stores.base import Store
    from tests.aggregator.daemon import Daemon
    from tests.parts.controlplane import ControlPlane


@pytest.fixture
def expected(recording: str, tmp_path: Path) -> list[dict[str, str]]:
    """Return the documents that must exist after each step."""
    return states_after(recorded(recording), tmp_path / "ahead", touch_period_seconds=1.0)


@pytest.mark.parametrize("kind", [pytest.param("kubernetes", marks=pytest.mark.apiserver)])
@pytest.mark.parametrize(
    "recording",
    [
        "a3-super-pod-sixteen-dies",
        "every-fault-level",
        "fault-appears-and-clears",
        "node-info-each-status",
        "one-healthy-node",
        "same-node-in-all-three",
        "three-nodes-one-faulty",
        "wrong-check-code",
    ],
)
async def test_recording(
    recording: str,
    expected: list[dict[str, str]],
    control_plane: ControlPlane,
    store: Store,
    daemon: Daemon,
) -> None:
    steps.prepare(control_plane)
    assert any(expected)
    async with watching(store, OUTPUTS) as seen:
        for step, outputs in zip(recorded(recording)["steps"], expected, strict=True):
            if step["do"] == "restart-aggregator":
                await asyncio.to_thread(daemon.start)
            else:
                steps.do(control_plane, step)
            await seen.until(partial(_shows, outputs))


def _shows(outputs: dict[str, str], seen: Watching) -> bool:
    return {name: one.data[name] for (_, name), one in seen.documents.items()} == outputs
