"""Atomic replacement of small files that are kept for the next run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def replace(path: Path, content: bytes) -> None:
    """Replace a small file, so that a reader sees all of the old or all of the new content.

    A missing directory is made. Nothing is synced to the disk. Raises ``OSError``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.new")
    # What is there was left by a killed process, or is a link.
    draft.unlink(missing_ok=True)
    with draft.open("xb") as file:
        file.write(content)
    draft.replace(path)
