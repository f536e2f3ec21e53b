"""A collector about chips starts again when chips have other physical ids; others go on."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn, cast

import pytest

from agent.daemon import Agent
from agent.node_documents import NodeDocuments
from collectors.registry import COLLECTORS
from tests.parts.deadlines import stays, until
from tests.parts.verbs import changed_agent

if TYPE_CHECKING:
    from pathlib import Path

    from collectors.base import Collector


class Run:
    """A collector that runs until it is cancelled."""

    def __init__(self, name: str, begun: list[str]) -> None:
        self._name = name
        self._begun = begun

    async def run(self) -> NoReturn:
        self._begun.append(self._name)
        await asyncio.Event().wait()
        raise AssertionError


class Parts:
    """What the agent asks before a collector starts, and the event of other chips."""

    def __init__(self) -> None:
        self.other_chips = asyncio.Event()
        self.collecting = self
        self.documents = SimpleNamespace(wait_until_read=self._ready)
        self.first_document = asyncio.Event()
        self.fault_configuration = SimpleNamespace(known=self._ready)
        self.begun: list[str] = []

    async def _ready(self) -> None:
        await asyncio.sleep(0)

    def new_collector(self, kind: type[Collector[Any]]) -> Run:
        return Run(kind.name, self.begun)

    def change_chips(self) -> None:
        before, self.other_chips = self.other_chips, asyncio.Event()
        before.set()


@pytest.mark.parametrize("make", COLLECTORS, ids=lambda make: make.name)
async def test_collector_about_chips_starts_again_with_other_ids(
    make: type[Collector[Any]],
) -> None:
    parts = Parts()
    agent = cast("Agent", SimpleNamespace(_parts=parts, _first_document=parts.first_document.wait))
    collecting = asyncio.create_task(Agent._collect(agent, make))
    if not make.starts_first:
        await stays(0.02, because="it starts behind the first document")
        assert parts.begun == []
        parts.first_document.set()
    await until(lambda: parts.begun == [make.name])
    parts.change_chips()
    is_about_chips = make.name in {"chip-faults", "links", "hang", "network-health"}
    await until(lambda: len(parts.begun) == 1 + is_about_chips)
    await stays(0.02, because="a collector that is informed starts again at once")
    assert len(parts.begun) == 1 + is_about_chips
    collecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await collecting


def test_what_listens_to_reports_about_chips_starts_with_them() -> None:
    first = {kind.name for kind in COLLECTORS if kind.starts_first}
    assert first == {"chip-faults", "switch", "links"}


@pytest.mark.looptime
async def test_the_rest_starts_behind_the_first_device_info_or_after_a_second() -> None:
    loop, agreed, begun = asyncio.get_running_loop(), asyncio.Event(), list[float]()
    publishers = {"device-info": SimpleNamespace(agreed=agreed)}
    documents: Any = SimpleNamespace(publishers=publishers)
    documents.wait_until_device_info = partial(NodeDocuments.wait_until_device_info, documents)
    agent = cast("Agent", SimpleNamespace(_parts=SimpleNamespace(documents=documents)))
    agent._first_document = partial(Agent._first_document, agent)  # type: ignore[method-assign]

    async def run() -> None:
        begun.append(loop.time())

    await Agent._run_later(agent, run)
    assert begun == [1.0], "no store has answered"
    loop.call_later(0.25, agreed.set)
    await Agent._run_later(agent, run)
    publishers.clear()
    await Agent._run_later(agent, run)
    assert begun[1:] == [1.25, 1.25], "another program owns device-info"


_FAILING = """
import asyncio
from agent.daemon import Agent
from vigil.main import main

async def stuck():
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

async def failing():
    await asyncio.sleep(0.1)
    raise MemoryError

Agent._root_work = lambda _: [("stuck", stuck()), ("failing", failing())]
main()
"""


@pytest.mark.slow
def test_an_agent_whose_task_failed_ends_though_another_one_never_does(tmp_path: Path) -> None:
    ended = changed_agent(_FAILING, tmp_path)
    assert ended.returncode == 1
    assert "the agent ends, because the task 'failing' failed: MemoryError()" in ended.stderr
    assert "the shutdown takes longer than its deadline" in ended.stderr
