"""Plays a recording of the real NodeD: BMC, collector's beliefs, policy, document and publisher.

It runs in virtual time. The BMC is asked every ten seconds, in pages, and answers at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import struct
import time
from typing import TYPE_CHECKING, Any, cast

import msgspec

from agent.journal.file import Kind, Remembered, Row
from agent.policy.state import Acknowledged, State, believed
from agent.policy.stepping import Input, step
from agent.publishing.node_info import NodeInfoDocument
from agent.publishing.publisher import Edges, Publisher
from agent.verdicts import restore
from collectors.bmc import BmcBeliefs
from contract.catalogue import shipped
from contract.names import NODE_INFO_NAMESPACE, node_info_name
from dcmi_shim.ipmi_alarms import reading
from stores.base import Document
from tests.replay.cluster import RecordedCluster
from tests.vectors import VECTORS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dcmi_shim.ipmi_alarms import Alarm
    from stores.base import Store

PERIOD_SECONDS = 10.0
STARTED_MS = 1_795_262_000_000
_MANUFACTURER = bytes.fromhex("db0700")


def recorded_node(name: str) -> dict[str, Any]:
    """The recording called ``name``."""
    text = (VECTORS / f"noded/recordings/{name}.json").read_text()
    recording: dict[str, Any] = json.loads(text)
    return recording


class RecordedBmc:
    """A BMC whose alarms are those of the recording."""

    def __init__(self) -> None:
        self.alarms: list[list[Any]] = []
        self.page = 10
        self.trouble: str | None = None

    def do(self, action: dict[str, Any]) -> None:
        self.alarms = action.get("alarms", self.alarms)
        self.page = action.get("events_per_reply", self.page)
        if "present" in action:
            self.trouble = None if action["present"] else "there is no /dev/ipmi0"
        if "on" in action:
            self.trouble = "no answer within 10 s" if action["on"] else None

    def read(self, before: tuple[Alarm, ...] | None) -> tuple[Alarm, ...]:
        """One complete reading, request by request."""
        asking = reading(before)
        request = next(asking)
        while True:
            try:
                request = asking.send(self._reply(request.data))
            except StopIteration as done:
                return cast("tuple[Alarm, ...]", done.value)

    def _reply(self, request: bytes) -> bytes:
        index, severities = int.from_bytes(request[5:7], "little"), request[7]
        asked_for = [alarm for alarm in self.alarms if 1 << alarm[3] & severities]
        page = asked_for[index : index + self.page]
        events = b"".join(
            struct.pack("<IIBBB4x", int(code, 16), 0, severity, kind, number)
            for code, kind, number, severity in page
        )
        return _MANUFACTURER + struct.pack("<HBx", len(asked_for), len(page)) + events


class NodePlayer:
    """The agent of one node, its BMC and its cluster."""

    def __init__(self, node: str) -> None:
        self.cluster = RecordedCluster()
        self.bmc = RecordedBmc()
        self._node = node
        self._loop = asyncio.get_running_loop()
        self._begin = self._loop.time()
        self._journal: bytes | None = None
        self._state = State(node, "boot")
        self._life: asyncio.Task[None] | None = None
        self._publisher: Publisher | None = None

    def at_ms(self) -> int:
        return round((self._loop.time() - self._begin) * 1000)

    def wall_clock(self) -> int:
        return STARTED_MS + self.at_ms()

    @property
    def document(self) -> Document | None:
        """What the store has."""
        return self.cluster.documents.get((NODE_INFO_NAMESPACE, node_info_name(self._node)))

    async def until(self, at_ms: float) -> None:
        """Let time pass until then."""
        await asyncio.sleep(max(0.0, at_ms / 1000 - (self._loop.time() - self._begin)))

    async def do(self, action: dict[str, Any]) -> None:
        """Do a step of the recording now."""
        match action["do"]:
            case "bmc" | "bmc-hang":
                self.bmc.do(action)
            case "api-server":
                self.cluster.do(action["action"])
            case "configmap":
                self._edit(action)
            case "start-agent" | "restart-agent":
                self.start()
            case "stop-agent":
                await self.stop()
            case other:
                raise AssertionError(f"the recorded node cannot {other}")

    def start(self) -> None:
        """Begin a life of the agent, with what its journal remembers."""
        assert self._life is None
        remembered = Remembered()
        if self._journal is not None:
            row = Row(1, self.wall_clock(), Kind.SNAPSHOT, self._journal.decode())
            remembered = Remembered(snapshot=row, last_sequence=1)
        self._state = restore(remembered, self._node, "boot", shipped())
        self._life = asyncio.create_task(self._live(), name="agent")

    async def stop(self) -> None:
        """Kill the agent: its journal has all that it took in."""
        if self._life is not None:
            self._life.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._life
            self._life = None
            self._journal = msgspec.json.encode(self._state)

    def forget(self) -> None:
        """The journal is lost."""
        self._journal = None

    async def _live(self) -> None:
        document = NodeInfoDocument(self._node, lambda: self._state)
        was_read = asyncio.Event()

        def first_read(existing: Document | None) -> None:
            if not self._state.chips and not self._state.others:
                self._take(document.take_over(existing))
            was_read.set()

        async def committed() -> None:
            await asyncio.sleep(2**-9)

        self._publisher = Publisher(
            cast("Store", self.cluster),
            document.namespace,
            document.name,
            Edges(
                wanted=document.wanted,
                stamp_of=document.stamp_of,
                verify=document.verify,
                before_write=committed,
                before_repair=lambda: asyncio.sleep(0),
                on_first_read=first_read,
                on_foreign=lambda _: False,
                on_acknowledged=lambda _, revision: self._take(
                    [Acknowledged(document.name, revision, self.wall_clock())]
                ),
                on_shown=lambda: None,
                wall_clock=self.wall_clock,
                progress=lambda: None,
            ),
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._publisher.run())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await was_read.wait()
            tasks.create_task(self._collect())

    async def _collect(self) -> None:
        beliefs = BmcBeliefs("bmc", believed(self._state, "bmc"))
        before: tuple[Alarm, ...] | None = None
        while True:
            now_ms = self.wall_clock()
            if self.bmc.trouble is None:
                before = self.bmc.read(before)
                self._take(beliefs.listed(before, now_ms))
            else:
                self._take(beliefs.failed(self.bmc.trouble, now_ms))
            await asyncio.sleep(PERIOD_SECONDS)

    def _take(self, inputs: Sequence[Input]) -> None:
        assert self._publisher is not None
        before = self._state
        self._state, _ = step(before, inputs, self.wall_clock(), shipped())
        if self._state is not before:
            self._publisher.wake(self.wall_clock())

    def _edit(self, action: dict[str, Any]) -> None:
        """What somebody does to the ConfigMap by hand."""
        there = self.document
        match action["action"]:
            case "create":
                labels = action.get("labels", {"mx-consumer-cim": "true"})
                name = node_info_name(self._node)
                there = Document(NODE_INFO_NAMESPACE, name, action["data"], labels)
            case "delete":
                there = None
            case "patch":
                assert there is not None
                meta = action["patch"].get("metadata", {})
                data = _merged(there.data, action["patch"].get("data", {}))
                labels = _merged(there.labels, meta.get("labels", {}))
                there = Document(there.namespace, there.name, data, labels)
        if there is None:
            self.cluster.remove(NODE_INFO_NAMESPACE, node_info_name(self._node))
        else:
            self.cluster.change(there)


def _merged(old: dict[str, str], patch: dict[str, str | None]) -> dict[str, str]:
    merged = {key: value for key, value in old.items() if patch.get(key, "") is not None}
    return merged | {key: value for key, value in patch.items() if value is not None}


_ZONES = {None: "UTC0", "Asia/Shanghai": "CST-8"}
"""The zones of recordings as C knows them without a data base."""


@contextlib.contextmanager
def time_zone(name: str | None) -> Any:
    """Local time is that of ``name`` within the block."""
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
