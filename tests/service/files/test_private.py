"""What belongs to one daemon is closed to others, whatever the umask and whatever was there."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from agent.journal.file import JournalFile
from agent.journal.rows import JournalRow, RowKind
from agent.state_dir import claimed
from aggregator.config import AggregatorConfiguration
from aggregator.notify.history_file import HistoryFile
from aggregator.process import _has_documents
from service.election.identity import Identity
from service.files.private import private_database, private_directory, rights_problems

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """Set the umask that a service manager or container runtime gives."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    """Return the permissions of a file."""
    return stat.S_IMODE(path.stat().st_mode)


def open_to_all(directory: Path, *names: str) -> None:
    """Make the files that an earlier release left below a ``hostPath``."""
    directory.mkdir(parents=True)
    directory.chmod(0o755)
    for name in names:
        (directory / name).touch()
        (directory / name).chmod(0o644)


@pytest.mark.parametrize("is_there", [False, True])
def test_the_state_of_an_agent(tmp_path: Path, umask: int, is_there: bool) -> None:
    del umask
    place = tmp_path / "lib" / "state"
    journal = place / "journal.sqlite"
    if is_there:
        open_to_all(place, "lock")
        with closing(JournalFile(journal)) as file:
            file.write([JournalRow(1, 0, RowKind.SNAPSHOT, "{}")])
        journal.chmod(0o644)
    with claimed(place), closing(JournalFile(journal)) as file:
        file.write([JournalRow(2, 0, RowKind.SNAPSHOT, "{}")])
        assert mode(place) == 0o700
        files = {path.name: mode(path) for path in place.iterdir()}
        assert files.keys() >= {"lock", journal.name, f"{journal.name}-wal", f"{journal.name}-shm"}
        assert set(files.values()) == {0o600}


def test_files_that_a_killed_agent_left_beside_its_journal_are_closed_to_others(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal.sqlite"
    with closing(JournalFile(path)) as file:
        file.write([JournalRow(1, 0, RowKind.SNAPSHOT, "{}")])
        beside = [path, *(tmp_path / f"{path.name}{end}" for end in ("-wal", "-shm"))]
        for one in beside:
            one.chmod(0o644)
        with closing(JournalFile(path)):
            assert {mode(one) for one in beside} == {0o600}


def test_a_database_in_use_keeps_its_locks(tmp_path: Path) -> None:
    """POSIX locks go when the process closes any descriptor of the file."""
    path = tmp_path / "one.sqlite"
    private_database(path)
    other = f"import sqlite3; sqlite3.connect({str(path)!r}, timeout=0).execute('BEGIN IMMEDIATE')"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        private_database(path)
        tried = subprocess.run([sys.executable, "-c", other], capture_output=True, check=False)
    assert b"database is locked" in tried.stderr


@pytest.mark.parametrize("is_there", [False, True])
def test_the_state_of_an_aggregator(tmp_path: Path, umask: int, is_there: bool) -> None:
    del umask
    place = tmp_path / "state"
    if is_there:
        open_to_all(place, "identity", "history.sqlite")
    with closing(Identity(place)), closing(HistoryFile(place / "history.sqlite")):
        assert mode(place) == 0o700
        assert {mode(path) for path in place.iterdir()} == {0o600}


def test_documents_in_the_state_directory_stay_readable_for_its_group(tmp_path: Path) -> None:
    place = tmp_path / "state"
    open_to_all(place)
    inside, beside = f"directory:{place}/store", f"directory:{tmp_path}/store"
    for publish, expected in ((beside, 0o700), (inside, 0o750), (inside, 0o750), (beside, 0o700)):
        place.chmod(0o755)
        configuration = AggregatorConfiguration(
            store=(beside,), publish=(publish,), state_dir=place
        )
        with closing(Identity(place, group_may_read=_has_documents(configuration))):
            assert mode(place) == expected
    place.chmod(0o700)
    with closing(Identity(place, group_may_read=True)):
        assert mode(place) == 0o700, "nobody is let in who was not before"


def test_a_directory_that_others_need_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """``--state-dir /tmp`` and ``/var/lib`` must not take the machine away from its users."""
    shared, system = tmp_path / "tmp", tmp_path / "lib"
    for place, before in ((shared, 0o1777), (system, 0o755)):
        place.mkdir()
        (place / "one").touch()
        place.chmod(before)
    private_directory(shared)
    monkeypatch.setattr(os, "geteuid", lambda: 9820)
    private_directory(system)
    assert (mode(shared), mode(system)) == (0o1777, 0o755)
    assert caplog.text.count("give it a directory of its own") == 2
    system.chmod(0o777)
    private_directory(system)
    assert mode(system) == 0o700, "anybody may have put a file there"


def test_a_directory_of_another_user_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As a volume that belongs to root, for a pod that does not."""
    tmp_path.chmod(0o2770)

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(type(tmp_path), "chmod", refused)
    caplog.set_level("INFO")
    private_directory(tmp_path)
    assert mode(tmp_path) == 0o2770
    assert "stays open to others: Operation not permitted" in caplog.text


def test_rights_of_a_file_that_went_are_a_problem(tmp_path: Path) -> None:
    (problem,) = rights_problems("pages.users_file", tmp_path / "users")
    assert str(problem) == f"pages.users_file: {tmp_path / 'users'}: No such file or directory"
