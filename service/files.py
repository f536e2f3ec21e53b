"""Configuration files."""

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
