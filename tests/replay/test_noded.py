"""Recordings of the real NodeD, played through ours: the same document at every resting point."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from tests.compatibility import check, different
from tests.replay.node import NodePlayer, time_zone
from tests.replay.noded import (
    RECORDED_PERIOD_SECONDS,
    RECORDINGS,
    WITH_RECORDED_PERIOD,
    public_faults_upstream,
    recorded_node,
    serial_upstream,
    snapshots_upstream,
    tree_of,
    upstream_at,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.compatibility import Difference

OK = 200
NOT_PLAYED = {"flags-and-node-name-refused"}
"""No agent runs in it: ``test_noded_flags.py``."""


@pytest.mark.slow
@pytest.mark.looptime(resolution=2**-20)
@pytest.mark.parametrize("name", [name for name in RECORDINGS if name not in NOT_PLAYED])
async def test_recording(name: str, tmp_path: Path) -> None:
    recording = recorded_node(name)
    start = next(do for do in recording["steps"] if do["do"] == "start-agent")
    times = [do["at_ms"] for do in recording["steps"]] + [recording["end_ms"]]
    player = NodePlayer(recording, tmp_path)
    if name in WITH_RECORDED_PERIOD:
        player.period_seconds = RECORDED_PERIOD_SECONDS
    rested = []
    found: defaultdict[int, list[Difference]] = defaultdict(list)
    with time_zone(start.get("environment", {}).get("TZ")), player.replaced():
        for do, (at_ms, next_ms) in zip(recording["steps"], pairwise(times), strict=True):
            await player.until(at_ms / 1000)
            await player.do(do)
            if do["do"] == "http-get" and do["answer"]["status"] == OK:
                found[at_ms] += different(do["answer"]["body"], health(player), "$.health")
            if next_ms - at_ms < 100:
                continue  # the next step belongs to this one
            # Just before the next step, which is noted when it is done, up to 30 ms later.
            await player.until((next_ms - 40) / 1000)
            upstream, ours = upstream_at(recording, next_ms - 40), tree_of(player.document)
            rested += [upstream, ours]
            found[next_ms] += different(upstream, ours)
            found[next_ms] += different(
                public_faults_upstream(recording, next_ms - 40),
                player.public_faults,
                "$.public_faults",
            )
        found[recording["end_ms"]] += different(
            serial_upstream(recording), player.serial_number, "$.serial"
        )
        found[recording["end_ms"]] += different(snapshots_upstream(recording), {}, "$.pods")
        await player.end()
    for at_ms, differences in found.items():
        check(f"noded/{name}@{at_ms}", differences)
    ours_shown = [tree_of(seen.document) for seen in player.shown if seen.by == "agent"]
    passing = [tree for tree in ours_shown if tree not in rested]
    assert not passing, "what was shown in between was never true"


def health(player: NodePlayer) -> str:
    """Return the health that ours reports, in the words of upstream's endpoint where it is well."""
    blind = player.blind()
    return f"blind: {', '.join(blind)}" if blind else "ok"
