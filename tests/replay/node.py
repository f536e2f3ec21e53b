"""Plays a recording of the real NodeD: the real agent in virtual time, on a recorded BMC.

Everything of the agent runs, also what is about its chips, which are well. Its BMC is asked in the
period that ships, unless a recording is about what happens between two polls.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace
from typing_extensions import override

from agent.config import AgentConfiguration
from collectors.bmc import BmcSection
from collectors.registry import COLLECTORS
from collectors.storage.collector import StorageSection
from contract.names import NODE_INFO_NAMESPACE, node_info_name
from stores.base import Document, NodeObject
from tests.parts.recording_player import merged
from tests.replay.bmc import NoRecordedTool, RecordedBmc, RecordedDevice
from tests.replay.noded import SERIAL_NUMBER, standing
from tests.replay.player import Player

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from collectors.base import Collector
    from contract.pages.agent_status import AgentStatus

STARTED_MS = 1_795_262_000_000
_DIED = "SIGKILL"
DPC_FILE, DTFS_FILE = "dpc_status_check", "dtfs_status_check"
_OF_THE_HOST = ("file-systems", "memory", "kernel-log", "clock")
ELSEWHERE = frozenset({"daemonset", "pod", "fault-service", "http-get", "http-post"})
"""What is done to others, or asked: it changes nothing for ours."""


@dataclass(frozen=True)
class Seen:
    """What the store had of node-info from ``at_ms`` on, and who did it: agent or operator."""

    at_ms: int
    by: str
    document: Document | None


class NodePlayer(Player):
    """The agent of one node, its BMC and its cluster."""

    def __init__(self, recording: dict[str, Any], place: Path) -> None:
        super().__init__(recording | {"profile": "a2", "started_ms": STARTED_MS}, place)
        start = next(step for step in recording["steps"] if step["do"] == "start-agent")
        self.node: str = start["node_name"]
        self.cluster.objects.node = NodeObject({}, {})
        self.bmc = RecordedBmc()
        if recording["name"].startswith("bmc-absent-unmodified"):
            self.bmc.do({"do": "bmc", "present": False})
        self.period_seconds = BmcSection().period_seconds
        self.shown: list[Seen] = []

    @property
    def document(self) -> Document | None:
        """Return the stored node-info document; ``None`` if there is none."""
        return self.cluster.documents.get((NODE_INFO_NAMESPACE, node_info_name(self.node)))

    @property
    def serial_number(self) -> str | None:
        """Return the server's serial number on the Node."""
        return self.cluster.objects.node.annotations.get(SERIAL_NUMBER)

    @property
    def public_faults(self) -> list[str]:
        """Return the codes of storage faults that hold by the documents about them."""
        return standing(
            json.loads(document.data["PublicFault"])
            for (_, name), document in sorted(self.cluster.documents.items())
            if "PublicFault" in document.data and name.endswith(self.node)
        )

    @contextlib.contextmanager
    def replaced(self) -> Iterator[None]:
        """Replace the edges of agents by the recording's within the block."""
        with super().replaced(), pytest.MonkeyPatch.context() as patch:
            patch.setattr("dcmi_shim.ipmi.bmc.IpmiDevice", partial(RecordedDevice, self.bmc))
            patch.setattr("dcmi_shim.ipmi.bmc.IpmiTool", NoRecordedTool)
            patch.setattr("agent.collector_setup.COLLECTORS", _of_recordings())
            yield

    @override
    async def do(self, step: Mapping[str, Any]) -> None:
        step = dict(step)
        match step["do"]:
            case "bmc" | "bmc-hang" | "bmc-error":
                self.bmc.do(step)
            case "restart-agent":
                await self._start()
            case "stop-agent":
                if self._life is not None:
                    await (self._kill() if step["signal"] == _DIED else self._end())
            case "node":
                self._change_node(step)
            case name if name in ELSEWHERE:
                pass
            case _:
                await super().do(step)

    async def all_steps(self) -> None:
        """Do all steps at their times, and go on until the end of the recording."""
        await self.do_all(self._recording["steps"])
        await self.until(self._recording["end_ms"] / 1000)

    async def end(self) -> None:
        """End the agent, if it runs."""
        await self._end()

    def forget(self) -> None:
        """Delete the journal of an agent that does not run."""
        assert self._life is None
        shutil.rmtree(self._place / "state")

    def known_codes(self) -> set[str]:
        """Return the codes of the server's faults in the agent's state."""
        faults = self._picture().faults
        return {fault.code for fault in faults if fault.subject.startswith("host")}

    def failed_readings(self) -> float:
        """Return how many failed readings of the BMC the agent counted."""
        return self._picture().bmc_failed_readings or 0

    def blind(self) -> dict[str, str]:
        """Return the blind sources as the agent reports them."""
        return {one.source: one.reason for one in self._picture().blind}

    def _picture(self) -> AgentStatus:
        assert self.agent is not None
        return self.agent.status()

    def _configuration(self) -> AgentConfiguration:
        usual = super()._configuration()
        return AgentConfiguration(  # type: ignore[call-arg]
            node_name=self.node,
            state_dir=usual.state_dir,
            driver_root=usual.driver_root,
            trust_driver=os.geteuid() != 0,
            fault_config_dir=usual.fault_config_dir,
            bmc=BmcSection(period_seconds=self.period_seconds),
            storage=StorageSection(
                dpc_file=str(self._place / DPC_FILE), dtfs_file=str(self._place / DTFS_FILE)
            ),
        )

    def _change_node(self, step: dict[str, Any]) -> None:
        meta = step["patch"]["metadata"] if step["action"] == "patch" else step
        self.cluster.objects.change_node({}, meta.get("annotations") or {})

    def _edit(self, step: dict[str, Any]) -> None:
        """Edit a ConfigMap as an operator does."""
        namespace, name = step["namespace"], step["name"]
        there = self.cluster.documents.get((namespace, name))
        match step["action"]:
            case "create" | "update":
                document = Document(namespace, name, step["data"], step.get("labels", {}))
                self.cluster.change(replace(document, immutable=step.get("immutable", False)))
            case "delete":
                self.cluster.remove(namespace, name)
            case "patch":
                assert there is not None
                meta = step["patch"].get("metadata", {})
                data = merged(there.data, step["patch"].get("data", {}))
                labels = merged(there.labels, meta.get("labels", {}))
                self.cluster.change(Document(namespace, name, data, labels))

    def _file(self, step: dict[str, Any]) -> None:
        """Write a file of the host that the agent reads; ignore files of snapshots."""
        name = Path(step["path"]).name
        if name == "NodeDConfiguration.json":
            super()._file({"name": name, "content": step["text"]})
        elif name in (DPC_FILE, DTFS_FILE):
            put_file(self._place / name, step)

    def _changed(self, name: str, document: Document | None, by: str) -> None:
        if name == node_info_name(self.node):
            self.shown.append(Seen(self.at_ms, by, document))


def _of_recordings() -> tuple[type[Collector[Any]], ...]:
    """Return all collectors except those that read the real host."""
    return tuple(make for make in COLLECTORS if make.name not in _OF_THE_HOST)


def put_file(file: Path, step: dict[str, Any]) -> None:
    """Do a step of a recording that puts a status file there or takes it away."""
    real = file.with_name("real")
    for old in (file, real):
        old.unlink(missing_ok=True)
    if step["text"] is None:
        return
    target = real if "symlink_to" in step else file
    target.write_bytes(step["text"].encode())
    target.chmod(int(step.get("mode", "0400"), 8))
    if target is real:
        file.symlink_to(real)
    if "owner_uid" in step:
        if os.geteuid() != 0:
            pytest.skip("only root may give a file to somebody else")
        os.lchown(file, step["owner_uid"], -1)


_ZONES = {None: "UTC0", "Asia/Shanghai": "CST-8"}
"""The zones of recordings as C knows them without a data base."""


@contextlib.contextmanager
def time_zone(name: str | None) -> Iterator[None]:
    """Set the local time zone to ``name`` within the block."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = _ZONES[name]
    time.tzset()
    try:
        yield
    finally:
        del os.environ["TZ"]
        if before is not None:
            os.environ["TZ"] = before
        time.tzset()
