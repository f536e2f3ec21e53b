"""A host of a real program loses what was not synced, and its clock is set, by a real library."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from benchmarks.chaos.host import Disk, Host, build_library
from benchmarks.chaos.planning import troubles_of
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("library"))


@pytest.fixture
def host(tmp_path: Path, library: Path) -> Host:
    state = tmp_path / "state"
    state.mkdir()
    return Host(tmp_path, state, library)


def run(host: Host, script: str) -> str:
    """Run a script in the state directory of the host; return what it printed."""
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", script],
        env=dict(host.environment),
        cwd=host.state_dir,
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def files(host: Host) -> dict[str, str]:
    return {file.name: file.read_text() for file in host.state_dir.iterdir()}


def test_of_a_file_that_was_synced_its_content_at_that_time_is_left(host: Host) -> None:
    (host.state_dir / "untouched").write_text("as before")
    host.begin_losing_power()
    run(
        host,
        "import os\n"
        "for name, sync in ('both', os.fsync), ('data', os.fdatasync):\n"
        "    file = open(name, 'w')\n"
        "    file.write('synced'); file.flush(); sync(file.fileno())\n"
        "    file.write(' and lost'); file.flush()\n",
    )
    assert files(host)["both"] == "synced and lost"
    host.lose_power()
    assert files(host) == {"untouched": "as before", "both": "synced", "data": "synced"}
    run(host, "import os; file = open('later', 'w'); os.fsync(file.fileno())")
    assert not host.state_dir.with_name("synced").exists(), "power is not about to be lost"


WRITE = """
import os
for name, mode in ('new', 'w'), ('old', 'w'), ('longer', 'a'):
    file = open(name, mode)
    file.write('+')
    file.flush()
    if SYNCED:
        os.fsync(file.fileno())
"""


@pytest.mark.parametrize(
    ("is_synced", "left"),
    [
        (False, {"old": "content", "longer": "content"}),
        (True, {"new": "+", "old": "+", "longer": "content+"}),
    ],
)
def test_what_was_written_and_never_synced_is_not_left(
    host: Host, is_synced: bool, left: dict[str, str]
) -> None:
    for name in ("old", "longer"):
        (host.state_dir / name).write_text("content")
    host.begin_losing_power()
    run(host, WRITE.replace("SYNCED", str(is_synced)))
    host.lose_power()
    assert files(host) == left


LIMITED = """
import os, resource
file = open('file', 'w')
file.write('written')
file.flush()
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_FSIZE, (3, 3))
os.fsync(file.fileno())
"""


def test_what_was_copied_in_part_when_the_program_ended_is_not_left(host: Host) -> None:
    host.begin_losing_power()
    # The library cannot write all of its copy, and ends the program.
    with pytest.raises(subprocess.CalledProcessError) as raised:
        run(host, LIMITED)
    assert raised.value.returncode == -signal.SIGABRT
    assert [file.read_text() for file in host.state_dir.with_name("synced").iterdir()] == ["wri"]
    host.lose_power()
    assert files(host) == {}


REPLACE = """
import os
for name in 'old', 'new':
    draft = open(f'draft-{name}', 'w')
    draft.write('replaced')
    draft.flush()
    if SYNCED:
        os.fsync(draft.fileno())
    os.replace(f'{os.getcwd()}/draft-{name}', f'{os.getcwd()}/{name}')
if COMPLETED:
    os.fsync(os.open('.', os.O_RDONLY))
"""


@pytest.mark.parametrize(
    ("is_synced", "is_completed", "left"),
    [
        (True, True, {"old": "replaced", "new": "replaced"}),
        (True, False, {"old": "content", "draft-old": "replaced", "draft-new": "replaced"}),
        (False, True, {"old": "content"}),
    ],
)
def test_a_rename_counts_once_content_and_directory_are_synced(
    host: Host, is_synced: bool, is_completed: bool, left: dict[str, str]
) -> None:
    (host.state_dir / "old").write_text("content")
    host.begin_losing_power()
    script = REPLACE.replace("SYNCED", str(is_synced)).replace("COMPLETED", str(is_completed))
    run(host, script)
    host.lose_power()
    assert files(host) == left


@pytest.mark.parametrize(("name", "is_completed"), [("old", False), ("new", True)])
def test_a_file_that_was_renamed_has_one_of_its_names(
    host: Host, name: str, is_completed: bool
) -> None:
    (host.state_dir / "old").write_text("content")
    host.begin_losing_power()
    complete = "os.fsync(os.open('.', os.O_RDONLY))" if is_completed else ""
    run(host, f"import os; os.rename(f'{{os.getcwd()}}/old', f'{{os.getcwd()}}/new'); {complete}")
    host.lose_power()
    assert files(host) == {name: "content"}


def test_what_is_synced_after_a_rename_is_left(host: Host) -> None:
    host.begin_losing_power()
    run(
        host,
        "import os\n"
        "file = open('draft', 'w')\n"
        "os.fsync(file.fileno())\n"
        "os.rename(f'{os.getcwd()}/draft', f'{os.getcwd()}/file')\n"
        "file.write('later'); file.flush(); os.fsync(file.fileno())\n"
        "os.fsync(os.open('.', os.O_RDONLY))\n",
    )
    host.lose_power()
    assert files(host) == {"file": "later"}


REMOVE = """
import os
for name in 'before', 'again':
    file = open(name, 'w')
    os.fsync(file.fileno())
    os.unlink(f'{os.getcwd()}/{name}')
file = open('again', 'w')
file.write('made anew')
file.flush()
os.fsync(file.fileno())
"""


def test_a_file_that_was_removed_is_not_there_unless_it_was_made_and_synced_anew(
    host: Host,
) -> None:
    (host.state_dir / "before").write_text("content")
    host.begin_losing_power()
    run(host, REMOVE)
    host.lose_power()
    assert files(host) == {"again": "made anew"}


JOURNAL = """
import sqlite3
def connected(mode):
    connection = sqlite3.connect('journal.sqlite', isolation_level=None)
    connection.execute('PRAGMA journal_mode=WAL')
    connection.execute(f'PRAGMA synchronous={mode}')
    return connection
writer = connected('OFF')
writer.execute('CREATE TABLE rows (number)')
for number in range(900):
    writer.execute('INSERT INTO rows VALUES (?)', (number,))
    if number == 499:
        syncing = connected('FULL')
        syncing.execute('PRAGMA wal_checkpoint(PASSIVE)').fetchone()
        syncing.close()
import os
os._exit(0)
"""
READ = """
import sqlite3
connection = sqlite3.connect('journal.sqlite')
print(connection.execute('PRAGMA integrity_check').fetchone()[0])
print(connection.execute('SELECT count(*), max(number) FROM rows').fetchone())
"""


@pytest.mark.parametrize(("loses_power", "rows"), [(False, "(900, 899)"), (True, "(500, 499)")])
def test_a_journal_has_the_rows_up_to_its_last_sync_and_is_whole(
    host: Host, loses_power: bool, rows: str
) -> None:
    host.begin_losing_power()
    run(host, JOURNAL)
    if loses_power:
        host.lose_power()
    assert run(host, READ).splitlines() == ["ok", rows]


@pytest.mark.parametrize(("loses_power", "rows"), [(False, 1800), (True, 900)])
def test_a_journal_without_a_sync_has_the_rows_of_before(
    host: Host, loses_power: bool, rows: int
) -> None:
    run(host, JOURNAL)
    host.begin_losing_power()
    run(host, JOURNAL.replace("TABLE", "TABLE IF NOT EXISTS").replace("499", "-1"))
    if loses_power:
        host.lose_power()
    assert run(host, READ).splitlines() == ["ok", f"({rows}, 899)"]


CLOCK = """
import time
print(time.time_ns(), time.monotonic_ns())
"""


@pytest.mark.parametrize("ahead_ms", [0, 3_600_000, -3_600_000, 1_900, -1_900])
def test_the_clock_of_the_day_is_set_and_no_other(host: Host, ahead_ms: int) -> None:
    host.ahead_ms = ahead_ms
    assert host.ahead_ms == ahead_ms
    before, steady_before = time.time_ns(), time.monotonic_ns()
    wall, steady = map(int, run(host, CLOCK).split())
    assert before <= wall - ahead_ms * 1_000_000 <= time.time_ns()
    assert steady_before <= steady <= time.monotonic_ns()


WRITES = """
import errno, os, sys
files = [open(name, 'wb', buffering=0) for name in ('first', 'second')]
for line in sys.stdin:
    results = []
    for file in files:
        try:
            os.pwrite(file.fileno(), b'content', 0)
            results.append('written')
        except OSError as error:
            results.append(errno.errorcode[error.errno])
    print(*results, flush=True)
"""


CHANGES = """
import errno, os, sqlite3, struct
state = os.getcwd()
file = open(f'{state}/file', 'r+b', buffering=0)
database = sqlite3.connect(f'{state}/database')
with open(os.environ['HOST_CONTROL'], 'r+b') as control:
    control.write(struct.pack('=qqq', 0, 0, 1))

def insert():
    with database:
        database.execute('insert into rows values (1)')

changes = (
    lambda: file.write(b'content'),
    lambda: os.pwrite(file.fileno(), b'content', 0),
    lambda: file.truncate(3),
    lambda: open(f'{state}/new', 'w'),
    lambda: open(f'{state}/memory/new', 'w'),
    lambda: os.rename(f'{state}/file', f'{state}/other'),
    lambda: os.unlink(f'{state}/file'),
    insert,
)
for change in changes:
    try:
        change()
        print('done')
    except OSError as error:
        print(errno.errorcode[error.errno])
    except sqlite3.OperationalError as error:
        print(error)
outside = f'{os.path.dirname(state)}/outside'
print(open(f'{state}/file').read(), open(outside, 'w').write('content'))
"""


def test_nothing_in_the_state_directory_changes_while_the_disk_is_read_only(host: Host) -> None:
    (host.state_dir / "file").write_text("before")
    (host.state_dir / "memory").mkdir()
    with closing(sqlite3.connect(host.state_dir / "database")) as database:
        database.execute("create table rows (number)")
    *refused, left = run(host, CHANGES).splitlines()
    assert host.is_read_only
    assert refused == [*7 * ["EROFS"], "unable to open database file"]
    assert left == "before 7", "what is elsewhere can be written"
    host.is_read_only = False
    assert run(host, WRITE.replace("SYNCED", "True")) == ""


SYNCS = """
import os, time
file = open('file', 'w')
for sync in os.fsync, os.fdatasync:
    began = time.monotonic()
    sync(file.fileno())
    print(time.monotonic() - began)
"""


def test_each_sync_takes_long_while_the_disk_is_slow(host: Host) -> None:
    host.is_slow = True
    assert all(float(seconds) >= 1.5 for seconds in run(host, SYNCS).split())
    host.is_slow = False
    assert all(float(seconds) < patience(1.5) for seconds in run(host, SYNCS).split())


def test_no_write_succeeds_while_the_disk_is_full(tmp_path: Path, host: Host) -> None:
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", WRITES],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        disk = Disk(lambda: process.pid, host)

        def write() -> list[str]:
            """Return what came of writes into a file with content and into an empty one."""
            assert process.stdin is not None
            assert process.stdout is not None
            print(file=process.stdin, flush=True)
            return process.stdout.readline().split()

        assert (disk.is_full, write()) == (False, ["written", "written"])
        (tmp_path / "second").write_text("")
        disk.is_full = True
        assert (disk.is_full, write()) == (True, ["EFBIG", "EFBIG"])
        disk.is_full = False
        assert (disk.is_full, write()) == (False, ["written", "written"])


def test_real_parts_have_eighteen_troubles_and_more() -> None:
    for platform in ("directory", "kubernetes", "mqtt"):
        assert len(troubles_of(platform)) >= 18
    assert "power-lost" in troubles_of("directory")
    assert "disk-full" not in troubles_of("directory"), "the store would be full, too"
