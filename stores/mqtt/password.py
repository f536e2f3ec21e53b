"""The file with the password of a user at a broker."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def read_password(file: Path) -> str:
    """Return the text of ``file`` without the end of its line.

    Raises ``OSError`` where it cannot be read, ``ValueError`` where all users can read it.
    """
    with file.open(encoding="utf-8") as opened:
        if os.fstat(opened.fileno()).st_mode & stat.S_IROTH:
            raise ValueError(f"{file.absolute()} can be read by everybody; chmod 0600 or 0640")
        return opened.read().rstrip("\r\n")
