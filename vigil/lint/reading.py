"""Reads files, directories and standard input in a fixed order."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vigil.lint.documents import Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LARGEST = 16 << 20
"""Bytes of one file. An API server takes no object above some 1.5 MiB."""
_ENDINGS = (".yaml", ".yml", ".json")
STANDARD_INPUT = "(standard input)"


class File(NamedTuple):
    """A file as it is named to people, with its text, or why there is none.

    ``is_live``: it is an answer of an API server, whose lines are not known.
    """

    name: str
    text: str
    unreadable: Unreadable | None = None
    is_live: bool = False


def files(paths: Iterable[str]) -> Iterator[File]:
    """Return each file, those of a directory by name. What is named twice is read once."""
    seen = set()
    for path in paths:
        for name in _names(path):
            if name not in seen:
                seen.add(name)
                yield _read(name)


def _names(path: str) -> Iterator[str]:
    if path == "-" or not Path(path).is_dir():
        yield path
        return
    for folder, below, names in os.walk(path):
        below[:] = sorted(name for name in below if not name.startswith("."))
        yield from (str(Path(folder) / name) for name in sorted(names) if _is_ours(name))


def _is_ours(name: str) -> bool:
    return name.endswith(_ENDINGS) and not name.startswith(".")


def _read(path: str) -> File:
    name = STANDARD_INPUT if path == "-" else path
    try:
        content = sys.stdin.buffer.read(LARGEST + 1) if path == "-" else _content(path)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        return File(name, "", Unreadable(1, f"cannot be opened: {why}"))
    if len(content) > LARGEST:
        why = f"is larger than {LARGEST >> 20} MiB"
        return File(name, "", Unreadable(1, why))
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = 1 + content.count(b"\n", 0, error.start)
        return File(name, "", Unreadable(line, f"is not UTF-8: {error.reason}"))
    return File(name, with_lines(text))


def with_lines(text: str) -> str:
    """Return ``text`` without a byte order mark, its lines ended as everywhere."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _content(path: str) -> bytes:
    # What is no file may never end, or wait for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISFIFO(mode):
            raise ValueError("is no file")
        if stat.S_ISFIFO(mode):
            os.set_blocking(file.fileno(), True)
        return file.read(LARGEST + 1)
