"""Names what is at a path, for messages about what is neither a file nor a device. Pure."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISREG, "a file"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISFIFO, "a pipe"),
)


def kind_of(status: os.stat_result) -> str:
    """Return the kind: ``a socket``, ``character device 1:3``."""
    for is_kind, name in _KINDS:
        if is_kind(status.st_mode):
            return name
    sort = "character" if stat.S_ISCHR(status.st_mode) else "block"
    return f"{sort} device {os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
