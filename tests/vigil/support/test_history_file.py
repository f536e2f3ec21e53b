"""The history of an aggregator that does not run, as a part of the archive."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from aggregator.notify.history_file import FILE_NAME, HistoryFile
from contract.pages.changes import FaultChange
from vigil.support import daemon_parts
from vigil.support.part import PartContents
from vigil.support.place import place_of

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

ROWS = 1500


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
