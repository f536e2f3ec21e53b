"""What a recording makes of our documents, step by step: played in virtual time beforehand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import looptime

from tests.cluster.player import Player

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_AFTER_SECONDS = 0.25


def states_after(
    recording: Mapping[str, Any], place: Path, **configuration: Any
) -> list[dict[str, str]]:
    """Return our cluster-info documents, by name, 0.25 s after each step."""
    loop = looptime.new_event_loop(resolution=2**-20)
    try:
        return loop.run_until_complete(_states(recording, place, configuration))
    finally:
        loop.close()


async def _states(
    recording: Mapping[str, Any], place: Path, configuration: Mapping[str, Any]
) -> list[dict[str, str]]:
    found = []
    player = Player(place, recording["unix_ms_at_0"], configuration=configuration)
    with player.replaced():
        for step in recording["steps"]:
            await player.do(step)
            await player.pass_time(_AFTER_SECONDS)
            found.append({name: data[name] for name, data in player.outputs.items()})
        await player.close()
    return found
