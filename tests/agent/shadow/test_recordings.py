"""The recordings as the writer beside us: no difference but those of the table.

Their rows are those of ``device-plugin/<recording>@shadow``, with the words that people read.
"""

from __future__ import annotations

import pytest

from tests.agent.shadow.player import compare
from tests.compatibility import ABSENT, Difference, check
from tests.replay.player import RECORDINGS, recorded


@pytest.mark.slow
@pytest.mark.looptime(resolution=2**-20)
@pytest.mark.parametrize("name", RECORDINGS)
async def test_recording(name: str) -> None:
    compared = await compare(recorded(name))
    assert compared.status.last_write_ms is not None
    found: dict[str, Difference] = {}
    for reported in compared.of_the_plugin():
        difference = Difference(reported.place, reported.theirs or ABSENT, reported.ours or ABSENT)
        found.setdefault(reported.place, difference)
    check(f"device-plugin/{name}@shadow", found.values())
