"""Reads a status file that belongs to the system, and refuses one of another user.

Source: ``docs/spec/noded.md#4.3``.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from contract.file_kinds import kind_of

if TYPE_CHECKING:
    from pathlib import Path

_FORBIDDEN_BITS = 0o133
"""Executable for any user, writable for group or others."""
_MAX_BYTES = 1 << 20


def read_checked(path: Path, *, any_owner: bool) -> bytes:
    """Return the content of ``path``. Blocking.

    Links are followed; the last one must belong to root as the file must, unless ``any_owner``
    (development). Raises ``OSError`` where it cannot be read and ``ValueError`` where it must not.
    """
    if not any_owner and path.lstat().st_uid != 0:
        raise ValueError(f"{path} does not belong to root")
    # A socket cannot be opened, and the kernel's error for that names no reason.
    if not stat.S_ISREG((there := path.stat()).st_mode):
        raise ValueError(f"{path} is not a regular file, but {kind_of(there)}")
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    # Links are resolved before, so a link at this place was put there since.
    descriptor = os.open(path.resolve(strict=True), flags)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{path} is not a regular file, but {kind_of(status)}")
        if not any_owner and status.st_uid != 0:
            raise ValueError(f"{path} leads to a file that does not belong to root")
        if status.st_mode & _FORBIDDEN_BITS:
            mode = stat.filemode(status.st_mode)
            raise ValueError(f"{path} is {mode}: others may write it, or it is a program")
        return _whole(descriptor, path)
    finally:
        os.close(descriptor)


def _whole(descriptor: int, path: Path) -> bytes:
    """Return the whole content: files of the kernel are read in pieces and have no known length."""
    content = bytearray()
    while piece := os.read(descriptor, 1 << 16):
        content += piece
        if len(content) > _MAX_BYTES:
            raise ValueError(f"{path} is larger than {_MAX_BYTES} bytes")
    return bytes(content)
