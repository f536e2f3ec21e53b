"""The forwarder of a journal, with the real journal and the real file of an aggregator."""

from __future__ import annotations

import asyncio
import shutil
import time
from typing import TYPE_CHECKING

import pytest

from agent.history_forwarding.forwarder import HistoryForwarder
from agent.journal.file import FILE_NAME
from agent.journal.journal import Journal
from agent.journal.rows import RowKind, body_of
from agent.policy.state import Change, ChangeKind
from aggregator.notify.history_file import HistoryFile, read_page
from contract.observation import chip_subject
from contract.pages.history import HistoryRange
from tests.parts.deadlines import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from stores.base import HistoryAck, HistoryBatch
    from stores.interruption import Interrupted


class Way:
    """Carries everything at once; the last acknowledgement is there for every later reader."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = HistoryFile(path)
        self._last: HistoryAck | None = None
        self._spoken = asyncio.Event()

    async def send(self, batch: HistoryBatch) -> None:
        (self._last,) = self._file.store_batches([batch], _now_ms()).acks
        self._spoken.set()

    async def acks(self, node: str) -> AsyncIterator[HistoryAck | Interrupted]:
        assert node == "node-1"
        while True:
            if self._last is not None:
                yield self._last
            self._spoken.clear()
            await self._spoken.wait()

    def batches(self) -> AsyncIterator[HistoryBatch | Interrupted]:
        raise NotImplementedError

    async def acknowledge(self, acks: HistoryAck) -> None:
        raise NotImplementedError

    def episodes(self) -> list[str]:
        page = read_page(self._path, HistoryRange(after=0))
        return [one.event.episode for one in page.events if one.event is not None]

    def close(self) -> None:
        self._file.close()


def _now_ms() -> int:
    return int(time.time() * 1000)


async def life(directory: Path, way: Way, first: int, episodes: list[str], wanted: int) -> None:
    """Run an agent of that directory until the aggregator has ``wanted`` changes."""
    journal = Journal(
        directory,
        first_sequence=first,
        wall_clock=_now_ms,
        on_recovered=lambda: None,
    )
    forwarder = HistoryForwarder(way, "node-1", journal, directory, _now_ms)
    running = asyncio.create_task(forwarder.run())
    for episode in episodes:
        change = Change(ChangeKind.BEGAN, chip_subject(3), "80E01801", episode, _now_ms(), "")
        await journal.committed(
            journal.append([(RowKind.CHANGES, body_of([change]))], _now_ms()), 5
        )
    await until(lambda: len(way.episodes()) >= wanted)
    running.cancel()
    await asyncio.wait({running})
    await journal.close()


@pytest.mark.slow
async def test_a_journal_that_was_set_back_is_reported_as_another_one(tmp_path: Path) -> None:
    way = Way(tmp_path / "history.sqlite")
    state = tmp_path / "state"
    state.mkdir()
    await life(state, way, 1, ["a", "b"], 2)
    shutil.copytree(state, tmp_path / "copy")
    await life(state, way, 3, ["c", "d", "e"], 5)
    shutil.rmtree(state)
    shutil.copytree(tmp_path / "copy", state)
    await life(state, way, 3, ["f", "g"], 9)
    assert way.episodes() == ["a", "b", "c", "d", "e", "a", "b", "f", "g"]
    # It is another one from now on, and nothing of it is sent again.
    await life(state, way, 5, ["h"], 10)
    assert way.episodes()[9:] == ["h"]
    assert (state / FILE_NAME).exists()
    way.close()
