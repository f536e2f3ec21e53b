"""Plays a recording of the real device plugin in real time: an agent's process on some hardware.

The hardware and the process are a ``Machine``; the store is any, seen through a watch.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from contract.names import DEVICE_INFO_NAMESPACE, REPORT_LABEL, device_info_name
from stores.base import Changed, Deleted, Document, DocumentsListed, Selection
from tests.parts.deadlines import time_passes, until
from tests.parts.recording_player import merged
from tests.replay.player import OPERATOR, Shown, ends_ms

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stores.base import Store

_SETTLED_MS = 6_000
"""How long a recording goes on after its last step, at least: longer than a one-off event."""
_START_MS = 2_000
"""As long as the start of an agent may take; what is more, is added to all times."""
_START_LIMIT_MS = 60_000
_LOOK_SECONDS = 0.05
_EPOCH_MS = re.compile(r"\b1[5-9]\d{11}\b")
"""Times of recordings in milliseconds; those in seconds are shorter."""


class CannotPlay(Exception):
    """A step that this hardware or store cannot do."""


class Machine(Protocol):
    """A node: its hardware, and its agent as a process."""

    name: str

    def do(self, step: dict[str, Any]) -> None:
        """Do a step of the hardware now. Raises ``CannotPlay``."""

    def file(self, name: str, text: str) -> Path:
        """Put a file into the directory of the fault configuration."""

    def start(self) -> None:
        """Start the agent; waits for nothing."""

    def stop(self) -> None:
        """End the agent, and wait for it. One that does not run is not an error."""

    def kill(self) -> None:
        """End the agent without a word."""


@dataclass
class RealPlay:
    """One recording on one machine."""

    recording: dict[str, Any]
    machine: Machine
    store: Store
    elsewhere: Callable[[dict[str, Any], str], None] | None = None
    """Does the steps of pods and of the API server, for a node."""
    gate: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Plays that share one start one after the other: a start is most of what an agent costs."""
    shown: list[Shown] = field(default_factory=list)
    _by_operator: list[tuple[dict[str, str], dict[str, str]]] = field(default_factory=list)
    _begin_ms: int = 0
    _is_running: bool = False
    _is_api_server_up: bool = True

    async def run(self) -> list[Shown]:
        """Play the recording; return what was published, with times relative to the recording's."""
        steps = self.recording["steps"]
        watch = asyncio.create_task(self._watch())
        try:
            start = next(n for n, step in enumerate(steps) if step["do"] == "start-agent")
            async with self.gate:
                self._begin_ms = _now_ms()
                for step in steps[: start + 1]:
                    await self._until(step["at_ms"])
                    await self._do(step)
                await self._started()
            for step in steps[start + 1 :]:
                await self._until(step["at_ms"])
                await self._do(step)
            last_ms = ends_ms(self.recording)
            await self._until(max(steps[-1]["at_ms"] + _SETTLED_MS, last_ms))
            # On a busy machine the last documents come later.
            while self.shown and (settled_ms := self.shown[-1].at_ms + _SETTLED_MS) > self._at_ms():
                await self._until(settled_ms)
        finally:
            await asyncio.to_thread(self.machine.stop)
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch
        return [self._as_recorded(one) for one in self.shown]

    @property
    def _ahead_ms(self) -> int:
        """Return how much later than the recording this run is (ms)."""
        return self._begin_ms - int(self.recording["started_ms"])

    async def _until(self, at_ms: float) -> None:
        await time_passes((self._begin_ms + at_ms - _now_ms()) / 1000)

    async def _started(self) -> None:
        """Wait for the first document; on a machine that is busy the rest begins later."""
        if not self._is_api_server_up:
            return
        begun_ms = _now_ms()
        await until(
            lambda: any(one.by != OPERATOR for one in self.shown),
            "the first document",
            _START_LIMIT_MS / 1000,
            _LOOK_SECONDS,
        )
        late_ms = max(0, _now_ms() - begun_ms - _START_MS)
        self._begin_ms += late_ms
        # Otherwise the first document would be brief: the next one has the new begin.
        self.shown = [replace(one, at_ms=one.at_ms - late_ms) for one in self.shown]

    async def _do(self, step: dict[str, Any]) -> None:
        match step["do"]:
            case "start-agent":
                if not self._is_running:
                    self._is_running = True
                    self.machine.start()
            case "stop-agent":
                self._is_running = False
                await asyncio.to_thread(
                    self.machine.kill if step["signal"] == "SIGKILL" else self.machine.stop
                )
            case "file":
                content = step["content"]
                text = content if isinstance(content, str) else json.dumps(content)
                self.machine.file(step["name"], text)
            case "configmap":
                await self._edit(step)
            case "pod" | "api-server" | "node":
                if self.elsewhere is None:
                    raise CannotPlay(f"a directory has no {step['do']}")
                await asyncio.to_thread(self.elsewhere, step, self.machine.name)
                if step["do"] == "api-server":
                    self._is_api_server_up = step["action"] != "stop"
            case _:
                self.machine.do(step)

    async def _edit(self, step: dict[str, Any]) -> None:
        """Edit, write or delete a ConfigMap as an operator; the times in it are moved to now."""
        name = step["name"]
        if name == "mindx-dl-deviceinfo":
            name = device_info_name(self.machine.name)
        if step["action"] == "delete":
            await self.store.delete(DEVICE_INFO_NAMESPACE, name)
            return
        data = {key: self._moved(text) for key, text in step["data"].items()}
        labels = step.get("labels", dict([REPORT_LABEL]))
        if step["action"] == "edit":
            there = await self.store.get(DEVICE_INFO_NAMESPACE, name)
            assert there is not None
            data, labels = there.data | data, merged(there.labels, labels)
        self._by_operator.append((data, labels))
        await self.store.put(Document(DEVICE_INFO_NAMESPACE, name, data, labels))

    def _moved(self, text: str) -> str:
        return _EPOCH_MS.sub(lambda found: str(int(found[0]) + self._ahead_ms), text)

    def _as_recorded(self, one: Shown) -> Shown:
        """Return the document with the difference of fault times to the recording."""
        return replace(one, ahead_ms=self._ahead_ms)

    async def _watch(self) -> None:
        name = device_info_name(self.machine.name)
        async for event in self.store.watch(Selection(DEVICE_INFO_NAMESPACE, name)):
            match event:
                case DocumentsListed(documents):
                    for document in documents:
                        self._saw(document.data, document.labels)
                case Changed(document):
                    self._saw(document.data, document.labels)
                case Deleted():
                    self.shown.append(Shown(self._at_ms(), None, {}, OPERATOR))

    def _saw(self, data: dict[str, str], labels: dict[str, str]) -> None:
        by = OPERATOR if (data, labels) in self._by_operator else "agent"
        self.shown.append(Shown(self._at_ms(), data, labels, by))

    def _at_ms(self) -> int:
        return _now_ms() - self._begin_ms


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
