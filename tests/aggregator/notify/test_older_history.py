"""A history of an earlier schema is moved aside, and a new one begins with what stands."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from shutil import copyfile

import pytest

from aggregator.notify.history import ClusterHistory
from aggregator.notify.history_file import (
    FILE_NAME,
    SCHEMA_VERSION,
    HistoryFile,
    read_page,
    read_published_levels,
)
from contract.documents.episodes import EpisodeEvent
from contract.observation import chip_subject
from contract.pages.changes import FaultChange
from contract.pages.history import HistoryRange
from service.clock import Instant
from stores.base import HistoryAck, HistoryBatch
from tests.parts.tasks import beside

KEPT = Path(__file__).parent / "kept" / "history-schema-1.sqlite"
"""Written by the last program with that schema: 2 lost rows, 3 events, a change, a run, a span."""
OLD_MS = 1_800_000_000_000
NOW_MS = OLD_MS + 3_600_000
STANDING = {"node-1": {("Ascend910-3", "80E01801"): "RestartNPU"}}


def now() -> Instant:
    return Instant(NOW_MS, NOW_MS)


@pytest.fixture
def older(tmp_path: Path) -> Path:
    path = tmp_path / FILE_NAME
    copyfile(KEPT, path)
    return path


async def test_history_of_an_earlier_schema_is_moved_aside_and_no_fault_is_lost(
    older: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    history = ClusterHistory(tmp_path, {}, now)
    (aside,) = tmp_path.glob(f"{FILE_NAME}.broken-*")
    assert aside.read_bytes() == KEPT.read_bytes()
    (warning,) = caplog.records
    assert warning.levelname == "WARNING"
    assert str(older) in warning.getMessage()
    assert str(aside) in warning.getMessage()

    async with beside(history.run()):
        assert await history.published_levels() is None, "what stands comes from the documents"
        history.begin_levels(STANDING)
        history.begin_span()
        history.record([FaultChange("node-2", NOW_MS, "Ascend910-0", "8C1F8608", None, "L1")])
    assert history.status().trouble is None
    assert not await history.has_all(OLD_MS, NOW_MS), "the gap is reported"
    assert await history.has_all(NOW_MS, NOW_MS)
    page = await history.page(HistoryRange(limit=10))
    assert [row.node for row in page.events] == ["node-2"]
    expected = STANDING | {"node-2": {("Ascend910-0", "8C1F8608"): "L1"}}
    assert read_published_levels(older) == expected
    with closing(sqlite3.connect(older)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    assert len(caplog.records) == 1


async def test_nodes_send_again_and_what_their_journals_lost_is_a_gap(
    older: Path, tmp_path: Path
) -> None:
    ClusterHistory(tmp_path, {}, now)
    with closing(HistoryFile(older)) as file:
        late = HistoryBatch("node-1", "j", 5, 6, ())
        assert file.store_batches([late], NOW_MS).acks == (HistoryAck("node-1", "j", 0),)
        event = EpisodeEvent(6, 0, "e-6", "began", chip_subject(3), "80E01801", OLD_MS)
        file.store_batches([HistoryBatch("node-1", "j", 0, 6, (event,), lost=5)], NOW_MS)
    page = read_page(older, HistoryRange(limit=10))
    assert [(row.lost, row.event is not None) for row in page.events] == [(5, False), (0, True)]


@pytest.mark.parametrize("version", [0, SCHEMA_VERSION, SCHEMA_VERSION + 1])
async def test_empty_present_and_later_files_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, version: int
) -> None:
    path = tmp_path / FILE_NAME
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version={version}")
    ClusterHistory(tmp_path, {}, now)
    assert not list(tmp_path.glob("*.broken-*"))
    assert not caplog.records
