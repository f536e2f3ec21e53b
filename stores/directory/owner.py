"""Checks which users may write in the directory of a store.

A writer there decides the level of every chip. A daemon of root would also act on files that other
users of the host make, so it accepts no such directory unless an operator allows it.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from contract.errors import StoreRefused

if TYPE_CHECKING:
    from pathlib import Path

SETTING = "directory.others_may_write"

_ROOT = 0


def shared_problem(path: Path) -> str | None:
    """Return why a daemon of root refuses ``path``; ``None`` where it does not, or is not root.

    The sticky bit makes no difference: it keeps no user from making files. Raises ``OSError``.
    """
    if os.geteuid() != _ROOT:
        return None
    status = path.stat()
    mode = stat.S_IMODE(status.st_mode)
    by_all = mode & stat.S_IWOTH
    by_group = mode & stat.S_IWGRP and status.st_gid != _ROOT
    if not by_all and not by_group and status.st_uid == _ROOT:
        return None
    return (
        f"others may write {path} (mode {mode:04o}, user {status.st_uid}, group {status.st_gid}): "
        f"chown root and chmod go-w, or set {SETTING}"
    )


class OwnerCheck:
    """Refuses a directory that others may write, each one once it is to be written."""

    def __init__(self, root: Path, *, others_may_write: bool) -> None:
        self._root = root
        self._allowed = others_may_write
        self._checked: tuple[int, int] | None = None

    def check(self) -> None:
        """Raise ``StoreRefused`` for a directory that was not checked, as one mounted later."""
        if self._allowed:
            return
        try:
            status = self._root.stat()
            identity = status.st_dev, status.st_ino
            if identity == self._checked:
                return
            problem = shared_problem(self._root)
        except OSError:
            return  # It is made, or the next write finds what is wrong.
        if problem is not None:
            raise StoreRefused(problem)
        self._checked = identity
