"""Volcano's programs, built once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.volcano.programs import build

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def volcano_built() -> Path:
    """The folder with Volcano's program; an error where it cannot be built."""
    return build()
