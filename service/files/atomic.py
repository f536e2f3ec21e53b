"""Atomic replacement of small files that are kept for the next run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def replace(path: Path, content: bytes) -> None:
    """Replace a small file, so that a reader sees all of the old or all of the new content.

    A missing directory is made. Nothing is synced to the disk. Raises ``OSError``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = _draft_of(path)
    with draft.open("xb") as file:
        file.write(content)
    draft.replace(path)


def replace_durably(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Replace a file, so that after a loss of power it has all of the old or the new content.

    ``mode`` is that of the new file, without the bits of the umask. Nothing is written outside of
    the directory of ``path``. Raises ``OSError``; the file at ``path`` is then as before.
    """
    draft = _draft_of(path)
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    # The new name survives a power cut only once its directory is synced.
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _draft_of(path: Path) -> Path:
    """Return the path of a draft beside ``path``, at which there is nothing. Raises ``OSError``."""
    draft = path.with_name(f".{path.name}.new")
    # What is there was left by a killed process, or is a link.
    draft.unlink(missing_ok=True)
    return draft
