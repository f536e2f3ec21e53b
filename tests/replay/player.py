"""Plays a recording of the real device plugin: the real agent in virtual time, without I/O.

Only its edges are replaced: the driver, the link tool and the switch library are the recording's,
the store is in memory, the journal has no threads, and there are no pages and no signals.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace
from typing_extensions import override

from agent.config import AgentConfiguration
from agent.daemon import Agent
from collectors.bmc import BmcSection
from collectors.file_systems.collector import FileSystemsSection
from collectors.host_clock import ClockSection
from collectors.kernel_log.collector import KernelLogSection
from collectors.memory.collector import MemorySection
from collectors.storage.collector import StorageSection
from contract.names import DEVICE_INFO_NAMESPACE, REPORT_LABEL, device_info_name
from stores.base import Document, PodUsage
from tests.parts.recording_player import RecordingPlayer, merged
from tests.replay.cluster import RecordedCluster
from tests.replay.driver import RecordedDriver
from tests.replay.journal import RecordedJournal
from tests.replay.links import RecordedTool
from tests.replay.switches import RecordedSwitches
from tests.vectors import VECTORS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agent.exit_deadline import ExitDeadline
    from dcmi_shim.driver import Driver
    from stores.base import KubernetesEvent, NodeObject, Store

NODE = "node-1"
SETTLED_SECONDS = 10.0
"""How long a recording goes on after its last step, at least."""
OPERATOR = "operator"
_JITTERS = ("agent.heartbeat.heartbeat", "agent.publishing.public_fault", "pacing.backoff")
RECORDINGS = sorted(path.stem for path in (VECTORS / "device-plugin/recordings").glob("*.json"))


@dataclass(frozen=True)
class Shown:
    """What the store had from ``at_ms`` (since the first step) on; no ``data``: nothing.

    Its times are ``ahead_ms`` later than those of the recording.
    """

    at_ms: int
    data: dict[str, str] | None
    labels: dict[str, str]
    by: str
    ahead_ms: int = 0


@dataclass
class Played:
    """What an agent did when the steps of a recording happened."""

    shown: list[Shown] = field(default_factory=list)
    lives: int = 0
    events: list[KubernetesEvent] = field(default_factory=list)
    node: NodeObject | None = None


def recorded(name: str) -> dict[str, Any]:
    """Return the recording called ``name``."""
    text = (VECTORS / f"device-plugin/recordings/{name}.json").read_text()
    recording: dict[str, Any] = json.loads(text)
    return recording


def ends_ms(recording: dict[str, Any]) -> int:
    """Return the time of the last observation in ``recording``, upstream's or one of ours (ms)."""
    seen = recording.get("observed") or recording["expected"]
    return int(seen[-1]["at_ms"])


async def play(recording: dict[str, Any], settle_seconds: float = SETTLED_SECONDS) -> Played:
    """Play the steps of ``recording`` and wait ``settle_seconds``; return what the agent did."""
    with tempfile.TemporaryDirectory(prefix="npu-vigil-") as place:
        return await play_in(Path(place), recording, settle_seconds)


async def play_in(
    place: Path, recording: dict[str, Any], settle_seconds: float = SETTLED_SECONDS
) -> Played:
    """Play as ``play`` does; the agent leaves its state in ``place``."""
    player = Player(recording, place)
    with player.replaced():
        await player.run(settle_seconds)
    player.played.events += player.cluster.objects.events.values()
    player.played.node = player.cluster.objects.node
    return player.played


class Player(RecordingPlayer):
    """A node, its agent (maybe in shadow) and its cluster."""

    def __init__(self, recording: dict[str, Any], place: Path, *, in_shadow: bool = False) -> None:
        super().__init__()
        self.played = Played()
        self.agent: Agent | None = None
        self._in_shadow = in_shadow
        self._recording = recording
        self._started_ms = int(recording["started_ms"])
        self._place = place
        self._driver = RecordedDriver(recording["profile"], self._wall_clock)
        self._tool = RecordedTool()
        self._switches = RecordedSwitches()
        self.cluster = RecordedCluster(self._changed)

    @contextlib.contextmanager
    def replaced(self) -> Iterator[None]:
        """Replace the edges of agents by the recording's within the block."""
        steady = SimpleNamespace(monotonic=self._loop.time)
        with self.edges("agent.daemon.on_stop", "agent.daemon.serving", _JITTERS) as patch:
            patch.setattr("agent.wiring.Journal", RecordedJournal)
            patch.setattr("agent.publishing.device_info.time", steady)
            patch.setattr("collectors.links.collector.HccnTool", self._tool.here)
            patch.setattr("collectors.switch.SwitchDriver", self._switches.here)
            yield

    async def run(self, settle_seconds: float) -> None:
        """Do the steps at their times, and go on until the recording ended."""
        await self.do_all(self._recording["steps"])
        await asyncio.sleep(settle_seconds)
        await self.until(ends_ms(self._recording) / 1000)
        await self._end()

    def _wall_clock(self) -> int:
        return self._started_ms + self.at_ms

    @override
    async def do(self, step: Mapping[str, Any]) -> None:
        step = dict(step)
        match step["do"]:
            case "start-agent":
                await self._start()
            case "stop-agent":
                await (self._kill() if step["signal"] == "SIGKILL" else self._end())
            case "api-server":
                self.cluster.do(step["action"])
            case "configmap":
                self._edit(step)
            case "pod":
                self._pod(step)
            case "file":
                self._file(step)
            case "link-without-event" | "hccn":
                self._tool.do(step)
            case "link":
                self._tool.do(step)
                self._driver.do(step)
            case "switch":
                self._switches.do(step, self._wall_clock())
            case _:
                self._driver.do(step)

    async def _start(self) -> None:
        """Begin a life of the agent; upstream may have ended and be started anew, ours runs on."""
        if self._life is not None:
            return
        self._driver.subscribe()
        self.played.lives += 1
        (self._place / "state").mkdir(exist_ok=True)
        self.agent = Agent(
            self._configuration(),
            cast("Store", self.cluster),
            cast("Driver", self._driver),
            cast(
                "ExitDeadline",
                SimpleNamespace(
                    has_begun=True, start_timer=lambda: None, note_complete=lambda: None
                ),
            ),
            self._wall_clock,
        )
        self._life = asyncio.create_task(self.agent.run(), name="agent")

    def _configuration(self) -> AgentConfiguration:
        return AgentConfiguration(  # type: ignore[call-arg]
            node_name=NODE,
            state_dir=self._place / "state",
            driver_root=self._place / "driver",
            trust_driver=True,
            documents=("device-info",),
            bmc=BmcSection(enabled=False),
            fault_config_dir=self._place / "fault-config",
            shadow=self._in_shadow,
            # What the machine that plays suffers from happened to no recording.
            storage=StorageSection(
                dpc_file=str(self._place / "dpc_status_check"),
                dtfs_file=str(self._place / "dtfs_status_check"),
            ),
            file_systems=FileSystemsSection(enabled=False),
            memory=MemorySection(enabled=False),
            kernel_log=KernelLogSection(enabled=False),
            clock=ClockSection(enabled=False),
        )

    async def _end(self) -> None:
        if self._life is not None:
            self._stop()
            assert await self._life == 0
            self._life = None

    async def _kill(self) -> None:
        """End a life without a word; its journal has what it was given."""
        assert self._life is not None
        self._life.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._life
        self._life = None

    def _edit(self, step: dict[str, Any]) -> None:
        """Edit, write or delete a ConfigMap as an operator."""
        name = step["name"]
        if name == "mindx-dl-deviceinfo":
            name = device_info_name(NODE)
        if step["action"] == "delete":
            self.cluster.remove(DEVICE_INFO_NAMESPACE, name)
            return
        data, labels = step["data"], step.get("labels", dict([REPORT_LABEL]))
        if step["action"] == "edit":
            there = self.cluster.documents[DEVICE_INFO_NAMESPACE, name]
            data = merged(there.data, data)
            labels = merged(there.labels, labels)
        document = Document(DEVICE_INFO_NAMESPACE, name, data, labels)
        self.cluster.change(replace(document, immutable=step.get("immutable", False)))

    def _pod(self, step: dict[str, Any]) -> None:
        if step["action"] == "delete":
            self.cluster.end(step["name"])
            return
        chips = step["annotations"]["huawei.com/AscendReal"].split(",")
        assigned = step["annotations"]["huawei.com/Ascend910"].split(",")
        self.cluster.run(PodUsage(step["name"], NODE, tuple(chips), tuple(assigned)))

    def _file(self, step: dict[str, Any]) -> None:
        """Write a file of the fault configuration, which exists before the agent starts."""
        directory = self._place / "fault-config"
        directory.mkdir(exist_ok=True)
        content = step["content"]
        text = content if isinstance(content, str) else json.dumps(content)
        (directory / step["name"]).write_text(text)

    def _changed(self, name: str, document: Document | None, by: str) -> None:
        if name == device_info_name(NODE):
            data = None if document is None else document.data
            labels = {} if document is None else document.labels
            self.played.shown.append(Shown(self.at_ms, data, labels, by))
