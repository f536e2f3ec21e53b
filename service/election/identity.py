"""The name by which an aggregator holds a Lease.

The name belongs to a place: a host and a state directory, in which one process runs at a time. So
an aggregator that was killed and started again has its Lease at once, and need not wait until it
runs out.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import socket
import uuid
from typing import TYPE_CHECKING

from service.files.private import private_directory, private_file

if TYPE_CHECKING:
    from pathlib import Path

_log = logging.getLogger(__name__)

NAME = "identity"
# What stands in the file is checked, because it becomes a part of the Lease that others read.
_MARK = re.compile(r"[0-9a-f]{12}")


class Identity:
    """``name`` is this process's for as long as it runs; a random one where it has no place.

    The state directory is closed to other users, with ``group_may_read`` but for its group.
    """

    def __init__(self, state_dir: Path | None, *, group_may_read: bool = False) -> None:
        self._descriptor: int | None = None
        mark = None if state_dir is None else self._claim(state_dir, group_may_read)
        self.name = f"{socket.gethostname()}_{mark or _new_mark()}"

    @property
    def has_place(self) -> bool:
        """Whether no other process uses the state directory."""
        return self._descriptor is not None

    def _claim(self, state_dir: Path, group_may_read: bool) -> str | None:
        path = state_dir / NAME
        try:
            private_directory(state_dir, group_may_read=group_may_read)
            private_file(path)
            # Close-on-exec: a child that inherited it would keep the lock after this process has
            # ended.
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            _log.warning("%s cannot be used, a new name is taken: %s", path, error)
            return None
        try:
            # The lock goes with the process, also after ``kill -9``: the next one has the name at
            # once.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mark = os.pread(descriptor, 100, 0).decode(errors="replace").strip()
            if _MARK.fullmatch(mark) is None:
                mark = _new_mark()
                # Written only under the lock, so two processes never write different marks.
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, mark.encode(), 0)
        except OSError as error:
            # Another process is here, or the file system cannot show it.
            _log.warning("%s cannot be claimed, a new name is taken: %s", path, error)
            os.close(descriptor)
            return None
        self._descriptor = descriptor
        return mark

    def close(self) -> None:
        """Let the next process have the name."""
        if self._descriptor is not None:
            # Closing releases the lock whatever the file system reports.
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None


def _new_mark() -> str:
    # 48 bits of chance are enough to distinguish replicas of one host name.
    return uuid.uuid4().hex[:12]
