"""What belongs to one daemon alone: a directory 0700 and files 0600, whatever the umask.

Files with a secret that a person provides are looked at, and not changed.
"""

from __future__ import annotations

import logging
import os
import stat
from typing import TYPE_CHECKING

from contract.errors import Problem

if TYPE_CHECKING:
    from pathlib import Path

_log = logging.getLogger(__name__)

_DIRECTORY = 0o700
_FILE = 0o600
_GROUP_READS = 0o050
_EVERYBODY = 0o777


def private_directory(path: Path, *, group_may_read: bool = False) -> None:
    """Make ``path`` where it is not there, and close it to all other users. Raises ``OSError``.

    With ``group_may_read`` a group that was let in still reads. A directory that other users need,
    as ``/tmp`` or ``/var/lib``, stays as it is, and so does one that belongs to another user, as a
    volume may. The log has a line about it.
    """
    path.mkdir(mode=_DIRECTORY, parents=True, exist_ok=True)
    try:
        if _is_of_many(path):
            _log.warning("%s has files of other users; give it a directory of its own", path)
            return
        _close(path, _DIRECTORY, _GROUP_READS if group_may_read else 0)
    except OSError as error:
        _log.info("%s stays open to others: %s", path, error.strerror)


def private_file(path: Path) -> None:
    """Make an empty file where there is none, and close it to all other users.

    Raises ``OSError`` for one that cannot be made.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE))
    except FileExistsError:
        # It is not opened: SQLite's locks of this process would go when it is closed again.
        _close_file(path)


def private_database(path: Path) -> None:
    """Make a database as ``private_file`` does, with the files that SQLite has beside it, which get
    its mode.
    """
    private_file(path)
    for suffix in ("-wal", "-shm"):
        _close_file(path.with_name(path.name + suffix))


def rights_problems(where: str, path: Path) -> list[Problem]:
    """Return a problem where every user has a right to the file, else nothing.

    ``where`` is the setting that names the file, which has a secret.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        return [Problem(where, f"{path}: {error.strerror}")]
    if not mode & stat.S_IRWXO:
        return []
    text = f"{path} is open to every user; remove these rights: chmod o= {path}"
    return [Problem(where, text)]


def _is_of_many(path: Path) -> bool:
    """Return whether other users need the directory.

    Files of others prove nothing in a directory in which all may write; only its sticky bit does.
    """
    there = path.stat().st_mode
    if there & (stat.S_IWGRP | stat.S_IWOTH):
        return bool(there & stat.S_ISVTX)
    with os.scandir(path) as entries:
        return any(entry.stat(follow_symlinks=False).st_uid != os.geteuid() for entry in entries)


def _close_file(path: Path) -> None:
    try:
        _close(path, _FILE, 0)
    except FileNotFoundError:
        return
    except OSError as error:
        _log.info("%s stays open to others: %s", path, error.strerror)


def _close(path: Path, owner: int, preserved: int) -> None:
    there = stat.S_IMODE(path.stat().st_mode)
    wanted = there & ~_EVERYBODY | owner | there & preserved
    if wanted != there:
        path.chmod(wanted)
