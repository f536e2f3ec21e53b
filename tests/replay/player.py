"""Plays a recording of the real device plugin: collectors, policy and document, no I/O.

It runs in virtual time. Every document is acknowledged when it is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from agent.device_info import DeviceInfoDocument
from agent.policy import Input, next_deadline_ms, step
from agent.state import Acknowledged, State
from collectors.chip_faults import ChipFaults
from collectors.links import Links
from contract.catalogue import shipped
from contract.observation import NODE as NODE_SUBJECT
from contract.observation import SourceAnswered
from contract.policies import DurationEntry, duration_policies
from tests.parts.surroundings import surroundings
from tests.replay.driver import RecordedDriver, switch_report
from tests.replay.links import RecordedTool
from tests.vectors import VECTORS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collectors.base import Sink
    from contract.catalogue import Catalogue
    from contract.observation import Report

NODE = "node-1"
SETTLED_SECONDS = 10.0
WRITE_SECONDS = 2**-7
"""How long after a change its document is in the store: a commit and a write on this machine.
What changes meanwhile goes out with it."""


@dataclass(frozen=True)
class Shown:
    """What the store had from ``at_ms`` (since the first step) on."""

    at_ms: int
    data: dict[str, str]
    labels: dict[str, str]


def recorded(name: str) -> dict[str, Any]:
    """The recording called ``name``."""
    text = (VECTORS / f"device-plugin/recordings/{name}.json").read_text()
    recording: dict[str, Any] = json.loads(text)
    return recording


def customised(customisation: dict[str, Any]) -> Catalogue:
    """The shipped tables with the duration rules of a customisation file."""
    entries = msgspec.convert(customisation["FaultDuration"], list[DurationEntry])
    return replace(shipped(), durations=duration_policies(entries))


async def play(recording: dict[str, Any]) -> list[Shown]:
    """What we publish when the steps of ``recording`` happen."""
    player = _Player(recording)
    await player.run(recording["steps"], recording["observed"][-1]["at_ms"] / 1000)
    return player.shown


class _Player:
    def __init__(self, recording: dict[str, Any]) -> None:
        self.shown: list[Shown] = []
        self._loop = asyncio.get_running_loop()
        self._begin = self._loop.time()
        self._started_ms = recording["started_ms"]
        self._state = State(NODE, "boot")
        self._driver = RecordedDriver(recording["profile"], self._wall_clock)
        self._tool = RecordedTool()
        self._tables = shipped()
        for do in recording["steps"]:
            if do["do"] == "file":
                self._tables = customised(do["content"])
        self._document = DeviceInfoDocument(NODE, lambda: self._state)
        self._listeners: list[Sink] = []
        self._content: object = None
        self._stamp = 0
        self._writing: asyncio.TimerHandle | None = None

    def _at_ms(self) -> int:
        return round((self._loop.time() - self._begin) * 1000)

    def _wall_clock(self) -> int:
        return int(self._started_ms) + self._at_ms()

    async def run(self, steps: list[dict[str, Any]], last_seconds: float) -> None:
        """Do the steps at their times, and go on until the recording ended."""
        async with asyncio.TaskGroup() as tasks:
            collector = None
            for do in steps:
                await asyncio.sleep(do["at_ms"] / 1000 - (self._loop.time() - self._begin))
                if do["do"] == "start-agent":
                    assert collector is None, "one start is what these recordings have"
                    collector = tasks.create_task(self._collect())
                    continue
                if do["do"].startswith(("link", "hccn")):
                    self._tool.do(do)
                if do["do"] == "switch":
                    self._take_in([switch_report(do, self._wall_clock())])
                elif do["do"] not in ("file", "hccn", "link-without-event"):
                    self._driver.do(do)
            await asyncio.sleep(SETTLED_SECONDS)
            await asyncio.sleep(last_seconds - (self._loop.time() - self._begin))
            assert collector is not None
            collector.cancel()

    async def _collect(self) -> None:
        inventory = await self._driver.inventory()
        self._document.identify(inventory)
        if inventory.family == "Ascend910A3":
            self._take_in([SourceAnswered("switch", NODE_SUBJECT, self._wall_clock())])
        around = surroundings(
            self._report, self._wall_clock, self._driver, listen=self._listeners.append
        )
        with contextlib.suppress(asyncio.CancelledError), pytest.MonkeyPatch.context() as patch:
            patch.setattr("collectors.links.HccnTool", self._tool.here)
            await asyncio.gather(ChipFaults().run(around), Links().run(around))

    def _report(self, reports: Sequence[Report]) -> None:
        self._take_in(reports)
        for listener in self._listeners:
            listener(reports)

    def _take_in(self, inputs: Sequence[Input]) -> None:
        self._state, _ = step(self._state, inputs, self._wall_clock(), self._tables)
        if self._writing is None:
            self._writing = self._loop.call_later(WRITE_SECONDS, self._publish)
        deadline_ms = next_deadline_ms(self._state, self._tables)
        if deadline_ms is not None:
            self._loop.call_later((deadline_ms - self._wall_clock()) / 1000, self._take_in, ())

    def _publish(self) -> None:
        self._writing = None
        wanted = self._document.wanted()
        if wanted is None:
            return
        if wanted.content == self._content:
            return
        self._content = wanted.content
        self._stamp = max(self._wall_clock() // 1000, self._stamp + 1)
        assert wanted.stamped is not None
        document = wanted.stamped(self._stamp)
        self._document.verify(document)
        self.shown.append(Shown(self._at_ms(), document.data, document.labels))
        done = Acknowledged(document.name, wanted.revision, self._wall_clock())
        self._state, _ = step(self._state, [done], self._wall_clock(), self._tables)
