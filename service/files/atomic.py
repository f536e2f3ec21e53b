"""Small files that are kept for the next run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def replace(path: Path, content: bytes) -> None:
    """Give a small file this content, so that a reader sees the old or the new one whole.

    Its directory is made where it is not there. Not synced to the disk. Raises ``OSError``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.new")
    # What is there was left by a killed process, or is a link.
    draft.unlink(missing_ok=True)
    with draft.open("xb") as file:
        file.write(content)
    draft.replace(path)
