"""A recording of the real Device Plugin beside an agent of ours that is in shadow.

The plugin's writes, and what operators did to its document, happen as recorded; everything else
happens to our agent as in ``tests/replay``. The plugin may end and start: ours goes on.
"""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contract.names import DEVICE_INFO_NAMESPACE, REPORT_LABEL, device_info_name
from contract.pages.agent_status import WriteResult
from stores.base import Document, NodeObject
from tests.replay.player import NODE, OPERATOR, SETTLED_SECONDS, Player

if TYPE_CHECKING:
    from collections.abc import Mapping

    from contract.pages.agent_status import ReportedDifference, ShadowStatus


@dataclass(frozen=True)
class Compared:
    """The final reports of a shadow, and the writer of each write: an operator or the plugin."""

    status: ShadowStatus
    writers: list[tuple[int, str]]

    def of_the_plugin(self) -> list[ReportedDifference]:
        """Return the differences of the plugin's own making, in order of time.

        A write of an operator is reported like every other one, and is over with the plugin's next
        write.
        """
        found = sorted(self.status.reported, key=lambda reported: reported.since_ms)
        by_operators = [reported for reported in found if self._is_an_operators(reported)]
        assert all(reported.over_at_ms is not None for reported in by_operators)
        return [reported for reported in found if reported not in by_operators]

    def _is_an_operators(self, reported: ReportedDifference) -> bool:
        writers = [by for at_ms, by in self.writers if at_ms <= reported.since_ms]
        return reported.result is not WriteResult.NOT_WRITTEN and writers[-1] == OPERATOR


async def compare(recording: dict[str, Any]) -> Compared:
    """Play ``recording`` to its end."""
    with tempfile.TemporaryDirectory(prefix="npu-vigil-") as place:
        player = _ShadowPlayer(recording, Path(place))
        with player.replaced():
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(player.write(recording["observed"]))
                tasks.create_task(player.run(SETTLED_SECONDS))
        assert player.cluster.writes == 0, "a shadow writes nothing"
        assert not player.cluster.objects.events, "no Events either"
        assert player.cluster.objects.node == NodeObject({}, {}, "1"), "and no labels"
        assert player.agent is not None
        status = player.agent.status().shadow
        assert status is not None
        return Compared(status, player.writers)


class _ShadowPlayer(Player):
    def __init__(self, recording: dict[str, Any], place: Path) -> None:
        super().__init__(recording, place, in_shadow=True)
        self.writers: list[tuple[int, str]] = []

    async def do(self, step: Mapping[str, Any]) -> None:
        if step["do"] == "stop-agent":
            return
        if step["do"] == "configmap" and step["name"] == "mindx-dl-deviceinfo":
            self.writers.append((self._wall_clock(), OPERATOR))
        await super().do(step)

    async def write(self, rows: list[dict[str, Any]]) -> None:
        """Write what the plugin wrote, at its times."""
        for row in rows:
            if "data" not in row or row.get("by") == OPERATOR:
                continue
            await asyncio.sleep(max(0.0, (row["at_ms"] - self.at_ms) / 1000))
            self.writers.append((self._wall_clock(), "plugin"))
            name, labels = device_info_name(NODE), dict([REPORT_LABEL])
            self.cluster.change(Document(DEVICE_INFO_NAMESPACE, name, row["data"], labels))
