"""The journal on real files: what is committed stays, and trouble never holds anybody up."""

from __future__ import annotations

import json
import logging
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from agent.journal import file as journal_file
from agent.journal.file import FILE_NAME, JournalFile, RestoredJournal, read_restored
from agent.journal.journal import Journal
from agent.journal.reader import read_rows
from agent.journal.rows import JournalRow, RowKind
from contract.errors import JournalError
from tests.agent.journal.older import older_journal
from tests.parts.deadlines import patience, stays, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

NOW_MS = 1_800_000_000_000


def open_journal(
    directory: Path,
    *,
    on_recovered: Callable[[], None] = lambda: None,
    held_bytes: int = 1 << 20,
) -> Journal:
    return Journal(
        directory,
        first_sequence=read_restored(directory / FILE_NAME).last_sequence + 1,
        wall_clock=lambda: NOW_MS,
        on_recovered=on_recovered,
        held_bytes=held_bytes,
    )


def stored_rows(directory: Path) -> list[tuple[int, str, str]]:
    with closing(sqlite3.connect(directory / FILE_NAME)) as connection:
        return connection.execute(
            "SELECT sequence, kind, body FROM rows ORDER BY sequence"
        ).fetchall()


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


async def test_a_start_remembers_the_last_snapshot_and_the_inputs_since(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    journal.append(
        [(RowKind.START, "{}"), (RowKind.REPORTS, "[1]"), (RowKind.SNAPSHOT, '"first"')], NOW_MS
    )
    journal.append([(RowKind.SNAPSHOT, '"second"'), (RowKind.REPORTS, "[2]")], NOW_MS)
    last = journal.append([(RowKind.CHANGES, "[]"), (RowKind.ACKNOWLEDGED, "[3]")], NOW_MS + 5)
    assert await journal.committed(last, 1)
    assert await journal.close()

    remembered = read_restored(tmp_path / FILE_NAME)
    assert remembered == RestoredJournal(
        snapshot=JournalRow(4, NOW_MS, RowKind.SNAPSHOT, '"second"'),
        inputs=(
            JournalRow(5, NOW_MS, RowKind.REPORTS, "[2]"),
            JournalRow(7, NOW_MS + 5, RowKind.ACKNOWLEDGED, "[3]"),
        ),
        configuration=None,
        last_sequence=7,
    )
    journal = open_journal(tmp_path)
    assert journal.append([(RowKind.START, "{}")], NOW_MS) == 8
    assert await journal.close()


def test_a_directory_without_journal_remembers_nothing(tmp_path: Path) -> None:
    assert read_restored(tmp_path / FILE_NAME) == RestoredJournal()


@pytest.mark.slow
async def test_everything_is_carried_to_the_disk_within_about_a_second(tmp_path: Path) -> None:
    """The file alone, without its WAL, is what a power cut leaves."""
    journal = open_journal(tmp_path / "state")
    assert await journal.committed(journal.append([(RowKind.REPORTS, "[7]")], NOW_MS), 1)
    file = tmp_path / "state" / FILE_NAME

    def reached_the_disk() -> bool:
        left = tmp_path / "left.sqlite"
        left.write_bytes(file.read_bytes())
        try:
            return [row.body for row in read_restored(left).inputs] == ["[7]"]
        except sqlite3.DatabaseError:  # copied while it was written
            return False

    await until(reached_the_disk, "the row is in the file", 2)
    assert journal.status().unsynced is None
    assert await journal.close()


KILLED = """
import asyncio, sys
from pathlib import Path
from agent.journal.journal import Journal
from agent.journal.rows import RowKind

async def main():
    journal = Journal(Path(sys.argv[1]), first_sequence=1, wall_clock=lambda: 0,
                      on_recovered=lambda: None)
    while True:
        last = journal.append([(RowKind.REPORTS, "[]")] * 3, 0)
        assert await journal.committed(last, 5)
        print(last, flush=True)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("after_lines", [1, 40, 333])
def test_kill_9_loses_nothing_that_was_committed(tmp_path: Path, after_lines: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for _ in range(after_lines):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        printed = process.stdout.read().split()
    committed = max((int(line) for line in printed), default=after_lines * 3)
    found = read_restored(tmp_path / FILE_NAME)
    sequences = [row.sequence for row in found.inputs]
    assert sequences == list(range(1, found.last_sequence + 1))
    assert found.last_sequence >= committed
    assert found.last_sequence % 3 == 0, "half a batch was committed"


@contextmanager
def full_disk() -> Iterator[None]:
    """Limit files of this process to 4 KiB, which has the effect of a full disk on the journal."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.slow
async def test_a_full_disk_delays_no_other_and_loses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recovered: list[bool] = []
    journal = open_journal(tmp_path, on_recovered=lambda: recovered.append(True))
    assert await journal.committed(journal.append([(RowKind.START, "{}")], NOW_MS), patience(5))
    with full_disk():
        bodies = [json.dumps({"number": number, "text": "x" * 500}) for number in range(50)]
        for body in bodies:
            last = journal.append([(RowKind.REPORTS, body)], NOW_MS)
        await journal.committed(last, patience(5))
        begin = time.monotonic()
        assert not await journal.committed(last, patience(5))
        assert time.monotonic() - begin < patience(0.5), (
            "waits although the journal is known to fail"
        )
        assert journal.status().trouble is not None
        assert journal.status().rows_held == 50
        assert not recovered
        await stays(
            0.8, because="the disk stays full for more than _RETRY_SECONDS of the journal, 0.5"
        )
    await until(lambda: journal.status().rows_held == 0, "the held rows are written")
    await until(lambda: bool(recovered), "a snapshot is asked for")
    assert journal.status().trouble is None
    assert journal.status().gaps == 1
    assert await journal.close()
    rows = stored_rows(tmp_path)
    assert [row[2] for row in rows if row[1] == "reports"] == bodies
    gap = json.loads(rows[-1][2])
    assert rows[-1][1] == "gap"
    assert gap["since_ms"] == NOW_MS
    assert gap["rows_lost"] == 0
    messages = [record.message for record in caplog.records if record.name == "agent.journal"]
    assert sum("publishing continues" in message for message in messages) == 1
    assert sum("committed again" in message for message in messages) == 1


@pytest.mark.slow
async def test_rows_held_in_memory_are_bounded_and_a_loss_is_marked(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, held_bytes=10_000)
    assert await journal.committed(journal.append([(RowKind.START, "{}")], NOW_MS), patience(5))
    with full_disk():
        for number in range(100):
            journal.append([(RowKind.REPORTS, f'[{number},"{"x" * 936}"]')], NOW_MS)
        assert journal.status().rows_held <= 10
        await until(lambda: journal.status().trouble is not None, "trouble is noticed")
    await until(lambda: journal.status().trouble is None, "the journal works again")
    dropped = journal.status().rows_dropped
    assert dropped >= 90
    assert await journal.close()
    rows = stored_rows(tmp_path)
    reports = [json.loads(row[2])[0] for row in rows if row[1] == "reports"]
    assert reports[-1] == 99
    assert json.loads(rows[-1][2])["rows_lost"] == dropped


@pytest.mark.usefixtures("patient_commits")
async def test_a_locked_journal_is_late_not_in_the_way(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    assert await journal.committed(journal.append([(RowKind.START, "{}")], NOW_MS), patience(5))
    with closing(sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        last = journal.append([(RowKind.REPORTS, "[]")], NOW_MS)
        begin = time.monotonic()
        assert not await journal.committed(last, 0.02)
        assert 0.015 < time.monotonic() - begin < patience(0.3)
        assert "longer than 20 ms" in str(journal.status().trouble)
        other.execute("ROLLBACK")
    await until(lambda: journal.status().trouble is None, "the journal works again")
    assert await journal.committed(last, 0)
    assert await journal.close()
    assert [row[1] for row in stored_rows(tmp_path)] == ["start", "reports", "gap"]


@pytest.fixture
def patient_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a commit wait for a lock for as long as a test holds it; it fails after 0.1 s else."""
    patient = msgspec.structs.replace(journal_file._SETTINGS, busy_seconds=patience(10))
    monkeypatch.setattr(journal_file, "_SETTINGS", patient)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the lock, so that no other connection can commit."""
    with closing(sqlite3.connect(directory / FILE_NAME, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


async def test_slow_commits_are_one_warning_with_their_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A lock of SQLite would end a commit with an error after 0.1 s.
    write, released = JournalFile.write, threading.Event()

    def slow(file: JournalFile, rows: Sequence[JournalRow]) -> None:
        released.wait(patience(10))
        write(file, rows)

    monkeypatch.setattr(JournalFile, "write", slow)
    caplog.set_level(logging.INFO)
    released.set()
    journal = open_journal(tmp_path)
    assert await journal.committed(journal.append([(RowKind.START, "{}")], NOW_MS), patience(5))
    for _ in range(3):
        released.clear()
        last = journal.append([(RowKind.REPORTS, "[]")], NOW_MS)
        assert not await journal.committed(last, 0.02)
        await stays(0.05, because="each commit has to be a slow one")
        released.set()
        await until(lambda: journal.status().trouble is None, "it is committed")
    assert journal.status().gaps == 3
    first = [(one.levelname, one.message) for one in caplog.records]
    assert await journal.close()
    logged = [(one.levelname, one.message) for one in caplog.records]
    assert [level for level, _ in logged] == ["WARNING", "WARNING"]
    assert logged[:1] == first, "the others wait for the end of the minute, or of the journal"
    assert "1 slow commit, the longest took " in logged[0][1]
    assert "2 slow commits, the longest took " in logged[1][1]
    longest_ms = int(logged[1][1].partition("took ")[2].split()[0])
    assert longest_ms >= 60


async def test_a_commit_without_memory_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, missing = JournalFile.write, [MemoryError(), MemoryError()]

    def without_memory(file: JournalFile, rows: Sequence[JournalRow]) -> None:
        if missing:
            raise missing.pop()
        write(file, rows)

    monkeypatch.setattr(JournalFile, "write", without_memory)
    monkeypatch.setattr("agent.journal.journal._RETRY_SECONDS", 0.01)
    journal = open_journal(tmp_path)
    assert not await journal.committed(journal.append([(RowKind.START, "{}")], NOW_MS), 1)
    assert journal.status().trouble == "there is no memory"
    await until(lambda: journal.status().trouble is None, "it is committed")
    assert await journal.close()
    assert "committed again (0 rows lost)" in caplog.text


@pytest.mark.slow
@pytest.mark.usefixtures("patient_commits")
async def test_a_commit_that_hangs_is_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.journal.journal.HANGS_SECONDS", patience(0.1))
    journal = open_journal(tmp_path)
    assert await journal.committed(journal.append([(RowKind.START, "{}")], NOW_MS), patience(5))
    with locked(tmp_path):
        assert not await journal.committed(journal.append([(RowKind.REPORTS, "[]")], NOW_MS), 0.02)
        assert caplog.records == []
        # The first commit may have been slow as well, which is a WARNING before this.
        await until(lambda: [one.levelname for one in caplog.records][-1:] == ["ERROR"], "it hangs")
    await until(lambda: journal.status().trouble is None, "it is committed")
    assert await journal.close()
    assert [one.levelname for one in caplog.records][-2:] == ["ERROR", "WARNING"]
    assert "committed again (0 rows lost)" in caplog.records[-1].message


@pytest.mark.slow
@pytest.mark.usefixtures("patient_commits")
async def test_a_slow_commit_that_fails_is_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = open_journal(tmp_path)
    assert await journal.committed(journal.append([(RowKind.START, "{}")], NOW_MS), patience(5))
    with full_disk():
        with locked(tmp_path):
            last = journal.append([(RowKind.REPORTS, json.dumps("x" * 5000))], NOW_MS)
            assert not await journal.committed(last, 0.02)
            assert caplog.records == []
        await until(lambda: "publishing continues without it" in caplog.text, "it fails")
        assert journal.status().gaps == 1
        assert "longer than" not in str(journal.status().trouble)
    await until(lambda: journal.status().trouble is None, "it is committed")
    assert await journal.close()
    failed = [one.levelname for one in caplog.records if "slow commit" not in one.message]
    assert failed == ["ERROR", "WARNING"]


def broken_journal(directory: Path) -> Path:
    """Write what is no database in the place of the journal; return the file."""
    path = directory / FILE_NAME
    path.write_bytes(b"this is not a database, whatever its name says" * 100)
    (directory / f"{FILE_NAME}.broken-1").write_bytes(b"an older one")
    return path


@pytest.mark.slow
@pytest.mark.parametrize(("made", "level"), [(broken_journal, "ERROR"), (older_journal, "WARNING")])
async def test_a_broken_file_or_one_with_an_older_schema_is_moved_aside_and_a_new_one_begun(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, made: Callable[[Path], Path], level: str
) -> None:
    path = made(tmp_path)
    content = path.read_bytes()
    recovered: list[bool] = []
    journal = Journal(
        tmp_path,
        first_sequence=1,
        wall_clock=lambda: NOW_MS,
        on_recovered=lambda: recovered.append(True),
    )
    journal.append([(RowKind.REPORTS, "[1]")], NOW_MS)
    await until(lambda: bool(recovered), "a snapshot is asked for")
    assert await journal.close()
    assert [row[1] for row in stored_rows(tmp_path)] == ["reports", "gap"]
    aside = f"{FILE_NAME}.broken-{NOW_MS}"
    assert (tmp_path / aside).read_bytes() == content
    assert not (tmp_path / f"{FILE_NAME}.broken-1").exists(), "only the last one stays"
    (moved,) = [record for record in caplog.records if "moved to" in record.getMessage()]
    assert moved.levelname == level
    assert str(path) in moved.getMessage()


@pytest.mark.slow
async def test_a_file_that_is_removed_while_running_is_made_again(tmp_path: Path) -> None:
    recovered: list[bool] = []
    journal = open_journal(tmp_path, on_recovered=lambda: recovered.append(True))
    assert await journal.committed(journal.append([(RowKind.START, "{}")], NOW_MS), patience(5))
    for name in names_in(tmp_path):
        (tmp_path / name).unlink()
    journal.append([(RowKind.REPORTS, "[1]")], NOW_MS)
    await until(lambda: bool(recovered), "a snapshot is asked for")
    assert await journal.close()
    assert [row[2] for row in stored_rows(tmp_path) if row[1] == "reports"] == ["[1]"]


async def test_a_place_that_cannot_be_written_is_only_trouble() -> None:
    journal = open_journal(Path("/proc/npu-vigil"))
    last = journal.append([(RowKind.START, "{}")], NOW_MS)
    assert not await journal.committed(last, 1)
    assert journal.status().trouble is not None
    assert not await journal.close()


async def test_a_journal_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    JournalFile(tmp_path / FILE_NAME).close()
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        connection.execute("PRAGMA user_version=99")
    journal = open_journal(tmp_path)
    assert not await journal.committed(journal.append([(RowKind.START, "{}")], NOW_MS), 1)
    assert "newer release: its schema is version 99" in str(journal.status().trouble)
    assert not await journal.close()
    assert stored_rows(tmp_path) == []


def test_the_rows_of_an_older_schema_are_not_replayed(tmp_path: Path) -> None:
    older = older_journal(tmp_path)
    with pytest.raises(JournalError, match="its schema is version 1, known is 2"):
        list(read_rows(older))


def filled(path: Path, reports: int, body: str = "[]") -> JournalFile:
    file = JournalFile(path)
    rows = [JournalRow(1, 0, RowKind.CONFIGURATION, "{}")]
    rows += [JournalRow(2 + number, number, RowKind.REPORTS, body) for number in range(reports)]
    rows.append(JournalRow(reports + 2, reports, RowKind.SNAPSHOT, "{}"))
    rows.append(JournalRow(reports + 3, 0, RowKind.REPORTS, "[]"))
    file.write(rows)
    return file


def test_old_rows_are_pruned_but_never_what_a_start_needs(tmp_path: Path) -> None:
    with closing(filled(tmp_path / FILE_NAME, 2000)) as file:
        while file.prune(older_than_ms=1900, max_bytes=1 << 30).may_be_more:
            pass
    kept = [row[0] for row in stored_rows(tmp_path)]
    assert kept == [1, *range(1902, 2004)]


def test_rows_in_force_at_the_oldest_snapshot_stay_for_replays(tmp_path: Path) -> None:
    texts, usage = RowKind.FAULT_CONFIGURATION, RowKind.USAGE
    kinds = [
        texts,
        texts,
        usage,
        RowKind.SNAPSHOT,
        usage,
        texts,
        usage,
        RowKind.SNAPSHOT,
        RowKind.REPORTS,
    ]
    kinds += [texts, RowKind.SNAPSHOT]
    with closing(JournalFile(tmp_path / FILE_NAME)) as file:
        file.write([JournalRow(number, number, kind, "{}") for number, kind in enumerate(kinds, 1)])
        for older_than_ms, kept in (
            (4, [2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
            (5, [2, 3, 5, 6, 7, 8, 9, 10, 11]),
            (8, [6, 7, 8, 9, 10, 11]),
            (20, [6, 7, 10, 11]),
            (20, [7, 10, 11]),
        ):
            file.prune(older_than_ms=older_than_ms, max_bytes=1 << 30)
            assert [row[0] for row in stored_rows(tmp_path)] == kept


def test_sent_events_are_kept_and_later_changes_are_unacknowledged(tmp_path: Path) -> None:
    with closing(JournalFile(tmp_path / FILE_NAME)) as file:
        file.write(
            [
                JournalRow(1, 1, RowKind.EVENTS, "[1]"),
                JournalRow(2, 1, RowKind.REPORTS, "[]"),
                JournalRow(3, 1, RowKind.EVENTS, "[2]"),
                JournalRow(4, 1, RowKind.REPORTS, "[]"),
                JournalRow(5, 1, RowKind.CHANGES, "[]"),
                JournalRow(6, 1, RowKind.SNAPSHOT, "{}"),
                JournalRow(7, 1, RowKind.ACKNOWLEDGED, "[]"),
                JournalRow(8, 1, RowKind.PUBLICATION, "{}"),
            ]
        )
        remembered = read_restored(tmp_path / FILE_NAME)
        assert remembered.events == JournalRow(3, 1, RowKind.EVENTS, "[2]")
        assert [row.sequence for row in remembered.unacknowledged_changes] == [4, 5, 7]
        file.prune(older_than_ms=2, max_bytes=1 << 30)
        assert read_restored(tmp_path / FILE_NAME).events == remembered.events


def test_a_journal_without_sent_events_has_nothing_to_restore(tmp_path: Path) -> None:
    with closing(JournalFile(tmp_path / FILE_NAME)) as file:
        file.write([JournalRow(1, 1, RowKind.REPORTS, "[]")])
        assert read_restored(tmp_path / FILE_NAME).unacknowledged_changes == ()


def test_a_journal_that_is_too_large_is_pruned(tmp_path: Path) -> None:
    with closing(filled(tmp_path / FILE_NAME, 2000, "x" * 1000)) as file:
        size = (tmp_path / f"{FILE_NAME}-wal").stat().st_size
        assert size > 2_000_000
        while file.prune(older_than_ms=0, max_bytes=1_000_000).may_be_more:
            pass
    kept = [row[0] for row in stored_rows(tmp_path)]
    assert kept[0] == 1
    assert kept[-2:] == [2002, 2003]
    assert 3 < len(kept) < 1003


def test_a_journal_can_be_read_where_nothing_can_be_written(tmp_path: Path) -> None:
    with closing(filled(tmp_path / FILE_NAME, 3)):
        (tmp_path / f"{FILE_NAME}-shm").unlink()
        (tmp_path / f"{FILE_NAME}-shm").mkdir()
        assert read_restored(tmp_path / FILE_NAME).last_sequence == 6
        (tmp_path / f"{FILE_NAME}-shm").rmdir()


@pytest.mark.slow
def test_start_after_kill_leaves_the_checkpoint_to_the_sync(tmp_path: Path) -> None:
    # A checkpoint that does not wait for the disk may break the file in a power cut.
    first, second = tmp_path / "first" / FILE_NAME, tmp_path / "second" / FILE_NAME
    file = JournalFile(first)
    try:
        rows = (JournalRow(n, NOW_MS, RowKind.REPORTS, "x" * 4096) for n in range(1, 1500))
        file.write(rows)
        second.parent.mkdir()
        for suffix in ("", "-wal"):
            path = first.with_name(first.name + suffix)
            second.with_name(second.name + suffix).write_bytes(path.read_bytes())
    finally:
        file.close()
    before = second.read_bytes()
    started = JournalFile(second)
    try:
        assert second.read_bytes() == before
    finally:
        started.close()


async def test_nothing_waits_for_a_journal_that_is_in_trouble() -> None:
    journal = open_journal(Path("/proc/nowhere"))
    assert not await journal.committed(journal.append([(RowKind.START, "{}")], NOW_MS), 30)
    began = time.monotonic()
    assert not await journal.committed(journal.append([(RowKind.REPORTS, "[]")], NOW_MS), 30)
    assert time.monotonic() - began < 10
    assert not await journal.close()


async def test_rows_that_do_not_fit_while_there_is_trouble_are_counted() -> None:
    journal = open_journal(Path("/proc/nowhere"), held_bytes=4000)
    for _ in range(100):
        last = journal.append([(RowKind.REPORTS, json.dumps("x" * 100))], NOW_MS)
    assert not await journal.committed(last, 30)
    status = journal.status()
    assert 0 < status.rows_held < 40
    assert status.rows_dropped == 100 - status.rows_held
    assert not await journal.close()
