"""Histories of daemons that do not run, as a part of the archive."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import msgspec

from agent.journal.file import FILE_NAME as JOURNAL_NAME
from agent.journal.file import JournalFile
from agent.journal.rows import JournalRow, RowKind, Start, body_of
from aggregator.notify.history_file import FILE_NAME, HistoryFile
from contract.pages.changes import FaultChange
from vigil.support import daemon_parts
from vigil.support.part import PartContents
from vigil.support.place import place_of

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

ROWS = 1500


def test_the_timeline_of_a_journal_has_its_source(tmp_path: Path) -> None:
    file = JournalFile(tmp_path / JOURNAL_NAME)
    file.write([JournalRow(1, 1, RowKind.START, body_of(Start("node-1", "boot")))])
    file.close()
    into = PartContents()
    daemon_parts.collect_timeline(place_of(None, tmp_path, None, None, None), 1, into)
    files = {raw.name: raw.value for raw in into.files}
    assert files["journal/timeline.jsonl"] == []
    assert into.problems == []
    # As it is written into the archive, without any hook.
    source = json.loads(msgspec.json.encode(files["journal/timeline-source.json"]))
    assert source["source"] == "journal of the agent of node-1"
    assert source["not_known"] == [
        "what happened since the agent ended",
        "what the cluster published about this node",
    ]


def test_only_the_newest_rows_of_a_long_history_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_parts, "_MAX_HISTORY_ROWS", ROWS - 1)
    now_ms = time.time_ns() // 1_000_000
    file = HistoryFile(tmp_path / FILE_NAME)
    file.store_changes(
        FaultChange(f"n{number}", now_ms, "chip 3", "80E18402", level="SeparateNPU")
        for number in range(ROWS)
    )
    file.close()
    into = PartContents()
    daemon_parts.collect_timeline(place_of(None, tmp_path, None, None, None), now_ms, into)
    (raw,) = into.files
    assert isinstance(raw.value, list)
    assert [row["node"] for row in raw.value] == [f"n{n}" for n in range(ROWS // 2, ROWS)]
    assert into.problems == ["only the newest rows: the last day has more than fits"]
