"""A real Device Plugin stops and starts beside an agent that owns device-info, in virtual time.

The plugin is its writes: one every 5 minutes and at each start, as ``device-plugin#1.7``
has it. Its name in the store is that of the real program.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from typing import TYPE_CHECKING

import msgspec
import pytest

from contract.codes.levels import Severity
from contract.documents.vigil_key import VIGIL_KEY, decode_vigil_key
from contract.names import (
    DEVICE_INFO_NAMESPACE,
    NODE_INFO_NAMESPACE,
    REPORT_LABEL,
    device_info_name,
    node_info_name,
)
from stores.base import Document, LastWriter
from tests.acceptance.reading import signed
from tests.parts.deadlines import stand_in_waits
from tests.replay.player import NODE, Player

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from agent.config import AgentConfiguration
    from contract.pages.agent_status import AgentStatus

FAULT = "80E01801"
CODES = "dcmi_get_device_errorcode_v2"
NO_ANSWER = -8012
PERIOD_SECONDS = 300
GONE_SECONDS = PERIOD_SECONDS + 60
STARTED_MS = 1_795_262_000_000
RECORDING = {"profile": "a2", "started_ms": STARTED_MS, "steps": [], "expected": [{"at_ms": 0}]}
PLACE = DEVICE_INFO_NAMESPACE, device_info_name(NODE)
NODE_INFO_PLACE = NODE_INFO_NAMESPACE, node_info_name(NODE)


class Beside(Player):
    """An agent, and a Device Plugin that can be started and stopped."""

    def __init__(self, place: Path) -> None:
        super().__init__(RECORDING, place)
        self._plugin: asyncio.Task[None] | None = None
        self._seen = 0

    def start_plugin(self, program: str = "device-plugin", names: str | None = None) -> None:
        """Start a plugin, whose document has the chips isolated that ``names`` has."""
        self._plugin = asyncio.create_task(self._writes(program, names))

    def stop_plugin(self) -> None:
        """Stop it."""
        assert self._plugin is not None
        self._plugin.cancel()

    async def _writes(self, program: str, names: str | None) -> None:
        while True:
            self.write(program, names)
            await stand_in_waits(PERIOD_SECONDS)

    def write(self, program: str, names: str | None = None) -> None:
        """Write device-info once, as the plugin does that finds every chip well."""
        now_ms = self._wall_clock()
        chips = ",".join(f"Ascend910-{chip}" for chip in range(8))
        lists = {
            "huawei.com/Ascend910": chips,
            "huawei.com/Ascend910-Fault": "[]",
            "huawei.com/Ascend910-NetworkUnhealthy": "",
            "huawei.com/Ascend910-Recovering": "",
            "huawei.com/Ascend910-Unhealthy": "",
        }
        data = {"DeviceInfoCfg": signed(lists, now_ms // 1000)}
        if names is not None:
            data["ManuallySeparateNPU"] = names
        self.cluster.write_as(
            LastWriter(program, now_ms // 1000 * 1000), Document(*PLACE, data, dict([REPORT_LABEL]))
        )

    def occur(self, chip: int, code: str) -> None:
        """Begin a fault of a chip."""
        self._driver.do({"do": "occur", "chip": chip, "code": code, "severity": Severity.CRITICAL})

    def fail(self, chip: int, code: int) -> None:
        """Make the code list of a chip fail with ``code``; 0 makes it readable again."""
        self._driver.do({"do": "driver-error", "chip": chip, "function": CODES, "rc": code})

    def keys(self) -> dict[str, set[int | None]]:
        """Return the blind chips in our own data key, by the kind of the document."""
        places = {"device-info": PLACE, "node-info": NODE_INFO_PLACE}
        return {
            kind: {
                one.chip
                for one in decode_vigil_key(document.data[VIGIL_KEY], kind).blind
                if one.source == "chip-faults"
            }
            for kind, place in places.items()
            if (document := self.cluster.documents.get(place)) is not None
            and VIGIL_KEY in document.data
        }

    def status(self) -> AgentStatus:
        """Return the status of the agent."""
        assert self.agent is not None
        return self.agent.status()

    def written(self) -> list[str]:
        """Return the writers of the document since the last call."""
        by = [one.by for one in self.played.shown[self._seen :]]
        self._seen = len(self.played.shown)
        return by

    def codes(self) -> set[str]:
        """Return the fault codes in device-info."""
        info = json.loads(self.cluster.documents[PLACE].data["DeviceInfoCfg"])["DeviceInfo"]
        faults = json.loads(info["DeviceList"]["huawei.com/Ascend910-Fault"])
        return set(itertools.chain(*(one["fault_time_and_level_map"] for one in faults)))

    def seconds_since_beat(self) -> float:
        """Return the age of the heartbeat (s)."""
        return (self._wall_clock() - self.cluster.beaten_at_ms(NODE)) / 1000


class WithNodeInfo(Beside):
    """The same, with an agent that owns node-info, too.

    ``unnamed`` counts the changes of a document after which neither had our own data key, while
    ``is_blind``.
    """

    is_blind = False
    unnamed = 0

    def _configuration(self) -> AgentConfiguration:
        both = ("device-info", "node-info")
        return msgspec.structs.replace(super()._configuration(), documents=both)

    def _changed(self, name: str, document: Document | None, by: str) -> None:
        super()._changed(name, document, by)
        self.unnamed += self.is_blind and not self.keys()


@contextlib.asynccontextmanager
async def beside(place: Path) -> AsyncIterator[Beside]:
    """Yield a player of an agent beside a Device Plugin; the agent is not started."""
    player = Beside(place)
    async with _played(player):
        yield player


@contextlib.asynccontextmanager
async def with_node_info(place: Path) -> AsyncIterator[WithNodeInfo]:
    """Yield a player whose agent writes device-info and node-info; it is not started."""
    player = WithNodeInfo(place)
    async with _played(player):
        yield player


@contextlib.asynccontextmanager
async def _played(player: Beside) -> AsyncIterator[None]:
    with player.replaced():
        yield
        await player._end()
        if player._plugin is not None:
            player._plugin.cancel()


@pytest.mark.slow
@pytest.mark.looptime(resolution=2**-20)
async def test_document_is_taken_over_and_given_back_twice(tmp_path: Path) -> None:
    async with beside(tmp_path) as node:
        node.start_plugin()
        await asyncio.sleep(10)
        await node._start()
        node.occur(1, FAULT)
        await asyncio.sleep(2 * PERIOD_SECONDS)
        assert set(node.written()) == {"device-plugin"}
        for _ in range(2):
            node.stop_plugin()
            assert "is left to 'device-plugin'" in "; ".join(node.status().not_ready)
            assert node.seconds_since_beat() < 6
            await asyncio.sleep(GONE_SECONDS)
            assert set(node.written()) == {"agent"}
            assert node.codes() == {FAULT}
            assert node.status().not_ready == ()
            await asyncio.sleep(600 - GONE_SECONDS)
            assert set(node.written()) <= {"agent"}
            node.start_plugin()
            await asyncio.sleep(2 * PERIOD_SECONDS - 20)
            assert node.written() == ["device-plugin"] * 2
            assert "is left to 'device-plugin'" in "; ".join(node.status().not_ready)
            assert node.seconds_since_beat() < 6


@pytest.mark.slow
@pytest.mark.looptime(resolution=2**-20)
async def test_own_key_is_never_lost_when_the_document_changes_hands(tmp_path: Path) -> None:
    async with with_node_info(tmp_path) as node:
        node.start_plugin()
        await asyncio.sleep(10)
        await node._start()
        await asyncio.sleep(10)
        assert node.keys() == {}
        node.fail(3, NO_ANSWER)
        await asyncio.sleep(60)
        assert node.keys() == {"node-info": {3}}
        node.is_blind = True
        for chip in (4, 5):
            node.stop_plugin()
            await asyncio.sleep(GONE_SECONDS)
            assert node.keys()["device-info"] == {3, *range(4, chip)}
            node.fail(chip, NO_ANSWER)
            await asyncio.sleep(60)
            blind = {3, *range(4, chip + 1)}
            # The plugin may return at any moment.
            assert node.keys() == {"device-info": blind, "node-info": blind}
            await node._end()
            await node._start()
            await asyncio.sleep(60)
            assert node.keys()["device-info"] == blind
            node.start_plugin()
            await asyncio.sleep(10)
            assert node.keys() == {"node-info": blind}
        assert node.unnamed == 0
        node.is_blind = False
        for chip in (3, 4, 5):
            node.fail(chip, 0)
        await asyncio.sleep(60)
        assert node.keys() == {}
        assert NODE_INFO_PLACE not in node.cluster.documents


@pytest.mark.slow
@pytest.mark.looptime(resolution=2**-20)
async def test_own_key_is_in_device_info_alone_without_another_program(tmp_path: Path) -> None:
    async with with_node_info(tmp_path) as node:
        await node._start()
        await asyncio.sleep(10)
        node.fail(3, NO_ANSWER)
        await asyncio.sleep(60)
        assert node.keys() == {"device-info": {3}}
        await node._end()
        node.is_blind = True
        await node._start()
        await asyncio.sleep(60)
        assert NODE_INFO_PLACE not in node.cluster.documents
        assert node.unnamed == 0


@pytest.mark.looptime(resolution=2**-20)
async def test_deleted_document_is_taken_over_at_once(tmp_path: Path) -> None:
    async with beside(tmp_path) as node:
        node.write("device-plugin")
        await node._start()
        await asyncio.sleep(10)
        assert node.written() == ["device-plugin"]
        node.cluster.remove(*PLACE)
        await asyncio.sleep(1)
        assert node.written() == ["operator", "agent"]


@pytest.mark.looptime(resolution=2**-20)
async def test_unknown_program_holds_the_document_for_a_minute(tmp_path: Path) -> None:
    async with beside(tmp_path) as node:
        node.write("backup-tool")
        await node._start()
        await asyncio.sleep(55)
        assert node.written() == ["backup-tool"]
        await asyncio.sleep(10)
        assert node.written() == ["agent"]


@pytest.mark.looptime(resolution=2**-20)
async def test_write_of_a_stranger_gives_nothing_back(tmp_path: Path) -> None:
    async with beside(tmp_path) as node:
        await node._start()
        await asyncio.sleep(10)
        node.written()
        node.write("backup-tool")
        await asyncio.sleep(1)
        assert node.written() == ["backup-tool", "agent"]
        node.write("device-plugin")
        await asyncio.sleep(1)
        assert node.written() == ["device-plugin"]


@pytest.mark.slow
@pytest.mark.looptime(resolution=2**-20)
async def test_plugin_in_a_conflict_is_given_the_document(tmp_path: Path) -> None:
    """Its writes come while a stranger's have begun a conflict already."""
    async with beside(tmp_path) as node:
        await node._start()
        await asyncio.sleep(10)
        for _ in range(6):
            node.write("backup-tool")
            await asyncio.sleep(0.2)
        assert node.status().publications[0].conflict is not None
        node.written()
        for _ in range(4):
            node.write("device-plugin")
            await asyncio.sleep(PERIOD_SECONDS)
        by = node.written()
        second = by.index("device-plugin", by.index("device-plugin") + 1)
        assert "agent" not in by[second:]
        assert node.status().publications[0].conflict is None
        assert node.status().publications[0].left_to_writer == "device-plugin"


@pytest.mark.slow
@pytest.mark.looptime(resolution=2**-20)
async def test_isolation_in_the_document_of_the_plugin_is_adopted(tmp_path: Path) -> None:
    """What it isolates stays isolated, what an operator released in it is released."""
    async with beside(tmp_path) as node:
        node.write("device-plugin", "Ascend910-2,Ascend910-3")
        await node._start()
        await asyncio.sleep(10)
        there = node.cluster.documents[PLACE]
        edited = {**there.data, "ManuallySeparateNPU": "Ascend910-3"}
        node.cluster.change(Document(*PLACE, edited, there.labels))
        await asyncio.sleep(GONE_SECONDS)
        assert node.written()[-1] == "agent"
        data = node.cluster.documents[PLACE].data
        assert data["ManuallySeparateNPU"] == "Ascend910-3"
