"""The state directory: used by one agent at a time, with the files of the last one."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import sqlite3
import time
from typing import TYPE_CHECKING

from agent.journal.file import (
    FILE_NAME,
    OutdatedJournal,
    RestoredJournal,
    moved_aside,
    read_restored,
)
from agent.journal.rows import state_of
from contract.errors import ConfigurationError, JournalError, Problem
from service.files.private import private_directory, private_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

log = logging.getLogger("agent.state_dir")

LOCK_NAME = "lock"
SOCKET_NAME = "agent.sock"
"""The socket on which the pages are served for this host."""
# An agent that ends holds its lock for 4 s at most (``agent/exit_deadline.py``).
_LOCK_SECONDS = 6.0
_STEP_SECONDS = 0.05
# Far more rows than an agent commits in the second that a power cut may lose (decision 2).
_ROWS_LOST_WITH_POWER = 1 << 20


@contextlib.contextmanager
def claimed(directory: Path) -> Iterator[None]:
    """Lock ``directory`` against other agents; wait for one that is just ending.

    Raises ``ConfigurationError`` when another one stays. In a directory that cannot be written the
    agent works without state of its own. The directory is closed to other users.
    """
    try:
        private_directory(directory)
        private_file(directory / LOCK_NAME)
        descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        log.error("--state-dir %s cannot be used: %s", directory, error.strerror)
        yield
        return
    try:
        give_up = time.monotonic() + _LOCK_SECONDS
        while not _try_lock(descriptor, fcntl.LOCK_EX):
            if time.monotonic() > give_up:
                problem = Problem("--state-dir", f"{directory} is in use by another agent")
                raise ConfigurationError("vigil agent", [problem])
            time.sleep(_STEP_SECONDS)
        yield
    finally:
        os.close(descriptor)


def is_claimed(directory: Path) -> bool:
    """Return whether an agent uses ``directory``.

    The lock is held for an instant, in a way that an agent that starts right now waits for.
    """
    try:
        descriptor = os.open(directory / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _try_lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def restore_journal(directory: Path, now_ms: int) -> RestoredJournal:
    """Return the rows of the journal in ``directory`` for a restart.

    A broken journal is moved aside. So is one with an older schema, whose rows the new one marks as
    a gap. A journal that cannot be read now is continued with sequences greater than any that it
    may contain.
    """
    path = directory / FILE_NAME
    try:
        return read_restored(path)
    except (sqlite3.Error, OSError, ValueError, JournalError) as error:
        if moved_aside(path, error, now_ms):
            return RestoredJournal(gap=error.gap if isinstance(error, OutdatedJournal) else None)
        log.error("journal %s cannot be read (%s); starting from audits alone", path, error)
        # A journal has fewer rows than there are milliseconds since 1970.
        return RestoredJournal(last_sequence=now_ms)


def first_sequence(restored: RestoredJournal, boot_id: str) -> int:
    """Return the first sequence of this process: no row that an aggregator may know has it.

    A power cut may remove the last rows, although an aggregator has acknowledged them. So after
    another boot, or where the boot is not known, ``_ROWS_LOST_WITH_POWER`` sequences are skipped.
    """
    if restored.last_sequence == 0:
        return 1
    with contextlib.suppress(JournalError):
        if restored.snapshot is not None and state_of(restored.snapshot).boot_id == boot_id:
            return restored.last_sequence + 1
    return restored.last_sequence + 1 + _ROWS_LOST_WITH_POWER
