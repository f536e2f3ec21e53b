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

# A dump of 20,000 objects stays below it; what is read may be an attack (decision 28).
MAX_BYTES = 64 << 20
"""Bytes of one file. An API server takes no object above some 1.5 MiB; a dump has many objects."""
_ENDINGS = (".yaml", ".yml", ".json")
STANDARD_INPUT = "(standard input)"


class File(NamedTuple):
    """A file as it is named to people, with its text, or why there is none.

    ``is_live``: it is an answer of an API server, whose lines are not known. ``is_named``: a user
    named it, not only a directory above it.
    """

    name: str
    text: str
    unreadable: Unreadable | None = None
    is_live: bool = False
    is_named: bool = True


def files(paths: Iterable[str]) -> Iterator[File]:
    """Return each file, those of a directory by name. What is named twice is read once."""
    seen = set()
    for path in paths:
        if path == "-" or not os.path.isdir(path):  # noqa: PTH112  (Path raises for some names)
            below: Iterable[File | str] = (path,)
        else:
            below = _below(path)
        for item in below:
            name = item if isinstance(item, str) else item.name
            if name not in seen:
                seen.add(name)
                yield _read(item, is_named=item == path) if isinstance(item, str) else item


def _below(path: str) -> Iterator[File | str]:
    """Return the names of the files below a directory, and directories that cannot be read."""
    refused: list[OSError] = []
    for folder, below, names in os.walk(path, onerror=refused.append):
        # In place: ``os.walk`` descends into what is left, in this order.
        below[:] = sorted(name for name in below if not name.startswith("."))
        yield from (str(Path(folder) / name) for name in sorted(names) if _is_ours(name))
    for error in refused:
        yield File(str(error.filename), "", Unreadable(1, _refused(error)), is_named=False)


def _is_ours(name: str) -> bool:
    return name.endswith(_ENDINGS) and not name.startswith(".")


def _refused(error: OSError | ValueError) -> str:
    return f"cannot be opened: {getattr(error, 'strerror', None) or error}"


def _read(path: str, *, is_named: bool) -> File:
    name = STANDARD_INPUT if path == "-" else path

    def unreadable(line: int, reason: str) -> File:
        return File(name, "", Unreadable(line, reason), is_named=is_named)

    try:
        is_input = path == "-"
        # One byte more than allowed shows that there is more.
        content = sys.stdin.buffer.read(MAX_BYTES + 1) if is_input else _content(path, is_named)
    except (OSError, ValueError) as error:
        return unreadable(1, _refused(error))
    if len(content) > MAX_BYTES:
        command = "kubectl get KIND -A -o json > FILE"
        reason = f"is larger than {MAX_BYTES >> 20} MiB; write one kind a file: {command}"
        return unreadable(1, reason)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        # The line of the first wrong byte, as an editor counts.
        line = 1 + content.count(b"\n", 0, error.start)
        return unreadable(line, f"is not UTF-8: {error.reason}")
    return File(name, with_lines(text), is_named=is_named)


def with_lines(text: str) -> str:
    """Return ``text`` without a byte order mark, its lines ended as everywhere."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _content(path: str, is_named: bool) -> bytes:
    # What is not a file may never end, or wait for ever. A pipe is read where a shell names it.
    # Non-blocking: to open a pipe without a writer would wait.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode) and not (is_named and stat.S_ISFIFO(mode)):
            raise ValueError("is not a file")
        if stat.S_ISFIFO(mode):
            # A pipe that a shell names (``<(...)``) is read as it comes.
            os.set_blocking(file.fileno(), True)
        return file.read(MAX_BYTES + 1)
