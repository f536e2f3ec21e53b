"""An upgrade on a directory store: agents first, or the aggregator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.upgrade.site import DirectoryStore
from tests.upgrade.steps import VERSIONS, upgrade

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("first", ["agents", "aggregator"])
@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_is_lost_or_changed(tmp_path: Path, built: Path, version: str, first: str) -> None:
    upgrade(tmp_path, built, DirectoryStore(tmp_path / "store"), version, first)
