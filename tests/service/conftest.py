"""Fixtures of the tests of the HTTP server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.parts.certificates import make_pki

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("pki")
    make_pki(place)
    return place
