"""Small files: configuration that is read, and what is kept for the next run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.configuration import parse_toml
from contract.errors import ConfigurationError, Problem

if TYPE_CHECKING:
    from pathlib import Path


def read_toml(path: Path) -> dict[str, object]:
    """Read a TOML file. Raises ``ConfigurationError``."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    except UnicodeDecodeError as error:
        problem = f"is not UTF-8 text: {error.reason}"
    else:
        return parse_toml(text, str(path))
    raise ConfigurationError(str(path), [Problem("(file)", problem)])


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
