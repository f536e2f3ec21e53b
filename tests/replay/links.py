"""A link tool that does what the steps of a recording say, and a source that asks it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NoReturn

from agent.state import LINK_SOURCE
from contract.codes import LINK_DOWN
from contract.observation import (
    Assertion,
    Observation,
    SourceAnswered,
    SourceBlind,
    chip_subject,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collectors.base import Surroundings
    from contract.observation import Report

PERIOD_SECONDS = 60.0
AFTER_AN_EVENT_SECONDS = 2.0


class RecordedTool:
    """The link of each chip by physical id, and for which chips the tool is in trouble."""

    def __init__(self) -> None:
        self.down: set[int] = set()
        self.trouble: dict[int, str] = {}

    def do(self, step: dict[str, Any]) -> None:
        """Do a step of the recording now."""
        chip = step["chip"]
        if step["do"] != "hccn":
            (self.down.add if step["state"] == "DOWN" else self.down.discard)(chip)
        elif step["value"] == "off":
            self.trouble.pop(chip, None)
        else:
            self.trouble[chip] = step["value"]


class AskedTool:
    """Asks the tool for every chip at start, every minute, and 2 s after an event of the link."""

    def __init__(self, tool: RecordedTool, chips: int) -> None:
        self._tool = tool
        self._due = dict.fromkeys(range(chips), 0.0)
        self._believed: dict[int, bool | None] = {}
        self._heard = asyncio.Event()

    def hear(self, reports: Sequence[Report]) -> None:
        """Other sources speak: what they say of a link is looked at soon."""
        for report in reports:
            if not isinstance(report, Observation) or report.code != LINK_DOWN:
                continue
            if report.source == LINK_SOURCE:
                continue
            if report.assertion is Assertion.RECOVER:
                self._believed[report.subject.id] = False
            soon = asyncio.get_running_loop().time() + AFTER_AN_EVENT_SECONDS
            self._due[report.subject.id] = soon
            self._heard.set()

    async def run(self, around: Surroundings) -> NoReturn:
        """Report until cancelled."""
        around.listen(self.hear)
        loop = asyncio.get_running_loop()
        while True:
            self._heard.clear()
            for chip, due in self._due.items():
                if due <= loop.time():
                    self._due[chip] = loop.time() + PERIOD_SECONDS
                    reports = self._ask(chip, around.wall_clock())
                    if reports:
                        around.report(reports)
            try:
                async with asyncio.timeout_at(min(self._due.values())):
                    await self._heard.wait()
            except TimeoutError:
                continue

    def _ask(self, chip: int, now_ms: int) -> list[Report]:
        subject = chip_subject(chip)
        before = self._believed.get(chip)
        if chip in self._tool.trouble:
            self._believed[chip] = None
            return [SourceBlind(LINK_SOURCE, subject, now_ms, self._tool.trouble[chip])]
        down = self._believed[chip] = chip in self._tool.down
        reports: list[Report] = []
        if before is None:
            reports.append(SourceAnswered(LINK_SOURCE, subject, now_ms))
        if down != bool(before):
            word = Assertion.PRESENT if down else Assertion.ABSENT
            reports.append(Observation(LINK_SOURCE, subject, LINK_DOWN, word, now_ms))
        return reports
