"""The state directory: one agent at a time, and a start from whatever is there."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from agent import state_dir
from agent.journal.file import FILE_NAME, JournalFile, RestoredJournal
from agent.journal.rows import JournalGap, JournalRow, RowKind
from agent.state_dir import claimed, restore_journal
from contract.errors import ConfigurationError
from tests.agent.journal.older import OLDER_END_MS, OLDER_ROWS, older_journal
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from pathlib import Path

HOLDER = """
import sys, time
from pathlib import Path
from agent.state_dir import claimed

with claimed(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def holder(directory: Path, seconds: float) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(directory), str(seconds)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@pytest.mark.slow
def test_an_agent_that_is_just_ending_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_dir, "_LOCK_SECONDS", patience(6))
    with holder(tmp_path, 0.5), claimed(tmp_path):
        assert (tmp_path / "lock").exists()


@pytest.mark.slow
def test_a_second_agent_is_kept_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_dir, "_LOCK_SECONDS", 0.2)
    with holder(tmp_path, 30) as process:
        with pytest.raises(ConfigurationError, match="in use by another agent"), claimed(tmp_path):
            pass
        process.kill()
    with claimed(tmp_path):
        pass


def test_a_directory_that_cannot_be_made_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with claimed(tmp_path / "file" / "state"):
        pass
    assert restore_journal(tmp_path / "file" / "state", 7) == RestoredJournal()


def test_a_broken_journal_is_moved_aside(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"not a database" * 1000)
    assert restore_journal(tmp_path, 1234) == RestoredJournal()
    assert not (tmp_path / FILE_NAME).exists()
    assert (tmp_path / f"{FILE_NAME}.broken-1234").exists()


def test_a_journal_broken_in_the_middle_is_moved_aside(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    with closing(JournalFile(path)) as file:
        file.write(JournalRow(number, 0, RowKind.REPORTS, "x" * 500) for number in range(1, 200))
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xaa" * (len(content) - 4096)
    path.write_bytes(content)
    assert restore_journal(tmp_path, 1234).last_sequence in (0, 199)
    assert (tmp_path / f"{FILE_NAME}.broken-1234").exists() or path.exists()


def test_a_journal_with_an_older_schema_is_moved_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = older_journal(tmp_path)
    remembered = restore_journal(tmp_path, 1234)
    assert remembered == RestoredJournal(
        gap=JournalGap(OLDER_END_MS, "its schema is version 1, known is 2", OLDER_ROWS)
    )
    assert [path.name for path in tmp_path.iterdir()] == [f"{FILE_NAME}.broken-1234"]
    (warning,) = caplog.records
    assert warning.levelname == "WARNING"
    assert str(path) in warning.getMessage()


def test_a_journal_that_cannot_be_read_now_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).mkdir()
    assert restore_journal(tmp_path, 1_800_000_000_000) == RestoredJournal(
        last_sequence=1_800_000_000_000
    )


def test_rows_of_a_kind_of_a_newer_version_stop_nothing(tmp_path: Path) -> None:
    with closing(JournalFile(tmp_path / FILE_NAME)) as file:
        file.write([JournalRow(1, 0, RowKind.SNAPSHOT, "{}")])
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        connection.execute("INSERT INTO rows VALUES (2, 0, 'from the future', '{}')")
        connection.commit()
    remembered = restore_journal(tmp_path, 7)
    assert remembered.last_sequence == 2
    assert remembered.snapshot is not None
