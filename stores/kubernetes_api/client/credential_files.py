"""Files with credentials: read whole, within bounds, and looked at later for changes.

Links are followed, as the kubelet sets them: it replaces a volume's files by another ``..data``.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, TypeAlias

from stores.kubernetes_api.client.unusable import Unusable

if TYPE_CHECKING:
    from pathlib import Path

_Stamp: TypeAlias = tuple[int, ...]


class CredentialFiles:
    """The files of one reading. Its methods block, and belong to a thread of their own."""

    def __init__(self) -> None:
        self._stamps: dict[Path, _Stamp | None] = {}

    def read(self, path: Path, most_bytes: int) -> bytes:
        """Read a regular file. Raises ``Unusable``, also for an empty one."""
        # A file that cannot be read has changed once it can be.
        self._stamps[path] = None
        try:
            # Opening a named pipe would wait for a writer.
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                status = os.fstat(descriptor)
                self._stamps[path] = _stamp(status)
                if stat.S_ISDIR(status.st_mode):
                    raise Unusable("is a directory; name a file")
                if not stat.S_ISREG(status.st_mode):
                    raise Unusable("is not a regular file")
                with open(descriptor, "rb", closefd=False) as file:
                    content = file.read(most_bytes + 1)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise Unusable(f"cannot be read: {error.strerror}") from error
        except ValueError:
            raise Unusable("has a name that no file can have") from None
        if not content:
            raise Unusable("is empty")
        if len(content) > most_bytes:
            raise Unusable(f"is longer than {most_bytes} bytes")
        return content

    def note_absent(self, path: Path) -> None:
        """Record that a file is absent: it has changed once it is there."""
        self._stamps[path] = None

    def have_changed(self) -> bool:
        """Return whether a file is another one now, or has other content, than when it was read."""
        return any(_stamp_of(path) != stamp for path, stamp in self._stamps.items())


def _stamp_of(path: Path) -> _Stamp | None:
    try:
        return _stamp(path.stat())
    except (OSError, ValueError):
        return None


def _stamp(status: os.stat_result) -> _Stamp:
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )
