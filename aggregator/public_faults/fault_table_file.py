"""The file with codes and resources of public faults, whenever it changes.

``clusterd#4.5``. The file lies in a directory of the host in upstream's installation, and
is replaced or written in place there, so it is looked at, not waited for.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NoReturn

import aiofiles

from contract.operator_rules.public_fault_table import LARGEST_BYTES
from service.log.trouble import Trouble

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
_NONE = (0, 0, 0)


async def follow_table(path: Path, configure: Callable[[str | None], object]) -> NoReturn:
    """Pass the text of the file to ``configure``, first at once, and then whenever it changes.

    ``None``: there is none. A text that cannot be read is logged, and the last one stays in force.
    """
    seen: tuple[int, int, int] | None = None
    trouble = Trouble(_log, "%s cannot be read: %s", "%s can be read again", path)
    while True:
        try:
            found = await asyncio.to_thread(_look, path)
            if found != seen:
                text = None if found == _NONE else await _read(path)
                configure(text)
                seen = found
            trouble.end()
        except FileNotFoundError:
            pass  # it went after the look
        except OSError as error:
            trouble.begin(str(error.strerror))
        await asyncio.sleep(_LOOK_SECONDS)


def _look(path: Path) -> tuple[int, int, int]:
    """Return what differs after the file was changed."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return _NONE
    return found.st_mtime_ns, found.st_size, found.st_ino


async def _read(path: Path) -> str:
    """Return the text; of one that is too long only so much that this is seen."""
    async with aiofiles.open(path, "rb") as file:
        return (await file.read(LARGEST_BYTES + 1)).decode("utf-8", "replace")
