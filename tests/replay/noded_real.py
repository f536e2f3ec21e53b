"""Plays a recording of the real NodeD in real time: an agent's process with some BMC.

The BMC and the process are a ``NodedMachine``; the store is any. What the store has at each resting
point is compared with what the real program had there. Recordings rest a minute between most
changes, which are 60 s for a poll of the real program; ``speed`` lets them pass faster.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

from contract.errors import StoreError
from contract.names import NODE_INFO_NAMESPACE, node_info_name
from stores.base import Document
from tests.compatibility import different, unlisted
from tests.parts.deadlines import time_passes
from tests.parts.recording_player import merged
from tests.replay.node import ELSEWHERE
from tests.replay.noded import (
    RECORDED_PERIOD_SECONDS,
    WITH_RECORDED_PERIOD,
    serial_upstream,
    tree_of,
    upstream_at,
)
from tests.replay.real import CannotPlay

if TYPE_CHECKING:
    from collections.abc import Callable

    from stores.base import Store
    from tests.compatibility import Difference

PERIOD_SECONDS = 1.0
"""How often the BMC is asked, at the recording's own speed."""
_SETTLES_MS = 100


def period_of(name: str) -> float:
    """Return the period of requests to a recording's BMC, in seconds at its own speed."""
    return RECORDED_PERIOD_SECONDS if name in WITH_RECORDED_PERIOD else PERIOD_SECONDS


class NodedMachine(Protocol):
    """A server: its BMC, its files, and its agent as a process."""

    def bmc(self, step: dict[str, Any]) -> None:
        """Do a step of the BMC now."""

    def file(self, step: dict[str, Any]) -> None:
        """Put a file there. Raises ``CannotPlay``."""

    def start(self, environment: dict[str, str]) -> None:
        """Start the agent and wait until it asks the BMC."""

    def stop(self) -> None:
        """End the agent, and wait for it. One that does not run is not an error."""

    def kill(self) -> None:
        """End the agent without a word. One that does not run is not an error."""


@dataclass
class NodedPlay:
    """One recording on one machine. ``elsewhere`` does what only an API server has."""

    recording: dict[str, Any]
    machine: NodedMachine
    store: Store
    elsewhere: Callable[[dict[str, Any], str], None] | None = None
    serial_number: Callable[[str], str | None] | None = None
    speed: float = 1.0
    gate: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Starts that share one go one after the other."""
    _begin: float = 0.0

    async def run(self) -> list[Difference]:
        """Play the recording; return the differences that are not in ``docs/differences.md``."""
        steps, name = self.recording["steps"], self.recording["name"]
        times = [step["at_ms"] for step in steps] + [self.recording["end_ms"]]
        node = next(step["node_name"] for step in steps if step["do"] == "start-agent")
        found: list[Difference] = []
        self._begin = time.monotonic()
        try:
            for step, (at_ms, next_ms) in zip(steps, pairwise(times), strict=True):
                await self._until(at_ms)
                await self._do(step, node)
                if next_ms - at_ms < _SETTLES_MS:
                    continue
                await self._until(next_ms - 40)
                shown = await self._shown(node)
                if shown is not None:
                    upstream = upstream_at(self.recording, next_ms - 40)
                    found += unlisted(f"noded/{name}@{next_ms}", [*different(upstream, shown.tree)])
            if self.serial_number is not None:
                ours = await asyncio.to_thread(self.serial_number, node)
                differs = different(serial_upstream(self.recording), ours, "$.serial")
                found += unlisted(f"noded/{name}@{times[-1]}", [*differs])
        finally:
            await asyncio.to_thread(self.machine.stop)
        return found

    async def _until(self, at_ms: float) -> None:
        at = self._begin + at_ms / 1000 / self.speed
        await time_passes(at - time.monotonic())

    async def _do(self, step: dict[str, Any], node: str) -> None:
        match step["do"]:
            case "bmc" | "bmc-hang" | "bmc-error":
                self.machine.bmc(step)
            case "start-agent" | "restart-agent":
                await self._start(step)
            case "stop-agent":
                dies = step["signal"] == "SIGKILL"
                await asyncio.to_thread(self.machine.kill if dies else self.machine.stop)
            case "configmap":
                await self._edit(step)
            case "file":
                self.machine.file(step)
            case "api-server" if self.elsewhere is None:
                raise CannotPlay("a directory has no API server")
            case "api-server" | "node":
                if self.elsewhere is not None:
                    await asyncio.to_thread(self.elsewhere, step, node)
            case name if name in ELSEWHERE:
                pass
            case other:
                raise CannotPlay(f"{other} cannot be played")

    async def _start(self, step: dict[str, Any]) -> None:
        """Start the agent; the time that this takes is added to all that comes."""
        zones = {"Asia/Shanghai": "CST-8"}
        zone = step.get("environment", {}).get("TZ")
        begun = time.monotonic()
        async with self.gate:
            await asyncio.to_thread(
                self.machine.start, {"TZ": zones[zone] if zone is not None else "UTC0"}
            )
        self._begin += time.monotonic() - begun

    async def _shown(self, node: str) -> _Shown | None:
        """Return the stored document; ``None`` while the store does not answer."""
        try:
            async with asyncio.timeout(1):
                document = await self.store.get(NODE_INFO_NAMESPACE, node_info_name(node))
        except (StoreError, TimeoutError):
            return None
        return _Shown(tree_of(document))

    async def _edit(self, step: dict[str, Any]) -> None:
        """Edit a ConfigMap as an operator does."""
        namespace, name = step["namespace"], step["name"]
        match step["action"]:
            case "create" | "update":
                labels = step.get("labels", {})
                await self.store.put(Document(namespace, name, step["data"], labels))
            case "delete":
                await self.store.delete(namespace, name)
            case "patch":
                there = await self.store.get(namespace, name)
                assert there is not None
                meta = step["patch"].get("metadata", {})
                data = merged(there.data, step["patch"].get("data", {}))
                labels = merged(there.labels, meta.get("labels", {}))
                await self.store.put(Document(namespace, name, data, labels))


@dataclass(frozen=True)
class _Shown:
    tree: Any


def fault_configuration_text(step: dict[str, Any]) -> str:
    """Return the text that a step writes to the node's fault configuration.

    Raises ``CannotPlay`` for another file.
    """
    if step["path"] != "/usr/local/NodeDConfiguration.json":
        raise CannotPlay(f"there is no {step['path']}")
    text = step["text"]
    return text if isinstance(text, str) else json.dumps(text)
