"""What one logger wrote in a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def lines_of(logger: str, caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Return level and text of each line."""
    return [(one.levelname, one.message) for one in caplog.records if one.name == logger]
